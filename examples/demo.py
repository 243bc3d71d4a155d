"""The main job: the flights of 2013 from New York, loaded, served, changed and analysed on one store.

    python examples/demo.py [--url URL] [--chart FILE] [--days N] [--processes N] [--transactions N]

Spark loads five tables. Processes of a service then look flights up and change them in transactions, while a Spark job
joins and aggregates the same tables and writes its result as one atomic job. Nothing here depends on the store.
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
from structable.spi import Storage, col, connect, mask_url

sys.path.insert(0, str(Path(__file__).parent))

from flights.analysis import aggregate, draw
from flights.service import Outcome, Service
from flights.tables import CHANGES, DELAYS, SOURCES, data_folder, read_source

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Run the demo."""
    options = _options()
    began = time.perf_counter()
    with _store_url(options.url) as url, _session() as spark, connect(url) as storage:
        console.print(f"[bold]structable[/]: the flights of 2013 from New York, on {mask_url(url)}\n")
        _load(spark, storage, url, options.days)
        _look(storage)
        with _timed("Three things at once: the service changes flights, Spark reads them, and writes its result"):
            service = Service(url, options.processes, options.transactions)
            with _timed("  the Spark job: two joins, delays by carrier and month, one atomic write"):
                aggregate(spark, url)
            outcomes = service.outcomes()
        _check(storage, outcomes)
        _report(storage)
        draw(storage, options.chart)
        console.print(f"\nChart: [bold]{options.chart.resolve()}[/]")
    console.print(f"All in {time.perf_counter() - began:.1f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--url", help="a store that several processes can use; a temporary LevelDB folder by default")
    parser.add_argument("--chart", type=Path, default=Path("build/demo/delays.png"), help="where the chart goes")
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
    # Spark's workers take the first python3 of the path otherwise, which may not have structable.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _timed("Spark is up, with two cores"):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("structable demo")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        register(spark)
    try:
        yield spark
    finally:
        spark.stop()


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
            with _timed(f"loaded {spec.name}, one atomic write job"):
                rows = read_source(spark, folder, spec, days)
                target = rows.write.format("structable").option("url", url).option("table", spec.name)
                target.option("mode", "insert").mode("append").save()
    counts = ", ".join(f"{storage.table(spec.name).count():,} {spec.name}" for spec in SOURCES)
    console.print(f"          {counts}\n")


def _look(storage: Storage) -> None:
    """Show a look-up, a scan by an index, and how a filter is answered."""
    flights = storage.table("flights")
    row = flights.read((2013, 1, 1, "UA", 1545, "EWR"))
    if row is not None:
        console.print(f"A look-up: UA 1545 from {row.origin} to {row.dest}, {row.dep_delay} minutes late, plane {row.tailnum}")
    newest = flights.scan_index("dest", "LAX", where=col("dep_delay") > 120, reverse=True, limit=3)
    late = ", ".join(f"{row.carrier} {row.flight} on {row.month}/{row.day} ({row.dep_delay} min)" for row in newest)
    console.print(f"By the index on dest: the last flights to LAX that left over two hours late: {late}")
    console.print(f"How it is read: {flights.explain(where=(col('dest') == 'LAX') & (col('dep_delay') > 120))}\n")


def _check(storage: Storage, outcomes: list[Outcome]) -> None:
    """Compare what the processes say with both tables that they changed, in one snapshot."""
    transactions = sum(outcome.transactions for outcome in outcomes)
    attempts = sum(outcome.attempts for outcome in outcomes)
    seconds = max(outcome.seconds for outcome in outcomes)
    with storage.transaction(read_only=True) as transaction:
        changes = list(transaction.table("changes").scan())
        changed = transaction.table("flights").scan(where=col("added_delay").is_not_null(), columns=["added_delay"])
        minutes = sum(row.added_delay for row in changed)
    counted = sum(row.transactions for row in changes)
    if counted != transactions or sum(row.minutes for row in changes) != minutes:
        raise SystemExit(f"the tables disagree: {transactions} transactions, {counted} counted, {minutes} minutes")
    console.print(
        f"          {len(outcomes)} processes committed {transactions:,} transactions in {seconds:.1f} s "
        f"({attempts - transactions} run again after a conflict);\n"
        f"          {minutes:,} minutes of delay added, the same in flights and in changes\n"
    )


def _report(storage: Storage) -> None:
    table = Table(title="Delays by carrier, from the table that the Spark job wrote")
    for name in ("airline", "flights", "cancelled", "departure delay", "arrival delay", "plane age"):
        table.add_column(name, justify="left" if name == "airline" else "right")
    months: dict[str, list[tuple[int, int, float, float, float]]] = {}
    for row in storage.table("delays").scan():
        months.setdefault(row.airline, []).append(
            (row.flights, row.cancelled, row.departure_delay or 0.0, row.arrival_delay or 0.0, row.plane_age or 0.0)
        )
    for airline, rows in sorted(months.items(), key=lambda item: -sum(row[0] for row in item[1])):
        flights = sum(row[0] for row in rows)
        means = [sum(row[0] * row[column] for row in rows) / flights for column in (2, 3, 4)]
        late = [f"{mean:.1f} min" for mean in means[:2]]
        table.add_row(airline, f"{flights:,}", f"{sum(row[1] for row in rows):,}", *late, f"{means[2]:.1f} y")
    console.print(table)


if __name__ == "__main__":
    main()
