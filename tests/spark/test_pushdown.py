import functools
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, lit

from structable.spark_bridge.read.pushdown import parse_filter
from structable.spi import AggregateExpression, Aggregation, Field, Storage, TableSpecification, connect
from tests.postgresql.support.shared import fresh_schema
from tests.spark.conftest import Tables, give_up_snapshots
from tests.spark.support.plans import Planned, planned_scans
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, create_runs

# A field, and values in Spark's SQL.
VALUES: dict[str, list[str]] = {
    "name": ["''", "'a'", "'\U0001f600'"],
    "number": ["-1L", "0L", "9223372036854775807L"],
    "flag": ["true", "false"],
    "tiny": ["0Y", "127Y"],
    "small": ["0S", "-32768S"],
    "medium": ["0", "2147483647"],
    "large": ["0L", "9223372036854775807L"],
    "single": ["float(0.0)", "float('-0.0')", "float('NaN')", "float('Infinity')", "float('0.1')"],
    "wide": ["0.0D", "double('-0.0')", "double('NaN')", "5e-324D"],
    "price": ["1.50BD", "-99999999.99BD"],
    "huge": ["0.0000000001BD", "-9999999999999999999999999999.9999999999BD"],
    "text": ["''", "'abc'", "'z\u00e9'", "'a\\'b\"c\\\\d%_'", "'abd\u0001'"],
    "raw": ["X''", "X'00FF00'", "X'61626380'"],
    "day": ["date'0001-01-01'", "date'1582-10-10'", "date'2020-02-29'", "date'9999-12-31'"],
    "instant": [
        "timestamp'2020-02-29 08:30:15.123456Z'",
        "timestamp'0001-01-01 00:00:00Z'",
        "timestamp'1582-10-10 12:00:00Z'",
    ],
    "local": ["timestamp_ntz'2020-02-29 08:30:15.123456'", "timestamp_ntz'1582-10-10 12:00:00'"],
}
NOT_NULL = ("name", "number")


def conditions(field: str) -> list[str]:
    """Return conditions of every kind on a field, which the store decides."""
    made = [f"{field} {operator} {value}" for value in VALUES[field] for operator in ("=", "<=>", "<", "<=", ">", ">=")]
    if field not in NOT_NULL:  # else Spark knows
        made += [f"{field} is null", f"{field} <=> null", f"{field} is not null"]
    if field in ("name", "text"):
        made += [f"startswith({field}, {value})" for value in VALUES[field][1:]]
        made += [f"substring({field}, 1, 5) = {value}" for value in VALUES[field][:3]]
        made += [
            f"substring({field}, 1, 1) = '\U0001f600'",
            f"substring({field}, 1, 3) in ('a', 'z\u00e9', 'abc', 'abd')",
        ]
    if field not in ("single", "wide", "flag"):
        made.append(f"{field} in ({', '.join(VALUES[field])})")
    return made + [f"not ({text})" for text in made]


def pushed(frame: DataFrame) -> str | None:
    """Return the conditions that Spark hands to the store, in the JVM's writing; None if it evaluates some itself."""
    if filters_itself(frame):
        return None
    scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().scan()
    request = scan.getClass().getDeclaredField("request")
    request.setAccessible(True)
    return str(json.loads(request.get(scan).json())["structable.where"])


@pytest.fixture(scope="module", params=["leveldb", "postgresql"])
def everything(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Storage, DataFrame, DataFrame]]:
    """Return a store with a table, that table for Spark, and the same rows as Spark's own."""
    with ExitStack() as stack:
        if request.param == "leveldb":
            url = f"leveldb://{tmp_path_factory.mktemp('pushdown')}/store"
        else:
            url = stack.enter_context(fresh_schema(request.getfixturevalue("postgresql_conninfo"))).url
            stack.callback(give_up_snapshots, spark)
        tables = Tables(spark, url)
        storage = stack.enter_context(connect(tables.url))
        storage.admin.create(EVERYTHING)
        storage.table("everything").upsert_many(ROWS)
        yield storage, tables.read("everything", splits=1), tables.frame(EVERYTHING, ROWS)


