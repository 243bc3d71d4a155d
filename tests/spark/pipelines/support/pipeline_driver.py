"""A Spark application that runs a pipeline over two stores until all is read, or until it is killed after a commit.

Prints the table of each write job and join step that it committed. Usage: pipeline_driver.py SETTINGS, JSON with keys

- `folder`: where the files arrive, and the checkpoint and the sink's files are;
- `leveldb` and `postgresql`: the URLs of the stores;
- `killed_after`: the number of the commit after which the process kills itself; 0 for none.
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from structable.spark_bridge import TableRef
from structable.spark_bridge.coordinator import write_jobs
from structable.spark_bridge.joins.failpoints import failpoints
from structable.spark_bridge.pipelines import JoinWindow, Pipeline
from structable.spi import CommitResult, Field, StagedWrite, Storage, TableSpecification, WriteJob

SCHEMAS = {
    "changed": "id string, name string",
    "viewed": "id string, n bigint",
    "asked": "n bigint, place int",
    "ordered": "id bigint, product string",
    "priced": "product string, title string",
    "shown": "ad string, at timestamp, place int",
    "clicked": "ad string, clicked timestamp",
}
PROFILES = TableSpecification("profiles", [Field.string("id"), Field.string("name")], ["id"])
VIEWS = TableSpecification("views", [Field.long("n"), Field.string("id"), Field.string("name")], ["n"])
ASKED = TableSpecification("asked", [Field.long("n"), Field.int("place"), Field.string("name")], ["n"])
FED = {"changelog-producer": "lookup"}
ORDERS = TableSpecification("orders", [Field.long("id"), Field.string("product")], ["id"], ["product"], FED)
PRODUCTS = TableSpecification("products", [Field.string("product"), Field.string("title")], ["product"], options=FED)
MET = TableSpecification("met", [Field.string("ad"), Field.int("place")], ["ad", "place"])


def kill_after(commits: int) -> None:
    """Print a line after each commit, and kill this process after the last of them."""
    commit, numbers = write_jobs.commit_with_retries, itertools.count(1)

    def tell(table: str) -> None:
        print(f"committed {table}", flush=True)
        if next(numbers) == commits:
            os.kill(os.getpid(), signal.SIGKILL)

    def told(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> tuple[CommitResult, int]:
        result = commit(storage, job, staged)
        if result[0].applied and staged:
            tell(job.table)
        return result

    write_jobs.commit_with_retries = told
    failpoints["positions_recorded"] = lambda: tell("titled")


def declared(settings: dict[str, Any]) -> Pipeline:
    """Return the pipeline: changed -> profiles; viewed with profiles -> views; asked with views -> asked, and files.

    And ordered -> orders, priced -> products, both joined in titled; shown with clicked -> met.
    """
    folder = Path(settings["folder"])

    def load(name: str) -> Any:  # noqa: ANN401 - a function of a session
        return lambda spark: spark.readStream.schema(SCHEMAS[name]).json(str(folder / name))

    def write(frame: DataFrame, batch: int) -> None:
        rows = sorted((tuple(row) for row in frame.collect()), key=str)
        (folder / "sink" / f"{batch}.json").write_text(json.dumps(rows))

    pipeline = Pipeline("killed")
    profiles = pipeline.table("profiles", TableRef(settings["postgresql"], "profiles"))
    views = pipeline.table("views", TableRef(settings["leveldb"], "views"))
    results = pipeline.table("results", TableRef(settings["postgresql"], "asked"))
    questions = pipeline.source("asked", load("asked"), key="n", partitions=2)
    answers = questions.join_table(views, "n", columns="name", how="left")
    answers.send_update_to(results, default={}, unordered=True, name="answer").sink("files", write)
    viewed = pipeline.source("viewed", load("viewed"), key="id", partitions=2)
    named = viewed.join_table(profiles, "id", columns="name").partition_by("n")
    named.send_to(views, unordered=True, name="view")
    pipeline.source("changed", load("changed"), key="id", partitions=2).send_to(profiles, name="change")

    orders = pipeline.table("orders", TableRef(settings["leveldb"], "orders"))
    products = pipeline.table("products", TableRef(settings["postgresql"], "products"))
    select, result = {"title": "right.title"}, TableRef(settings["postgresql"], "titled")
    pipeline.foreign_key_join("titled", orders, products, ["product"], select=select, result=result)
    pipeline.source("ordered", load("ordered")).send_to(orders, name="order")
    pipeline.source("priced", load("priced")).send_to(products, name="price")

    met = pipeline.table("met", TableRef(settings["leveldb"], "met"))
    shown = pipeline.source("shown", load("shown"), key="ad", partitions=2)
    clicked = pipeline.source("clicked", load("clicked"), key="ad", partitions=2)
    window = JoinWindow("at", "clicked", "0 seconds", "10 minutes", "1 hour", "1 hour")
    answered = shown.join(clicked, "ad", window=window).map(lambda frame: frame.select("ad", "place"))
    answered.send_to(met, unordered=True, name="meet")
    return pipeline


def main() -> None:
    settings = json.loads(sys.argv[1])
    kill_after(settings["killed_after"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", settings["java"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    declared(settings).run_available(spark, f"{settings['folder']}/checkpoint")
    print("ended", flush=True)


if __name__ == "__main__":
    main()
