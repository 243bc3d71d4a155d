"""Limits, top-n and aggregates: what reaches Spark, and results with and without pushdown."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from structable.spi import Field, Range, Storage, TableSpecification, Value
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import EVERYTHING, ROWS, create_runs, runs

LEVELS = ("all", "filters", "none")


@pytest.fixture(autouse=True)
def static_plans(spark: SparkSession) -> Iterator[None]:
    """Let plans be what they are from the beginning, with the numbers of their rows."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.set("spark.sql.adaptive.enabled", "true")


def scan(frame: DataFrame) -> str:
    """Return what `explain` shows of the only scan."""
    (line,) = [line for line in str(frame._jdf.queryExecution().executedPlan()).splitlines() if "BatchScan" in line]
    return line


def rows_read(frame: DataFrame) -> int:
    """Return how many rows the only scan of a collected frame gave to Spark."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(leaf.metrics().apply("numOutputRows").value())


@every_store
def test_a_limit_ends_each_split(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3000)
    frame = tables.read("runs", splits=2).where("started >= 1000 and (cost < 300 or status is null)")
    limited = frame.limit(7)
    assert "PushedLimit: 7" in scan(limited)
    assert len(set(limited.collect())) == 7
    assert rows_read(limited) <= 14
    assert set(limited.collect()) <= set(frame.collect())
    assert frame.limit(10_000).count() == frame.count()
    assert len(frame.offset(3).limit(4).collect()) == 4
    for level in LEVELS[1:]:
        other = tables.read("runs", pushdown=level).limit(7)
        assert "PushedLimit" not in scan(other)
        assert len(other.collect()) == 7


def test_a_limit_stays_behind_the_filters_of_spark(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs").where("started >= 10 and cost + 1 > 200").limit(3)
    assert "PushedLimit" not in scan(frame)
    assert [row.started > 790 for row in frame.collect()] == [True] * 3
    assert "PushedLimit" not in scan(tables.read("runs").distinct().limit(3))


def test_what_comes_behind_a_limit_sees_no_more_rows(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs", splits=2)
    last = frame.orderBy(f.col("started").desc()).limit(3).collect()
    assert [row.started for row in last] == [999, 998, 997]
    assert frame.limit(10).orderBy(f.col("started").desc()).count() == 10
    assert frame.limit(10).where("started >= 0").count() == 10
    assert frame.limit(2).union(frame).count() == 1002


@pytest.mark.parametrize(
    ("order", "pushed"),
    [
        ("app, started", True),
        ("app", True),
        ("app desc, started desc", True),
        ("status", True),
        ("status desc nulls first", True),
        ("status asc nulls last", True),
        ("started", False),
        ("app, started desc", False),
        ("app, status", False),
        ("cost", False),
        ("started + 1", False),
        ("status, app", False),
    ],
)
@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_the_first_rows_in_order(tables: Tables, storage: Storage, order: str, *, pushed: bool) -> None:
    create_runs(storage, 400)
    storage.table("runs").upsert_many(runs(400, app="\U0001f600"))
    storage.table("runs").upsert_many(runs(400, app="\uffff"))
    found = []
    for level in LEVELS:
        frame = tables.read("runs", pushdown=level, splits=3).where("started > 3")
        frame.createOrReplaceTempView("ordered_runs")
        tables.session.sql(f"select * from ordered_runs order by {order} limit 5").createOrReplaceTempView("first_runs")
        first = tables.session.table("first_runs")
        assert ("PushedTopN" in scan(first)) == (pushed and level == "all")
        names = [name for name in ("app", "started", "status", "cost") if name in order]
        found.append([tuple(row[name] for name in names) for row in first.collect()])
    assert found[0] == found[1] == found[2]


def test_the_first_rows_of_a_table_made_anew_with_its_key_in_another_order(tables: Tables, storage: Storage) -> None:
    fields = [Field.int("a"), Field.int("b")]
    rows: list[dict[str, Value]] = [{"a": a, "b": 100 - a} for a in range(50)]
    storage.admin.create(TableSpecification("pairs", fields, ["a", "b"]))
    storage.table("pairs").upsert_many(rows)
    frame = tables.read("pairs", splits=1)
    first = frame.orderBy("a").limit(3)
    assert [row.a for row in first.collect()] == [0, 1, 2]
    storage.admin.drop("pairs")
    storage.admin.create(TableSpecification("pairs", fields, ["b", "a"]))
    storage.table("pairs").upsert_many(rows)
    assert [row.a for row in first.collect()] == [0, 1, 2]
    assert [row.a for row in frame.orderBy("a").limit(3).collect()] == [0, 1, 2]


@every_store
def test_aggregates_are_computed_where_the_rows_are(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3000)
    text = "count(*) as rows", "count(cost) as costs", "count(status)", "min(started)", "max(started)", "max(status)"
    for condition in ("true", "started >= 100", "app = 'etl' and (started = 3 or cost < 2)", "app = 'nothing'"):
        found = []
        for level in LEVELS:
            frame = tables.read("runs", pushdown=level, splits=2).where(condition)
            totals = frame.selectExpr(*text)
            assert ("PushedAggregates: [COUNT(*), COUNT(cost), " in scan(totals)) == (level == "all")
            found.append(totals.collect())
            assert level != "all" or rows_read(totals) <= 2
        assert found[0] == found[1] == found[2]
    assert tables.read("runs").count() == 3000


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_aggregates_of_every_type(tables: Tables, storage: Storage) -> None:
    names = [name for name in EVERYTHING.field_names if name not in ("single", "wide")]
    storage.admin.create(EVERYTHING)
    text = [f"{function}({name})" for name in names for function in ("min", "max")]
    text += [f"count({name})" for name in EVERYTHING.field_names]

    def totals(level: str) -> str:
        frame = tables.read("everything", pushdown=level, splits=1).selectExpr(*text)
        assert ("PushedAggregates" in scan(frame)) == (level == "all")
        return str(frame.toArrow().to_pylist())

    assert totals("all") == totals("none")
    storage.table("everything").upsert_many(ROWS)
    assert totals("all") == totals("none")
    storage.table("everything").delete_all(Range.all())
    storage.table("everything").upsert_many(ROWS[-3:])
    assert totals("all") == totals("none")


@pytest.mark.parametrize(
    "text",
    [
        "max(cost)",
        "count(distinct app)",
        "max(started + 1)",
        "sum(cost)",
        "count(*) filter (where cost > 3)",
    ],
)
def test_other_aggregates_stay_with_spark(tables: Tables, storage: Storage, text: str) -> None:
    create_runs(storage, 100)
    frames = [tables.read("runs", pushdown=level).selectExpr(text, "count(*)") for level in LEVELS]
    assert not any("PushedAggregates" in str(frame._jdf.queryExecution().executedPlan()) for frame in frames)
    assert frames[0].collect() == frames[2].collect()


def test_filters_of_spark_keep_aggregates_there(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    frame = tables.read("runs")
    filtered = frame.where("cost + 1 > 2").selectExpr("count(*)")
    assert "PushedAggregates" not in scan(filtered)
    assert filtered.collect() == [(95,)]
    assert frame.where("cost + 1 > 2").limit(3).count() == 3
    assert frame.limit(3).count() == 3


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_a_table_without_a_key(tables: Tables, storage: Storage) -> None:
    notes = TableSpecification("notes", [Field.long("n"), Field.string("text")], options={"write-mode": "append-only"})
    storage.admin.create(notes)
    frame = tables.session.createDataFrame([(n, f"note {n % 7}") for n in range(100)], "n bigint, text string")
    tables.write(frame, "notes")
    table = tables.read("notes")
    assert table.selectExpr("count(*)", "count(text)").collect() == [(100, 100)]
    assert table.where("n = 3 or text = 'note 1'").count() == 16
    assert table.orderBy("n").limit(2).collect() == [(0, "note 0"), (1, "note 1")]


@pytest.mark.parametrize("level", LEVELS)
def test_the_option_pushdown(tables: Tables, storage: Storage, level: str) -> None:
    create_runs(storage, 100)
    frame = tables.read("runs", pushdown=level.upper()).where("app = 'etl' and (started < 5 or cost > 24)")
    assert ("PushedFilters" in scan(frame)) == (level != "none")
    assert frame.select("started").count() == 8
    assert "started#" not in scan(tables.read("runs", pushdown=level).select("cost"))
    with pytest.raises(Exception, match="the option pushdown is 'some'; allowed are all, filters, none"):
        tables.read("runs", pushdown="some")


def test_other_kinds_of_reads_give_the_same(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    frame = tables.read("runs", splits=2)
    assert len(frame.limit(3).rdd.collect()) == 3
    assert len(list(frame.orderBy("app", "started").limit(3).toLocalIterator())) == 3
    cached = frame.limit(5).cache()
    try:
        assert cached.count() == 5
        assert cached.where("started >= 0").count() == 5
        assert frame.count() == 100
    finally:
        cached.unpersist()