@pytest.mark.parametrize("field", VALUES)
def test_a_condition_is_true_of_the_same_rows_in_the_store_and_in_spark(
    everything: tuple[Storage, DataFrame, DataFrame], field: str
) -> None:
    storage, table, native = everything
    tried = conditions(field)
    truths = native.select("name", "number", *(expr(text).alias(f"c{n}") for n, text in enumerate(tried))).collect()
    for number, text in enumerate(tried):
        where = pushed(table.where(text))
        assert where is not None, text
        found = {
            (row.name, row.number) for row in storage.table("everything").scan(where=parse_filter(EVERYTHING, where))
        }
        assert found == {(row["name"], row["number"]) for row in truths if row[f"c{number}"]}, text


def test_columns_compare_in_the_store_as_in_spark(tables: Tables, storage: Storage) -> None:
    kinds = [field for field in EVERYTHING.value_fields if field.name in VALUES]
    others = [replace(field, name=f"other_{field.name}") for field in kinds]
    spec = TableSpecification("pairs", [Field.long("id"), *kinds, *others], ["id"])
    rows = [
        {"id": number, **{field.name: one.get(field.name) for field in kinds}}
        | {f"other_{field.name}": two.get(field.name) for field in kinds}
        for number, (one, two) in enumerate(itertools.product(ROWS, ROWS))
    ]
    storage.admin.create(spec)
    storage.table("pairs").upsert_many(rows)
    table, native = tables.read("pairs"), tables.frame(spec, rows)
    compared = [f"{one.name} {operator} other_{one.name}" for one in kinds for operator in ("=", "<>", "<", "<=")]
    tried = [*compared, *(f"not ({text})" for text in compared)]
    truths = native.select("id", *(expr(text).alias(f"c{n}") for n, text in enumerate(tried))).collect()
    for number, text in enumerate(tried):
        where = pushed(table.where(text))
        assert where is not None, text
        found = {row["id"] for row in storage.table("pairs").scan(where=parse_filter(spec, where))}
        assert found == {row["id"] for row in truths if row[f"c{number}"]}, text
        assert 0 < len(found) < len(rows), text


def tree(random: Random, depth: int) -> str:
    """Return a random condition of the conditions on all fields."""
    if depth == 0 or random.random() < 0.2:
        return random.choice(conditions(random.choice(list(VALUES))))
    joined = f" {random.choice(['and', 'or'])} ".join(
        f"({tree(random, depth - 1)})" for _ in range(random.randint(2, 3))
    )
    return f"not ({joined})" if random.random() < 0.3 else joined


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_are_true_of_the_same_rows(everything: tuple[Storage, DataFrame, DataFrame], seed: int) -> None:
    _, table, native = everything
    trees = [tree(Random(f"{seed} {number}"), 1 + number % 4) for number in range(12)]
    scans = [table.where(text).select(lit(n).alias("n"), "name", "number") for n, text in enumerate(trees)]
    found = {tuple(row) for row in functools.reduce(DataFrame.unionAll, scans).collect()}
    for frame in (native, table):
        columns = [expr(text).alias(f"c{n}") for n, text in enumerate(trees)]
        truths = frame.select("name", "number", *columns).collect()
        assert found == {
            (n, row["name"], row["number"]) for n in range(len(trees)) for row in truths if row[f"c{n}"]
        }, trees


CONDITIONS = [
    "flag",
    "tiny > 0Y",
    "single = float('NaN')",
    "single in (float('NaN'), float('-0.0'))",
    "wide >= 0.0D",
    "not (price <=> 1.50)",
    "text like 'ab%'",
    "text > 'a\\u0000'",
    "day between date'-0044-03-15' and date'12000-01-01'",
    "instant >= timestamp'9999-12-31 23:59:59'",
    "instant > timestamp'-0044-03-15 00:00:00' and instant < timestamp'290000-01-01 00:00:00'",
    "medium not in (0, null)",
    "number > 0 or flag",
    "name = 'a' and number >= 0",
]


