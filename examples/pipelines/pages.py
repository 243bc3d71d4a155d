"""The pipeline: profiles change, pages are viewed, and each view is stored with the profile of its visitor.

`python -m examples.pipelines.pages FOLDER URL` runs it on what has arrived in the folder; `structable plan` takes
`examples.pipelines.pages:example`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from structable.spark_bridge import TableRef
from structable.spark_bridge.pipelines import Pipeline
from structable.spi import Field, TableSpecification

TABLES = (
    TableSpecification("profiles", [Field.string("visitor"), Field.string("name"), Field.int("version")], ["visitor"]),
    TableSpecification(
        "views", [Field.long("view"), Field.string("visitor"), Field.string("page"), Field.string("name")], ["view"]
    ),
    TableSpecification(
        "visitors", [Field.string("visitor"), Field.string("last_page"), Field.long("view")], ["visitor"]
    ),
)


def pages(folder: Path, url: str) -> Pipeline:
    """Declare the pipeline on files that arrive in a folder, and on the tables of a store."""

    def arriving(name: str, schema: str) -> Callable[[SparkSession], DataFrame]:
        def load(spark: SparkSession) -> DataFrame:
            source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
            return source.json(str(folder / name))

        return load

    pipeline = Pipeline("pages")
    profiles, views, visitors = (pipeline.table(spec.name, TableRef(url, spec.name)) for spec in TABLES)
    changed = pipeline.source(
        "profile_changes",
        arriving("profiles", "visitor string, name string, version int"),
        key="visitor",
        partitions=2,
        order="version",
    )
    changed.send_to(profiles, name="keep_profiles")
    viewed = pipeline.source(
        "page_views",
        arriving("views", "view bigint, visitor string, page string"),
        key="visitor",
        partitions=2,
        order="view",
    )
    viewed.map(lambda df: df.withColumnRenamed("page", "last_page"), name="last_pages").send_update_to(
        visitors, default={}, name="keep_last_pages"
    )
    named = viewed.join_table(profiles, "visitor", columns="name", how="left", name="named_views")
    named.send_to(views, name="keep_views")
    return pipeline


example = pages(Path("/var/spool/pages"), "leveldb:///var/lib/pages")


def run(folder: Path, url: str) -> None:
    """Run the pipeline until it has read all files that are there."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pages")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    pages(folder, url).run_available(spark, str(folder / "checkpoint"))
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
