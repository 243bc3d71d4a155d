"""Operations that need a catalog of Spark, or would fill columns with nulls, are refused before anything is written."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from structable.spi import Storage
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import RUNS, create_runs, runs


@pytest.fixture(autouse=True)
def old_rows(storage: Storage) -> None:
    create_runs(storage, 4)


@pytest.fixture
def frame(tables: Tables) -> DataFrame:
    return tables.frame(RUNS, runs(1, first=100))


def stored(storage: Storage) -> list[dict[str, object]]:
    return [dict(row) for row in storage.table("runs").scan()]


def refused(spark: SparkSession, storage: Storage, write: Callable[[], object], message: str) -> None:
    before = stored(storage), [table.name for table in spark.catalog.listTables()]
    with pytest.raises(AnalysisException, match=message) as caught:
        write()
    assert caught.value.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    assert "nothing was written" in str(caught.value)
    assert (stored(storage), [table.name for table in spark.catalog.listTables()]) == before


NO_CATALOG = r'catalog cannot hold a structable table.*df.write.format\("structable"\)'


@pytest.mark.parametrize("save_mode", ["errorifexists", "ignore", "append", "overwrite"])
def test_save_as_table_is_refused(
    tables: Tables, storage: Storage, spark: SparkSession, frame: DataFrame, save_mode: str
) -> None:
    write = tables.writer(frame, "runs").mode(save_mode)
    refused(spark, storage, lambda: write.saveAsTable("named"), NO_CATALOG)


@every_store
def test_save_as_table_is_refused_on_every_store(
    tables: Tables, storage: Storage, spark: SparkSession, frame: DataFrame
) -> None:
    write = tables.writer(frame, "runs").mode("overwrite")
    refused(spark, storage, lambda: write.saveAsTable("named"), NO_CATALOG)


@pytest.mark.parametrize("verb", ["create", "replace", "createOrReplace"])
def test_write_to_a_new_name_is_refused(
    tables: Tables, storage: Storage, spark: SparkSession, frame: DataFrame, verb: str
) -> None:
    write = frame.writeTo("named").using("structable").option("url", tables.url).option("table", "runs")
    if verb == "replace":
        # The replaced table must exist, in any format.
        spark.sql("CREATE TABLE IF NOT EXISTS named (app string) USING parquet")
    try:
        refused(spark, storage, getattr(write, verb), NO_CATALOG)
    finally:
        spark.sql("DROP TABLE IF EXISTS named")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE named USING structable OPTIONS ({place})",
        "CREATE TABLE IF NOT EXISTS named (app string, started bigint) USING structable OPTIONS ({place})",
        "CREATE TABLE named USING STRUCTABLE OPTIONS ({place}) AS SELECT 'etl' AS app, 100L AS started",
        "CREATE OR REPLACE TABLE named USING structable OPTIONS ({place}) AS SELECT 'etl' AS app, 100L AS started",
    ],
)
def test_create_table_is_refused(tables: Tables, storage: Storage, spark: SparkSession, statement: str) -> None:
    text = statement.format(place=f"url '{tables.url}', table 'runs'")
    refused(spark, storage, lambda: spark.sql(text), NO_CATALOG)


def test_tables_of_other_formats_are_not_touched(spark: SparkSession, frame: DataFrame) -> None:
    try:
        frame.write.format("parquet").saveAsTable("named")
        spark.sql("INSERT INTO named (app, started) VALUES ('etl', 101L)")
        assert spark.table("named").count() == 2
    finally:
        spark.sql("DROP TABLE IF EXISTS named")


@pytest.fixture
def view(tables: Tables, spark: SparkSession) -> Iterator[str]:
    tables.read("runs").createOrReplaceTempView("some_runs")
    yield "some_runs"
    spark.catalog.dropTempView("some_runs")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO some_runs (app, started, cost) VALUES ('etl', 1L, 9.0D)",
        "INSERT INTO some_runs BY NAME SELECT 'etl' AS app, 1L AS started, 9.0D AS cost",
        "FROM some_runs INSERT INTO some_runs SELECT * INSERT INTO some_runs (app, started, cost) SELECT app, 1L, cost",
    ],
)
@every_store
def test_an_insertion_that_leaves_out_columns_is_refused(
    storage: Storage, spark: SparkSession, view: str, statement: str
) -> None:
    refused(spark, storage, lambda: spark.sql(statement), "fill up with nulls: status;.*Name all columns")


def test_appending_to_a_view_without_all_columns_is_refused(
    storage: Storage, spark: SparkSession, view: str, frame: DataFrame
) -> None:
    partial = frame.select("app", "started")
    refused(spark, storage, lambda: partial.writeTo(view).append(), "fill up with nulls: status, cost;")


@pytest.mark.parametrize(
    "values",
    [
        "VALUES ('etl', 1L, NULL, 9.0D)",
        "(cost, app, status, started) VALUES (9.0D, 'etl', NULL, 1L)",
        "SELECT 'etl', 1L, CAST(NULL AS string), 9.0D",
        "BY NAME SELECT 9.0D AS cost, NULL AS status, 1L AS started, 'etl' AS app",
    ],
)
def test_an_insertion_of_all_columns_writes_the_nulls_it_has(
    storage: Storage, spark: SparkSession, view: str, values: str
) -> None:
    spark.sql(f"INSERT INTO {view} {values}")
    assert stored(storage)[1] == {"app": "etl", "started": 1, "status": None, "cost": 9.0}


@every_store
def test_insert_overwrite_and_insert_into_write_the_table(
    storage: Storage, spark: SparkSession, view: str, frame: DataFrame
) -> None:
    frame.write.insertInto(view)
    frame.writeTo(view).append()
    assert len(stored(storage)) == 5
    spark.sql(f"INSERT OVERWRITE {view} (app, started) VALUES ('etl', 7L)")
    assert stored(storage) == [{"app": "etl", "started": 7, "status": None, "cost": None}]
    frame.write.insertInto(view, overwrite=True)
    assert [row["started"] for row in stored(storage)] == [100]


@pytest.mark.parametrize("layout", ["partitionBy", "bucketBy", "sortBy", "clusterBy"])
def test_a_layout_of_files_is_refused(tables: Tables, storage: Storage, frame: DataFrame, layout: str) -> None:
    write = tables.writer(frame, "runs")
    match layout:
        case "partitionBy":
            write = write.partitionBy("app")
        case "clusterBy":
            write = write.clusterBy("app")
        case _:
            write = write.bucketBy(2, "app")
    before = stored(storage)
    with pytest.raises(Exception, match=r"do not match the existing table|does not support bucketBy"):
        (write.sortBy("started") if layout == "sortBy" else write).save()
    assert stored(storage) == before