def test_scans_with_many_filters_in_one_query(everything: tuple[Storage, DataFrame, DataFrame]) -> None:
    _, table, native = everything
    scans = [table.where(text).select(lit(text).alias("text"), "name", "number") for text in CONDITIONS]
    found = {tuple(row) for row in functools.reduce(DataFrame.unionAll, scans).collect()}
    truths = native.select(
        "name", "number", *(expr(text).alias(f"c{n}") for n, text in enumerate(CONDITIONS))
    ).collect()
    expected = {
        (text, row["name"], row["number"]) for n, text in enumerate(CONDITIONS) for row in truths if row[f"c{n}"]
    }
    assert found == expected


def filters_itself(frame: DataFrame) -> bool:
    """Tell whether Spark evaluates a condition itself, after the scan."""
    return re.search(r"\bFilter ", frame._jdf.queryExecution().executedPlan().toString()) is not None


@pytest.mark.parametrize(
    "condition",
    [
        "app = 'etl'",
        "app = 'etl' and started between 2 and 5",
        "status = 'OK'",
        "status is null",
        "cost > 1.5",
        "status like 'O%'",
        "substring(status, 1, 1) in ('O', 'P')",
        "started in (1, 2, 3)",
        "not (status <=> 'OK')",
        "status <> 'OK'",
        "2 <= started and 'OK' = status",
        "app < status",
        "not (status >= app) or started = 1",
        "started = 1 or cost > 2",
        "started = 1 or (cost > 2 and not (status <=> 'OK' or cost is null))",
        " or ".join(f"cost = {n}" for n in range(150)),
    ],
)
def test_the_store_evaluates_accepted_filters(tables: Tables, storage: Storage, condition: str) -> None:
    create_runs(storage, 10)
    assert not filters_itself(tables.read("runs").where(condition))


@pytest.mark.parametrize(
    "condition",
    [
        "substring(status, 2, 1) = 'K'",
        "substring(status, 1, 1) in ('O', 'OK')",
        "status like '%K'",
        "cost + 1 > 2",
        "started = 1 or cost + 1 > 2",
        "cost in (1, 2)",
        "status <=> app",
        "cost > started",
        "status > 'a\\u0000'",
    ],
)
def test_spark_evaluates_the_rest(tables: Tables, storage: Storage, condition: str) -> None:
    create_runs(storage, 10)
    assert filters_itself(tables.read("runs").where(condition))


def test_scans_of_one_frame_have_their_own_filters(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    frame = tables.read("runs")
    assert frame.where("started < 10").count() == 10
    assert frame.count() == 100
    assert frame.where("started >= 95").unionAll(frame.where("started < 3")).unionAll(frame).count() == 108
    assert frame.where("started < 10").count() == 10


@pytest.fixture
def planned(spark: SparkSession) -> Iterator[list[Planned]]:
    """Return the scans that the coordinator plans from now on."""
    with planned_scans(spark) as seen:
        yield seen


def test_a_query_reads_the_columns_it_uses(tables: Tables, storage: Storage, planned: list[Planned]) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs")
    assert frame.where("cost + 1 > 2 and started > 1").select("status").distinct().count() == 2
    assert frame.groupBy().agg({"cost": "max"}).collect() == [(2.25,)]
    assert frame.count() == 10
    assert len(frame.collect()) == 10
    rows = Aggregation([AggregateExpression.count()])
    assert [one.columns for one in planned] == [("status", "cost"), ("cost",), rows, RUNS.field_names]


def test_a_query_plans_each_scan_once(tables: Tables, storage: Storage, planned: list[Planned]) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs", columns="cost,started")
    assert frame.where("started < 5").join(frame.select("started"), "started").count() == 5
    assert [one.columns for one in planned] == [("started",), ("started",)]


def test_a_filter_on_a_pruned_column_is_not_lost(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 10)
    assert tables.read("runs").where("status is null").select("started").orderBy("started").collect() == [
        (0,),
        (3,),
        (6,),
        (9,),
    ]


def test_a_subquery_has_its_own_filter(tables: Tables, storage: Storage, spark: SparkSession) -> None:
    create_runs(storage, 100)
    tables.read("runs").createOrReplaceTempView("all_runs")
    try:
        query = "select started from all_runs where cost = (select max(cost) from all_runs where started < 50)"
        assert spark.sql(query).collect() == [(49,)]
    finally:
        spark.catalog.dropTempView("all_runs")
