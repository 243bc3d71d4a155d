from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

from structable.spi import Storage, TableSpecification, connect
from tests.spark.conftest import Tables, complete, every_store, give_up_snapshots, rows_of
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, create_runs, runs


@every_store
def test_every_type_comes_out_as_it_went_in(tables: Tables, storage: Storage) -> None:
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(ROWS)
    # As text, so that NaN equals itself and -0.0 does not equal 0.0.
    assert repr(rows_of(tables.read("everything"), EVERYTHING)) == repr(complete(EVERYTHING, ROWS))


def test_the_schema_is_the_tables(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    schema = tables.read("runs").schema
    assert schema.simpleString() == "struct<app:string,started:bigint,status:string,cost:double>"
    assert [field.nullable for field in schema.fields] == [False, False, True, True]


def test_an_empty_table_has_no_rows(tables: Tables, storage: Storage) -> None:
    storage.admin.create(EVERYTHING)
    assert tables.read("everything").collect() == []


@every_store
def test_columns_prunes_and_orders(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3)
    frame = tables.read("runs", columns="cost, started")
    assert frame.columns == ["cost", "started"]
    assert [tuple(row) for row in frame.orderBy("started").collect()] == [(0.0, 0), (0.25, 1), (0.5, 2)]


def test_a_schema_prunes_too(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3)
    frame = tables.reader("runs").schema("started bigint, status string").load()
    assert sorted(frame.collect()) == [(0, None), (1, "OK"), (2, "OK")]


@every_store
def test_splits_become_partitions_and_hold_each_row_once(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 5000)
    frame = tables.read("runs", splits=3)
    assert 2 <= frame.rdd.getNumPartitions() <= 4
    assert sorted(row.started for row in frame.collect()) == list(range(5000))


@every_store
def test_a_table_joins_and_aggregates_like_any_other(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many([*runs(100), *runs(50, app="web")])
    frame = tables.read("runs")
    joined = frame.where("app = 'etl'").alias("a").join(frame.where("app = 'web'").alias("b"), "started")
    assert joined.count() == 50
    assert {row["app"]: row["count"] for row in frame.groupBy("app").count().collect()} == {"etl": 100, "web": 50}


def test_a_view_in_sql(tables: Tables, storage: Storage, spark: SparkSession) -> None:
    create_runs(storage, 10)
    spark.sql(f"CREATE TEMPORARY VIEW some_runs USING structable OPTIONS (url '{tables.url}', table 'runs')")
    try:
        assert spark.sql("SELECT count(*) AS n FROM some_runs WHERE started >= 4").collect() == [(6,)]
        assert spark.sql("SELECT count(*) AS n FROM some_runs").collect() == [(10,)]
    finally:
        spark.catalog.dropTempView("some_runs")


@every_store
def test_an_old_row_reads_null_in_a_new_field(tables: Tables, storage: Storage) -> None:
    small = TableSpecification("runs", RUNS.fields[:2], RUNS.primary_key)
    storage.admin.create(small)
    storage.table("runs").upsert({"app": "etl", "started": 1})
    before = tables.read("runs")
    storage.admin.create_or_update(RUNS)
    assert [tuple(row) for row in tables.read("runs").collect()] == [("etl", 1, None, None)]
    assert [tuple(row) for row in before.collect()] == [("etl", 1)]


@every_store
def test_a_table_that_changed_since_load_is_an_error(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    frame = tables.read("runs")
    storage.admin.drop("runs")
    storage.admin.create(TableSpecification("runs", [*RUNS.fields[:2]], RUNS.primary_key))
    with pytest.raises(AnalysisException, match="field 'status': is not a field; the fields are app, started"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "absent"}, "TableNotFoundError: table 'absent' does not exist"),
        ({"columns": "app,colour"}, "table 'runs', field 'colour': is not a field"),
        ({"splits": "none"}, "the option splits is 'none'"),
        ({"colour": "red"}, "has no option 'colour'"),
        ({"path": "/somewhere"}, "give the options url and table"),
        ({"url": "nothing://here"}, "no backend for nothing:// is installed"),
        ({"url": ""}, "the option url is missing"),
    ],
)
def test_a_wrong_read_fails_at_load_in_one_line(
    tables: Tables, storage: Storage, options: dict[str, str], message: str
) -> None:
    storage.admin.create(RUNS)
    with pytest.raises(AnalysisException) as caught:
        tables.read(**{"table": "runs", **options})
    assert caught.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert message in str(caught.value).splitlines()[0]
    assert "Traceback" not in str(caught.value)


def test_columns_and_another_schema_contradict(tables: Tables, storage: Storage) -> None:
    storage.admin.create(RUNS)
    frame = tables.reader("runs", columns="app").schema("started bigint").load()
    with pytest.raises(AnalysisException, match="give only one of the two"):
        frame.collect()


def test_a_store_of_one_process_cannot_be_read(spark: SparkSession) -> None:
    with connect("memory://spark") as storage:
        storage.admin.create_or_update(RUNS)
        storage.table("runs").upsert_many(runs(10))
        with pytest.raises((AnalysisException, PythonException), match="the store lives in one process"):
            Tables(spark, "memory://spark").read("runs").collect()


@pytest.mark.parametrize("place", ["url", "option"])
def test_spark_shows_no_password(spark: SparkSession, postgresql_url: str, place: str) -> None:
    with connect(postgresql_url) as storage:
        storage.admin.create(RUNS)
    parts = urlsplit(postgresql_url)
    password = unquote(parts.password or "")
    if not password:
        pytest.skip("the server of the tests was given without a password in its URL")
    options = {"password": password} if place == "option" else {}
    without = parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}").geturl()
    tables = Tables(spark, without if options else postgresql_url)
    frame = tables.read("runs", **options)
    query = frame.where("started > 1").join(frame, "app")._jdf.queryExecution()
    assert query.executedPlan().toString()
    give_up_snapshots(spark)
    shown = [query.toString(), query.executedPlan().toJSON(), query.analyzed().toJSON()]
    for schema, problem in (("app string, nope int", "nope"), ("app string, started bigint, status string", "absent")):
        table = "absent" if problem == "absent" else "runs"
        with pytest.raises(AnalysisException, match=problem) as caught:
            tables.write(spark.createDataFrame([], schema), table, **options)
        shown.append(str(caught.value))
    assert [text for text in shown if password in text] == []
