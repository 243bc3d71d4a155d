"""The tables: the five of the data set, one written by the service, one by the Spark job, and two by streams."""

from __future__ import annotations

from structable.spi import Field, TableSpecification

FLIGHT_KEY = ("year", "month", "day", "carrier", "flight", "origin")
"""The identity of a flight: no carrier uses one number twice a day from one airport."""

_FLIGHTS = TableSpecification(
    "flights",
    fields=[
        Field.short("year"),
        Field.byte("month"),
        Field.byte("day"),
        Field.short("dep_time"),  # local, as hhmm; null if the flight was cancelled
        Field.short("sched_dep_time"),
        Field.short("dep_delay"),  # minutes, negative if it left early
        Field.short("arr_time"),
        Field.short("sched_arr_time"),
        Field.short("arr_delay"),
        Field.string("carrier"),
        Field.short("flight"),
        Field.string("tailnum"),
        Field.string("origin"),
        Field.string("dest"),
        Field.short("air_time"),
        Field.short("distance"),
        Field.byte("hour"),
        Field.byte("minute"),
        Field.timestamp("time_hour"),
        Field.int("added_delay"),  # not in the data set: minutes added by the service; null if none
    ],
    primary_key=FLIGHT_KEY,
    indexes=["tailnum", "dest"],
)

_AIRLINES = TableSpecification(
    "airlines", fields=[Field.string("carrier"), Field.string("name")], primary_key=["carrier"]
)

_AIRPORTS = TableSpecification(
    "airports",
    fields=[
        Field.string("faa"),
        Field.string("name"),
        Field.double("lat"),
        Field.double("lon"),
        Field.short("alt"),
        Field.byte("tz"),
        Field.string("dst"),
        Field.string("tzone"),
    ],
    primary_key=["faa"],
)

_PLANES = TableSpecification(
    "planes",
    fields=[
        Field.string("tailnum"),
        Field.short("year"),
        Field.string("type"),
        Field.string("manufacturer"),
        Field.string("model"),
        Field.byte("engines"),
        Field.short("seats"),
        Field.short("speed"),
        Field.string("engine"),
    ],
    primary_key=["tailnum"],
    indexes=["manufacturer"],
)

_WEATHER = TableSpecification(
    "weather",
    fields=[
        Field.string("origin"),
        Field.short("year"),
        Field.byte("month"),
        Field.byte("day"),
        Field.byte("hour"),
        Field.double("temp"),
        Field.double("dewp"),
        Field.double("humid"),
        Field.short("wind_dir"),
        Field.double("wind_speed"),
        Field.double("wind_gust"),
        Field.double("precip"),
        Field.double("pressure"),
        Field.double("visib"),
        Field.timestamp("time_hour"),
    ],
    # Not the local hour: the hour in which summer time ends occurs twice.
    primary_key=["origin", "time_hour"],
)

SOURCES = (_FLIGHTS, _AIRLINES, _AIRPORTS, _PLANES, _WEATHER)
"""The tables of the data set. The fields of each begin with the columns of its file, in their order."""

CHANGES = TableSpecification(
    "changes",
    fields=[Field.string("carrier"), Field.long("transactions"), Field.long("minutes")],
    primary_key=["carrier"],
)
"""Running totals of the service's changes."""

DELAYS = TableSpecification(
    "delays",
    fields=[
        Field.string("carrier"),
        Field.byte("month"),
        Field.string("airline"),
        Field.long("flights"),
        Field.long("cancelled"),
        Field.double("departure_delay"),
        Field.double("arrival_delay"),
        Field.double("plane_age"),
    ],
    primary_key=["carrier", "month"],
)
"""Delays by carrier and month, in minutes, and the age of the planes in years: the result of the Spark job."""

_TRAFFIC = TableSpecification(
    "traffic",
    fields=[
        Field.string("carrier"),
        Field.byte("month"),
        Field.long("flights"),
        Field.long("cancelled"),
        Field.short("worst_delay"),
    ],
    primary_key=["carrier", "month"],
    options={
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "sum",
        "fields.worst_delay.aggregate-function": "max",
        "changelog-producer": "lookup",
    },
)

_AIRCRAFT = TableSpecification(
    "aircraft",
    fields=[
        Field.string("tailnum"),
        Field.timestamp("seen"),
        Field.string("dest"),
        Field.string("carrier"),
        Field.long("departures"),
    ],
    primary_key=["tailnum"],
    options={
        "merge-engine": "partial-update",
        "fields.seen.sequence-group": "dest,carrier,departures",
        "fields.departures.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
)

STREAMED = (_TRAFFIC, _AIRCRAFT)
"""Written by streams: totals that are added up, and what is known of each aircraft, filled in flight by flight."""
