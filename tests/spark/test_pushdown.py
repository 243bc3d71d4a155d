import datetime as dt
import functools
import re
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as pushed
from pyspark.sql.functions import expr, lit

from structable.spark_bridge import registration
from structable.spark_bridge.filters import translate_filter
from structable.spark_bridge.options import ReadOptions
from structable.spi import Filter, Storage, Value, connect
from tests.postgresql.support.shared import fresh_schema
from tests.spark.conftest import Tables, give_up_snapshots
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, UTC, create_runs

# A field, and values as Spark's SQL and as Spark's filters have them.
VALUES: dict[str, dict[str, Value]] = {
    "name": {"''": "", "'a'": "a", "'\U0001f600'": "\U0001f600"},
    "number": {"-1L": -1, "0L": 0, "9223372036854775807L": 2**63 - 1},
    "flag": {"true": True, "false": False},
    "tiny": {"0Y": 0, "127Y": 127},
    "small": {"0S": 0, "-32768S": -32768},
    "medium": {"0": 0, "2147483647": 2**31 - 1},
    "large": {"0L": 0, "9223372036854775807L": 2**63 - 1},
    "single": {
        "float(0.0)": 0.0,
        "float('-0.0')": -0.0,
        "float('NaN')": float("nan"),
        "float('Infinity')": float("inf"),
        "float('0.1')": 0.10000000149011612,
    },
    "wide": {"0.0D": 0.0, "double('-0.0')": -0.0, "double('NaN')": float("nan"), "5e-324D": 5e-324},
    "price": {"1.50BD": Decimal("1.50"), "-99999999.99BD": Decimal("-99999999.99")},
    "huge": {"0.0000000001BD": Decimal("0.0000000001")},
    "text": {"''": "", "'abc'": "abc", "'z\u00e9'": "z\u00e9"},
    "raw": {"X''": b"", "X'00FF00'": b"\x00\xff\x00", "X'61626380'": b"abc\x80"},
    "day": {"date'1582-10-10'": dt.date(1582, 10, 10), "date'9999-12-31'": dt.date(9999, 12, 31)},
    "instant": {
        "timestamp'2020-02-29 08:30:15.123456Z'": dt.datetime(2020, 2, 29, 8, 30, 15, 123456, UTC),
        "timestamp'0001-01-01 00:00:00Z'": dt.datetime(1, 1, 1, tzinfo=UTC),
    },
    "local": {"timestamp_ntz'2020-02-29 08:30:15.123456'": dt.datetime(2020, 2, 29, 8, 30, 15, 123456)},
}


def conditions(field: str) -> dict[str, pushed.Filter]:
    """Return conditions of every kind on a field, by their SQL."""
    column = (field,)
    made: dict[str, pushed.Filter] = {
        f"{field} is null": pushed.IsNull(column),
        f"{field} is not null": pushed.IsNotNull(column),
        f"{field} <=> null": pushed.EqualNullSafe(column, None),
    }
    for text, value in VALUES[field].items():
        made |= {
            f"{field} = {text}": pushed.EqualTo(column, value),
            f"{field} <=> {text}": pushed.EqualNullSafe(column, value),
            f"{field} < {text}": pushed.LessThan(column, value),
            f"{field} <= {text}": pushed.LessThanOrEqual(column, value),
            f"{field} > {text}": pushed.GreaterThan(column, value),
            f"{field} >= {text}": pushed.GreaterThanOrEqual(column, value),
        }
        if isinstance(value, str):
            made[f"startswith({field}, {text})"] = pushed.StringStartsWith(column, value)
    if field not in ("single", "wide"):
        made[f"{field} in ({', '.join(VALUES[field])})"] = pushed.In(column, tuple(VALUES[field].values()))
    return made | {f"not ({text})": pushed.Not(condition) for text, condition in made.items()}


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
    storage, _, native = everything
    tried = conditions(field)
    truths = native.select("name", "number", *(expr(text).alias(f"c{n}") for n, text in enumerate(tried))).collect()
    for number, (text, condition) in enumerate(tried.items()):
        where = translate_filter(EVERYTHING, condition)
        assert where is not None, text
        found = {(row.name, row.number) for row in storage.table("everything").scan(where=where)}
        assert found == {(row["name"], row["number"]) for row in truths if row[f"c{number}"]}, text


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
        "started in (1, 2, 3)",
        "not (status <=> 'OK')",
        "status <> 'OK'",
    ],
)
def test_the_store_evaluates_accepted_filters(tables: Tables, storage: Storage, condition: str) -> None:
    create_runs(storage, 10)
    assert not filters_itself(tables.read("runs").where(condition))


@pytest.mark.parametrize("condition", ["status like '%K'", "cost + 1 > 2", "started = 1 or cost > 2", "cost in (1, 2)"])
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
def planned(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the columns of each scan that the coordinator plans from now on."""
    coordinator = registration.coordinators[spark.sparkContext]
    plan = coordinator.operations["plan"]
    seen: list[tuple[str, ...]] = []

    def observed(options: ReadOptions, columns: tuple[str, ...], where: Filter | None, execution: int | None) -> object:
        seen.append(columns)
        return plan(options, columns, where, execution)

    monkeypatch.setitem(coordinator.operations, "plan", observed)
    return seen


def test_a_query_reads_the_columns_it_uses(tables: Tables, storage: Storage, planned: list[tuple[str, ...]]) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs")
    assert frame.where("cost + 1 > 2 and started > 1").select("status").distinct().count() == 2
    assert frame.groupBy().agg({"cost": "max"}).collect() == [(2.25,)]
    assert frame.count() == 10
    assert len(frame.collect()) == 10
    assert planned == [("started", "status", "cost"), ("cost",), ("app",), RUNS.field_names]


def test_a_query_plans_each_scan_once(tables: Tables, storage: Storage, planned: list[tuple[str, ...]]) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs", columns="cost,started")
    assert frame.where("started < 5").join(frame.select("started"), "started").count() == 5
    assert planned == [("started",), ("started",)]


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
