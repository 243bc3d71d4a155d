"""What tests ask of a cluster: functions that it calls in its process, on a table of some thousand rows."""

from __future__ import annotations

import random
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from structable.spark_bridge import TableRef, lookup_join
from structable.spi import Field, TableSpecification, Value, connect
from tests.spark.conftest import Tables
from tests.spark.support.catalogs import catalog_of, rows
from tests.spark.support.plans import planned_scans
from tests.spark.test_lookup_joins import HOW, joined_plainly, keys, sorted_rows
from tests.spark.test_pushdown_parts import scan
from tests.spark.test_query_snapshots import move

COUNT = 4000
LIMIT = 13
GRACE = 0.1  # seconds
ITEMS = TableSpecification(
    "items", [Field.long("k"), Field.string("v"), Field.int("n"), Field.string("pad")], ["k"], ["v"]
)
KEY = "TBLPROPERTIES ('primary-key' = 'k')"


def items() -> list[dict[str, Value]]:
    """Return rows that are large enough for several splits."""
    chance = random.Random(7)
    return [
        {"k": k, "v": f"v{k % 7}" if k % 5 else None, "n": k % 11, "pad": chance.randbytes(60).hex()}
        for k in range(COUNT)
    ]


ROWS: list[tuple[Any, ...]] = [tuple(row.values()) for row in items()]


QUERIES = {
    "select * from {} where k >= 1500 and (n < 3 or v is null)": "PushedFilters",
    "select k from {} where v in ('v1', 'v3') and not (n = 2 or n > 8) or v like 'v6%'": "PushedFilters",
    "select k, pad from {} where k > 100 and n <> 7 order by k desc limit 9": "PushedTopN",
    "select v from {} order by v desc nulls first limit 900": "PushedTopN",
    "select count(*), count(v), min(k), max(k), min(v), max(v) from {} where n <> 3": "PushedAggregates",
}


def answers(frame: DataFrame, pushed: bool) -> dict[str, list[str]]:
    """Return the results of the queries on a frame of the rows."""
    frame.createOrReplaceTempView("asked")
    results = {}
    for text, part in QUERIES.items():
        query = frame.sparkSession.sql(text.format("asked"))
        assert not pushed or part in scan(query)
        results[text] = sorted_rows(query)
    return results


def plain_answers() -> dict[str, list[str]]:
    return answers(Tables(SparkSession.active(), "").frame(ITEMS, items()), pushed=False)


def pushed_answers(url: str) -> dict[str, list[str]]:
    return answers(Tables(SparkSession.active(), url).read("items", splits=4, graceSeconds=GRACE), pushed=True)


def limited(url: str) -> list[tuple[object, ...]]:
    """Return rows of a limit behind a filter."""
    limit = Tables(SparkSession.active(), url).read("items", splits=4).where("n > 4").limit(LIMIT)
    assert f"PushedLimit: {LIMIT}" in scan(limit)
    return [tuple(row) for row in limit.collect()]


def rows_of_both(url: str) -> list[int]:
    """Return the ids of two tables, and have a row moved after each plan of a scan."""
    tables = Tables(SparkSession.active(), url)
    left, right = (tables.read(name, splits=3, graceSeconds=GRACE) for name in ("left", "right"))
    with connect(url) as storage, planned_scans(tables.session, lambda: move(storage)) as planned:
        ids = [row.id for row in left.union(right).select("id", "pad").collect()]
    assert len(planned) == 2
    return ids


def counts_of_both(url: str) -> tuple[int, int, int]:
    """Return how many rows two tables have by subqueries, and one has in a self-join, and by a subquery."""
    tables = Tables(SparkSession.active(), url)
    for name in ("left", "right"):
        tables.read(name, splits=3, graceSeconds=GRACE).createOrReplaceTempView(f"{name}_rows")
    query = """
        select (select count(distinct cents + id) from left_rows) +
            (select count(distinct cents + id) from right_rows) as all_rows,
            count(*) as joined, max((select count(distinct id * 2) from left_rows)) as left_rows
        from left_rows one join left_rows other on one.id = other.id
    """
    with connect(url) as storage, planned_scans(tables.session, lambda: move(storage)) as planned:
        [row] = tables.session.sql(query).collect()
    assert len({one.execution for one in planned}) == 1
    return row.all_rows, row.joined, row.left_rows


def joined(url: str, *, plainly: bool) -> list[str]:
    """Return the rows of all kinds of look-up joins, or of plain ones."""
    tables = Tables(SparkSession.active(), url)
    more = tables.session.range(0, 2 * COUNT, 3).selectExpr("'etl'", "id", "cast(id as int)", "null")
    frame, on = keys(tables.session).union(more), {"b": "started", "a": "app"}
    kinds = [
        joined_plainly(tables, frame, how)
        if plainly
        else lookup_join(frame, TableRef(url, "runs"), on, {"status": "state"}, how)
        for how in HOW
    ]
    named = [kind.withColumn("how", lit(how)) for how, kind in zip(HOW, kinds, strict=True)]
    return sorted_rows(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), named))


def run_sql(url: str, *statements: str) -> list[list[tuple[object, ...]]]:
    """Return the rows of statements, in which `app` is the catalog."""
    spark = SparkSession.active()
    with catalog_of(spark, url, splits=3, graceSeconds=GRACE) as name:
        return [rows(spark, statement.replace("app.", f"{name}.")) for statement in statements]


def save(url: str, query: str, table: str, mode: str) -> None:
    """Save the rows of a query by `saveAsTable`."""
    spark = SparkSession.active()
    with catalog_of(spark, url, splits=3, graceSeconds=GRACE) as name:
        frame = spark.sql(query.replace("app.", f"{name}."))
        frame.write.mode(mode).option("primary-key", "k").saveAsTable(f"{name}.{table}")
