"""The demo's Spark job: flights joined with airlines and planes, delays by carrier and month, and a chart of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from structable.spi import Storage


def aggregate(spark: SparkSession, url: str) -> None:
    """Read three tables, each from one snapshot, and write the delays by carrier and month as one atomic job."""

    def table(name: str, columns: str) -> DataFrame:
        read = spark.read.format("structable").option("url", url).option("table", name)
        return read.option("columns", columns).load()

    flights = table("flights", "carrier,month,tailnum,year,dep_time,dep_delay,arr_delay")
    airlines = table("airlines", "carrier,name").withColumnRenamed("name", "airline")
    planes = table("planes", "tailnum,year").withColumnRenamed("year", "built")
    delays = (
        flights.join(airlines, "carrier")
        .join(planes, "tailnum", "left")
        .groupBy("carrier", "month")
        .agg(
            sql.first("airline").alias("airline"),
            sql.count(sql.lit(1)).alias("flights"),
            sql.count_if(sql.col("dep_time").isNull()).alias("cancelled"),
            sql.avg("dep_delay").alias("departure_delay"),
            sql.avg("arr_delay").alias("arrival_delay"),
            sql.avg(sql.col("year") - sql.col("built")).alias("plane_age"),
        )
    )
    delays.write.format("structable").option("url", url).option("table", "delays").mode("overwrite").save()


def draw(storage: Storage, path: Path, *, carriers: int = 6) -> None:
    """Draw the arrival delays of the largest carriers by month, from the result table, into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    flights: dict[str, int] = defaultdict(int)
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in storage.table("delays").scan():
        flights[row.airline] += row.flights
        if row.arrival_delay is not None:
            lines[row.airline].append((row.month, row.arrival_delay))
    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    for airline in sorted(flights, key=flights.__getitem__, reverse=True)[:carriers]:
        months, delays = zip(*lines[airline], strict=True)
        axes.plot(months, delays, marker="o", label=f"{airline} ({flights[airline]:,} flights)")
    axes.set(
        xlabel="month of 2013", ylabel="mean arrival delay, minutes", title="Arrival delays of flights from New York"
    )
    axes.set_xticks(range(1, 13))
    axes.axhline(0, color="grey", linewidth=0.8)
    # Beside the axes: lines cover any place within them in some month.
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
