"""The tables: the data set's five, three that the service writes, and the report's."""

from __future__ import annotations

from structable.spi import Field, TableAdmin, TableSpecification

__all__ = ["DATA_SET", "FLIGHT_KEY", "SERVICE", "REPORT", "create_tables"]

FLIGHT_KEY = ("year", "month", "day", "carrier", "flight", "origin")
"""What tells flights apart: no carrier flies one number twice a day from one airport."""

_FLIGHTS = TableSpecification(
    "flights",
    fields=[
        Field.short("year"),
        Field.byte("month"),
        Field.byte("day"),
        Field.short("dep_time"),  # local, as hhmm; null where the flight was cancelled
        Field.short("sched_dep_time"),
        Field.short("dep_delay"),  # minutes, negative where it left early
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
    # Not the local hour: the one in which summer time ends comes twice.
    primary_key=["origin", "time_hour"],
)

DATA_SET = (_FLIGHTS, _AIRLINES, _AIRPORTS, _PLANES, _WEATHER)
"""The fields of each in the order of its file's columns."""

SERVICE = (
    TableSpecification(
        "bookings",
        fields=[
            Field.string("desk"),
            Field.int("number"),
            Field.string("tailnum"),
            Field.short("minutes"),
            Field.short("legs"),
            Field.timestamp("booked"),
        ],
        primary_key=["desk", "number"],
    ),
    TableSpecification(
        "delay_counters",
        fields=[Field.string("carrier"), Field.long("legs"), Field.long("minutes")],
        primary_key=["carrier"],
    ),
)
"""Every delay that was booked, and running totals of them."""

REPORT = TableSpecification(
    "carrier_months",
    fields=[
        Field.string("carrier"),
        Field.byte("month"),
        Field.string("name"),
        Field.long("flights"),
        Field.long("cancelled"),
        Field.double("dep_delay"),
        Field.double("arr_delay"),
        Field.double("late_share"),
        Field.double("plane_age"),
    ],
    primary_key=["carrier", "month"],
)
"""Delays by carrier and month, which the Spark job writes."""


def create_tables(admin: TableAdmin) -> None:
    """Create what is missing, and empty what the service wrote before."""
    for table in SERVICE:
        admin.drop(table.name)
    for table in (*DATA_SET, *SERVICE, REPORT):
        admin.create_or_update(table)
