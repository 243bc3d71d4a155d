"""The main job: the flights of 2013 from New York, loaded, served, changed and analysed on one store.

    python examples/demo.py [--url URL] [--copy URL] [--chart FILE] [--days N] [--processes N] [--transactions N]

Spark loads five tables. Processes of a service then look flights up and change them in transactions, while a Spark job
joins and aggregates the same tables and writes its result as one atomic job. Then the flights arrive as a stream and
update two tables that merge, which other streams copy to a second store by their change feeds. Nothing here depends on
the stores: any URL works whose store several processes can use.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from structable.spark_bridge import register
from structable.spi import Range, Row, Storage, col, connect, mask_url

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.flights.analysis import aggregate, draw
from examples.flights.loading import data_folder, read_source
from examples.flights.service import Date, Outcome, Service
from examples.flights.streams import differing, stream_flights
from examples.flights.tables import CHANGES, DELAYS, SOURCES, STREAMED

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 100)


def main() -> None:
    """Run the demo."""
    options = _options()
    began = time.perf_counter()
    with _store_url(options.url) as url, _session() as spark, connect(url) as storage:
        console.print(f"[bold]structable[/]: the flights of 2013 from New York, on {mask_url(url)}\n")
        _load(spark, storage, url, options.days)
        _look(storage)
        dates = _dates(storage)
        with _timed("a service of several processes changed flights, while Spark read them and wrote its result"):
            service = Service(url, options.processes, options.transactions, dates)
            with _timed("the Spark job: two joins, delays by carrier and month, one atomic write"):
                aggregate(spark, url)
            outcomes = service.outcomes()
        _check(storage, outcomes)
        _report(storage)
        _stream(spark, storage, url, options.copy)
        draw(storage, options.chart)
        console.print(f"\nThe chart: [bold]{options.chart.resolve()}[/]")
    console.print(f"All in {time.perf_counter() - began:.1f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--url",
        help="a store that several processes can use, whose tables flights, airlines, airports, planes, weather, "
        "changes, delays, traffic and aircraft are replaced; a temporary LevelDB folder by default",
    )
    parser.add_argument(
        "--copy", help="where traffic and aircraft are copied to; a temporary LevelDB folder by default"
    )
    parser.add_argument("--chart", type=Path, default=Path("artifacts/delays.png"), help="where the chart goes")
    parser.add_argument("--days", type=int, help="load flights of the first days of the year only")
    parser.add_argument("--processes", type=int, default=3, help="processes of the service")
    parser.add_argument("--transactions", type=int, default=400, help="transactions of each of them")
    return parser.parse_args()


@contextmanager
def _store_url(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with TemporaryDirectory(prefix="structable-demo-") as folder:
        yield f"leveldb://{folder}/tables"


@contextmanager
def _session() -> Iterator[SparkSession]:
    # Otherwise Spark's workers use the first python3 on the path, which may not have structable.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Java's output goes to a file: Spark starts with a page of warnings.
    log = Path("artifacts/spark.log")
    with _timed("Spark is up, with two cores"), _standard_error_in(log):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("structable demo")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        register(spark)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Redirect the errors of this process, and of those it starts, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    console.print(f"{time.perf_counter() - began:6.1f} s  {what}")


def _load(spark: SparkSession, storage: Storage, url: str, days: int | None) -> None:
    for spec in (*SOURCES, CHANGES, DELAYS):
        storage.admin.drop(spec.name)
        storage.admin.create(spec)
    with data_folder() as folder:
        for spec in SOURCES:
            with _timed(f"loaded {spec.name}: one atomic write job"):
                rows = read_source(spark, url, folder, spec, days)
                target = rows.write.format("structable").option("url", url).option("table", spec.name)
                target.option("mode", "insert").mode("append").save()
    counts = ", ".join(f"{storage.table(spec.name).count():,} {spec.name}" for spec in SOURCES)
    console.print(f"          {counts}\n")


def _look(storage: Storage) -> None:
    """Show a look-up, its rows, a scan by an index, and the path of a filtered scan."""
    flights = storage.table("flights")
    row = flights.read((2013, 1, 1, "UA", 1545, "EWR"))
    assert row is not None
    plane, airport = storage.table("planes").read((row.tailnum,)), storage.table("airports").read((row.dest,))
    weather = storage.table("weather").read((row.origin, row.time_hour))
    assert plane is not None
    assert airport is not None
    console.print(
        f"A look-up: UA 1545 to {airport.name} left {row.dep_delay} minutes late; a {plane.manufacturer} {plane.model} "
        f"of {plane.year}, at {weather.temp if weather else '?'} F"
    )
    latest = flights.scan_index("dest", "LAX", where=col("dep_delay") > 120, reverse=True, limit=3)
    late = ", ".join(f"{row.carrier} {row.flight} on {row.month}/{row.day} by {row.dep_delay} min" for row in latest)
    console.print(f"By the index on dest: the last flights to LAX that left over two hours late: {late or 'none'}")
    console.print(f"How that is found: {flights.explain(where=(col('dest') == 'LAX') & (col('dep_delay') > 120))}\n")


def _dates(storage: Storage) -> list[Date]:
    """Return the days that have flights, each found by seeking past all flights of the day before."""
    flights, dates = storage.table("flights"), list[Date]()
    while True:
        range_ = Range.above(dates[-1]) if dates else Range.all()
        with flights.scan(range_, columns=["day"], limit=1) as rows:
            row = next(rows, None)
        if row is None:
            return dates
        dates.append((row.year, row.month, row.day))


def _check(storage: Storage, outcomes: list[Outcome]) -> None:
    """Compare the reports of the processes with both tables that they changed, in one snapshot."""
    transactions = sum(outcome.transactions for outcome in outcomes)
    attempts = sum(outcome.attempts for outcome in outcomes)
    lookups, scans = sum(outcome.lookups for outcome in outcomes), sum(outcome.scans for outcome in outcomes)
    seconds = max(outcome.seconds for outcome in outcomes)
    with storage.transaction(read_only=True) as transaction:
        changes = list(transaction.table("changes").scan())
        changed = transaction.table("flights").scan(where=col("added_delay").is_not_null(), columns=["added_delay"])
        minutes = sum(row.added_delay for row in changed)
    counted = sum(row.transactions for row in changes)
    reported = sum(outcome.minutes for outcome in outcomes)
    if counted != transactions or not minutes == reported == sum(row.minutes for row in changes):
        raise SystemExit(
            f"the tables disagree: {transactions} transactions, {counted} counted; {minutes} minutes, not {reported}"
        )
    console.print(
        f"          {len(outcomes)} processes made {lookups:,} look-ups, {scans:,} scans by an index and "
        f"{transactions:,} transactions in {seconds:.1f} s;\n"
        f"          {attempts - transactions} transactions ran again after a conflict. They added {minutes:,} minutes "
        "of delay:\n          flights, running totals and processes agree\n"
    )


def _stream(spark: SparkSession, storage: Storage, url: str, copy: str | None) -> None:
    """Let flights arrive as a stream that updates two tables, and copy these by their feeds."""
    with (
        TemporaryDirectory(prefix="structable-streams-") as folder,
        _store_url(copy) as copy_url,
        connect(copy_url) as replica,
    ):
        for spec in STREAMED:
            for store, options in ((storage, spec.options), (replica, {})):
                store.admin.drop(spec.name)
                store.admin.create(spec.evolve(options=options))
        what = "flights arrived as a stream, in four parts; two tables merged them, and were copied by their feeds"
        with _timed(what):
            batches = stream_flights(spark, url, copy_url, Path(folder))
        if names := differing(storage, replica):
            raise SystemExit(f"copies differ: {', '.join(names)}")
        flights = sum(row.flights for row in storage.table("traffic").scan())
        if flights != storage.table("flights").count():
            raise SystemExit(f"{flights} flights were counted by the stream, not {storage.table('flights').count()}")
        last = max(storage.table("aircraft").scan(), key=lambda row: row.departures)
        console.print(
            f"          {batches} micro-batches, each written once; {flights:,} flights counted, copies equal\n"
            f"          {last.tailnum} departed most often: {last.departures} times, last to {last.dest}\n"
        )


def _report(storage: Storage) -> None:
    """Show the Spark job's result, by carrier."""
    table = Table(title="From the table that the Spark job wrote", caption="delays in minutes, age of planes in years")
    for name in ("airline", "flights", "cancelled", "departure", "arrival", "age"):
        table.add_column(name, justify="left" if name == "airline" else "right", no_wrap=True)
    months: dict[str, list[Row]] = {}
    for row in storage.table("delays").scan():
        months.setdefault(row.airline, []).append(row)
    for airline, rows in sorted(months.items(), key=lambda item: -sum(row.flights for row in item[1])):
        table.add_row(
            airline,
            f"{sum(row.flights for row in rows):,}",
            f"{sum(row.cancelled for row in rows):,}",
            f"{_mean(rows, 'departure_delay'):.1f}",
            f"{_mean(rows, 'arrival_delay'):.1f}",
            f"{_mean(rows, 'plane_age'):.1f}",
        )
    console.print(table)


def _mean(rows: list[Row], name: str) -> float:
    """Return the mean of the monthly means, weighted by their flights."""
    known: list[tuple[int, float]] = [(row.flights, value) for row in rows if (value := getattr(row, name)) is not None]
    return sum(flights * value for flights, value in known) / (sum(flights for flights, _ in known) or 1)


if __name__ == "__main__":
    main()
