"""The Spark job: delays by carrier and month, written as one atomic job, and the chart of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from structable.spi import Row

from .tables import REPORT

__all__ = ["LATE", "draw", "write_report"]

LATE = 15
"""Minutes from which on an arrival counts as late."""


def write_report(spark: SparkSession, url: str) -> None:
    """Read flights, airlines and planes, and replace the report: at once, or, if anything fails, not at all."""

    def table(name: str, columns: str) -> DataFrame:
        source = spark.read.format("structable").option("url", url).option("table", name)
        return source.option("columns", columns).load()

    flights = table("flights", "year,month,carrier,tailnum,dep_delay,arr_delay")
    airlines = table("airlines", "carrier,name")
    planes = table("planes", "tailnum,year").withColumnRenamed("year", "built")
    report = (
        flights.join(f.broadcast(planes), "tailnum", "left")
        .join(f.broadcast(airlines), "carrier", "left")
        .groupBy("carrier", "month", "name")
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
            f.mean("dep_delay").alias("dep_delay"),
            f.mean("arr_delay").alias("arr_delay"),
            f.mean((f.col("arr_delay") > LATE).cast("double")).alias("late_share"),
            f.mean(f.col("year") - f.col("built")).alias("plane_age"),
        )
    )
    report.write.format("structable").option("url", url).option("table", REPORT.name).mode("overwrite").save()


def draw(report: Sequence[Row], path: Path) -> None:
    """Draw the mean delay of arrivals by carrier and month, the largest carriers first."""
    mpl.use("agg")
    totals: dict[str, int] = {}
    for row in report:
        totals[row.name] = totals.get(row.name, 0) + row.flights
    names = sorted(totals, key=lambda name: -totals[name])
    months = sorted({row.month for row in report})
    delays = {(row.name, row.month): row.arr_delay for row in report}

    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    nothing = float("nan")
    cells = [[nothing if (value := delays.get((name, month))) is None else value for month in months] for name in names]
    image = axes.imshow(cells, cmap="RdYlGn_r", vmin=-20, vmax=40, aspect="auto")
    for y, line in enumerate(cells):
        for x, value in enumerate(line):
            if value == value:
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(months)), [_MONTHS[month - 1] for month in months])
    axes.set_yticks(range(len(names)), names)
    axes.set_title("Mean delay of arrivals of flights from New York, 2013")
    figure.colorbar(image, label="minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
