import functools
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from structable.spi import Storage
from tests.spark.conftest import Tables
from tests.spark.samples import EVERYTHING, ROWS, RUNS, runs

LITERALS = {
    "name": ["''", "'a'", "'\U0001f600'"],
    "number": ["-1L", "0L", "9223372036854775807L"],
    "flag": ["true", "false"],
    "tiny": ["0Y", "127Y", "300"],
    "small": ["0S", "-32768S"],
    "medium": ["0", "2147483647", "3000000000L"],
    "large": ["0L", "-9223372036854775808L"],
    "single": ["float(0.0)", "float('-0.0')", "float('NaN')", "float('Infinity')", "float(0.1)", "0.1D"],
    "wide": ["0.0D", "-0.0D", "double('NaN')", "double('-Infinity')", "5e-324D"],
    "price": ["1.50", "1.5", "-99999999.99", "1.505", "1e20D"],
    "huge": ["0.0000000001", "1"],
    "text": ["''", "'abc'", "'z\u00e9'", "'a\\u0000'"],
    "raw": ["X''", "X'00FF00'", "X'61626380'"],
    "day": ["date'2020-02-29'", "date'0001-01-01'", "date'9999-12-31'", "date'-0044-03-15'", "date'12000-01-01'"],
    "instant": [
        "timestamp'2020-02-29 08:30:15.123456Z'",
        "timestamp'0001-01-01 00:00:00Z'",
        "timestamp'9999-12-31 23:59:59.999999Z'",
        "timestamp'9999-12-31 23:59:59'",
        "timestamp'290000-01-01 00:00:00Z'",
    ],
    "local": ["timestamp_ntz'2020-02-29 08:30:15.123456'", "timestamp_ntz'9999-12-31 23:59:59'"],
}
COMPARISONS = ["{c} = {v}", "{c} <> {v}", "{c} < {v}", "{c} <= {v}", "{c} > {v}", "{c} >= {v}", "{c} <=> {v}"]
NEGATIONS = ["not ({c} <=> {v})", "not ({c} > {v})"]
OTHERS = {
    "text": ["{c} like 'ab%'", "{c} not like 'ab%'", "{c} like '%'", "{c} like '%d%'", "startswith({c}, '')"],
    "name": ["{c} like 'a%'", "{c} in ('a', 'b') and number > 0"],
    "flag": ["{c}", "not {c}"],
    "medium": ["{c} in (0, null)", "{c} not in (0, null)", "{c} > 0 or {c} is null", "{c} = null", "{c} <=> null"],
}


def conditions(column: str) -> list[str]:
    """Return conditions of every kind on a column."""
    values = LITERALS[column]
    made = [form.format(c=column, v=value) for form in (*COMPARISONS, *NEGATIONS) for value in values]
    made += [f"{column} in ({', '.join(values)})", f"{column} not in ({', '.join(values)})"]
    made += [f"{column} is null", f"{column} is not null"]
    return made + [form.format(c=column) for form in OTHERS.get(column, [])]


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Give a table, and the same rows in Spark's own hands."""
    from structable.spi import connect

    tables = Tables(spark, f"leveldb://{tmp_path_factory.mktemp('pushdown')}/store")
    with connect(tables.url) as storage:
        storage.admin.create(EVERYTHING)
        storage.table("everything").upsert_many(ROWS)
        native = tables.frame(EVERYTHING, ROWS).cache()
        yield tables.read("everything"), native
        native.unpersist()


@pytest.mark.parametrize("column", LITERALS)
def test_a_filter_finds_the_same_rows_pushed_down_or_not(everything: tuple[DataFrame, DataFrame], column: str) -> None:
    table, native = everything
    tried = conditions(column)

    def found(frame: DataFrame) -> dict[str, list[tuple[str, int]]]:
        # One query with a scan for each condition: that they do not disturb one another is part of the test.
        scans = [frame.where(text).select(lit(text).alias("text"), "name", "number") for text in tried]
        rows = functools.reduce(DataFrame.unionAll, scans).collect()
        return {text: sorted((row.name, row.number) for row in rows if row.text == text) for text in tried}

    assert found(table) == found(native)


def plan_of(frame: DataFrame) -> str:
    """Return a query's physical plan as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize(
    "condition",
    [
        "app = 'etl'",
        "app = 'etl' and started between 2 and 5",
        "status = 'OK'",
        "status is null",
        "cost > 1.5",
        "status like 'O%'",
        "started in (1, 2, 3)",
        "not (status <=> 'OK')",
        "status <> 'OK'",
    ],
)
def test_the_store_evaluates_what_it_takes_over(tables: Tables, storage: Storage, condition: str) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(10))
    assert "Filter" not in plan_of(tables.read("runs").where(condition))


@pytest.mark.parametrize("condition", ["status like '%K'", "cost + 1 > 2", "started = 1 or cost > 2", "cost in (1, 2)"])
def test_spark_evaluates_the_rest(tables: Tables, storage: Storage, condition: str) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(10))
    assert "Filter" in plan_of(tables.read("runs").where(condition))


def test_scans_of_one_frame_have_their_own_filters(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(100))
    frame = tables.read("runs")
    assert frame.where("started < 10").count() == 10
    assert frame.count() == 100
    assert frame.where("started >= 95").unionAll(frame.where("started < 3")).unionAll(frame).count() == 108
    assert frame.where("started < 10").count() == 10


def test_a_filter_on_a_pruned_column_is_not_lost(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(10))
    assert tables.read("runs").where("status is null").select("started").orderBy("started").collect() == [
        (0,),
        (3,),
        (6,),
        (9,),
    ]


def test_a_subquery_has_its_own_filter(tables: Tables, storage: Storage, spark: SparkSession) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(100))
    tables.read("runs").createOrReplaceTempView("all_runs")
    try:
        query = "select started from all_runs where cost = (select max(cost) from all_runs where started < 50)"
        assert spark.sql(query).collect() == [(49,)]
    finally:
        spark.catalog.dropTempView("all_runs")
