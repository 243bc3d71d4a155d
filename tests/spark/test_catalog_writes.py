"""Writes to tables of the catalog structable.Catalog: each is one job, or one transaction, or nothing."""

import itertools
import threading
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from structable.spark_bridge import TableRef, create_table
from structable.spi import Field, Storage, TableSpecification, Value
from tests.spark.conftest import Tables, complete, every_store, settings
from tests.spark.support.catalogs import both_stores, rows, stored
from tests.spark.support.plans import planned_scans
from tests.spark.support.samples import EVERYTHING, ROWS

PAGES = TableSpecification("pages", [Field.long("k"), Field.string("v"), Field.int("n")], ["k"])


@pytest.fixture
def pages(catalog: str, storage: Storage) -> str:
    """Return the name of a table of two rows."""
    storage.admin.create(PAGES)
    storage.table("pages").upsert_many([{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "b", "n": 2}])
    return f"{catalog}.pages"


@every_store
def test_insert_into_upserts(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"INSERT INTO {pages} VALUES (2, 'new', 20), (3, 'c', NULL)")
    assert stored(storage) == [(1, "a", 1), (2, "new", 20), (3, "c", None)]
    spark.sql(f"INSERT INTO {pages} (n, k, v) SELECT n + 1, k, 'x' FROM {pages} WHERE k = 1")
    spark.sql(f"SELECT 4 AS n, CAST(4 AS TINYINT) AS k, 'd' AS v FROM {pages} LIMIT 1").writeTo(pages).append()
    spark.sql("SELECT 5L AS k, 'e' AS v, 5 AS n").write.insertInto(pages)
    assert stored(storage) == [(1, "x", 2), (2, "new", 20), (3, "c", None), (4, "d", 4), (5, "e", 5)]


def test_an_insertion_that_leaves_out_columns_is_refused(spark: SparkSession, pages: str, storage: Storage) -> None:
    refusal = r"fill up with nulls: n; nothing was written\. Name all columns"
    with pytest.raises(AnalysisException, match=refusal):
        spark.sql("SELECT 1L AS k, 'x' AS v").writeTo(pages).append()
    with pytest.raises(AnalysisException, match=refusal):
        spark.sql(f"INSERT INTO {pages} (k, v) VALUES (1, 'x')")
    with pytest.raises(AnalysisException, match=refusal):
        spark.sql(f"FROM {pages} INSERT INTO {pages} SELECT k + 5, v, n INSERT INTO {pages} (k, v) SELECT k, 'x'")
    assert stored(storage) == [(1, "a", 1), (2, "b", 2)]


def test_the_option_mode(spark: SparkSession, pages: str, storage: Storage) -> None:
    with pytest.raises(AnalysisException, match=r"already has a row with the key \(2,\)"):
        spark.sql("SELECT 2L AS k, 'x' AS v, 0 AS n").writeTo(pages).option("mode", "insert").append()
    with pytest.raises(AnalysisException, match=r"RecordNotFound|no row"):
        spark.sql("SELECT 9L AS k, 'x' AS v, 0 AS n").writeTo(pages).option("mode", "update").append()
    spark.sql("SELECT 2L AS k, 'x' AS v, 0 AS n").writeTo(pages).option("mode", "overwrite").append()
    assert stored(storage) == [(2, "x", 0)]
    spark.sql("SELECT 3L AS k, 'y' AS v, 0 AS n").writeTo(pages).option("jobId", "j").append()
    spark.sql("SELECT 4L AS k, 'y' AS v, 0 AS n").writeTo(pages).option("jobId", "j").append()
    assert stored(storage) == [(2, "x", 0), (3, "y", 0)]


@both_stores
def test_insert_overwrite_replaces_all_rows(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"INSERT OVERWRITE {pages} SELECT k + 1, v, n FROM {pages} WHERE k = 2")
    assert stored(storage) == [(3, "b", 2)]
    assert storage.admin.get_specification("pages") == PAGES


def test_insert_overwrite_of_partitions_is_refused(
    spark: SparkSession, pages: str, storage: Storage, tables: Tables
) -> None:
    tables.read("pages").createOrReplaceTempView("overwritten")
    frame = spark.sql("SELECT 3L AS k, 'y' AS v, 0 AS n")
    before = stored(storage)
    with settings(spark, {"spark.sql.sources.partitionOverwriteMode": "Dynamic"}):
        for name in (pages, "overwritten", f"IDENTIFIER('{pages}')"):
            for query in (f"INSERT OVERWRITE {name}", f"FROM {pages} INSERT OVERWRITE {name}"):
                with pytest.raises(AnalysisException, match=r"partitionOverwriteMode is dynamic, .*set it to static"):
                    spark.sql(f"{query} SELECT 3L AS k, 'y' AS v, 0 AS n")
        with pytest.raises(AnalysisException, match=r"overwritten has none.*set it to static"):
            frame.write.insertInto("overwritten", overwrite=True)
        assert stored(storage) == before
        spark.sql(f"INSERT INTO {pages} SELECT 3L AS k, 'y' AS v, 0 AS n")
        frame.write.insertInto(pages, overwrite=True)  # Spark looks at the setting for tables with partitions only
    assert stored(storage) == [(3, "y", 0)]


@both_stores
def test_a_failed_job_changes_nothing(spark: SparkSession, pages: str, storage: Storage) -> None:
    failing = spark.range(10).selectExpr("if(id = 7, raise_error('broken'), id) AS k", "'x' AS v", "1 AS n")
    writes: list[Callable[[], object]] = [
        lambda: failing.writeTo(pages).append(),
        lambda: failing.write.mode("append").saveAsTable(pages),
        lambda: failing.write.mode("overwrite").saveAsTable(pages),
        lambda: failing.writeTo(pages).createOrReplace(),
    ]
    for write in writes:
        with pytest.raises(Exception, match="broken"):
            write()
    assert stored(storage) == [(1, "a", 1), (2, "b", 2)]
    assert storage.admin.get_specification("pages") == PAGES


@every_store
def test_save_as_table_on_an_existing_table(spark: SparkSession, pages: str, storage: Storage) -> None:
    frame = spark.sql("SELECT 3 AS n, 3L AS k, 'c' AS v")
    with pytest.raises(AnalysisException) as caught:
        frame.write.saveAsTable(pages)
    assert caught.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    frame.write.mode("ignore").saveAsTable(pages)
    assert len(stored(storage)) == 2
    frame.write.mode("append").option("primary-key", "k").saveAsTable(pages)
    with pytest.raises(AnalysisException, match=r"option primary-key is v, and table .* exists with k; nothing was"):
        frame.write.mode("append").option("primary-key", "v").saveAsTable(pages)
    assert stored(storage) == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]
    frame.write.mode("overwrite").saveAsTable(pages)
    assert stored(storage) == [(3, "c", 3)]
    frame.select("k", "v").write.format("structable").mode("overwrite").saveAsTable(pages)
    assert stored(storage) == [(3, "c", None)]
    assert storage.admin.get_specification("pages") == PAGES


def test_overwriting_what_does_not_fit_changes_nothing(spark: SparkSession, pages: str, storage: Storage) -> None:
    for frame, message in (
        (spark.sql("SELECT 1L AS k, array(1) AS v, 2 AS z"), "field 'v, z': v is array<int>.*z is not a field"),
        (spark.sql("SELECT 1L AS k, 2L AS n"), r"cast it: .cast\('int'\)"),
        (spark.sql("SELECT 'x' AS v"), "field 'k': is part of the primary key and missing"),
    ):
        with pytest.raises(AnalysisException, match=message):
            frame.write.mode("overwrite").saveAsTable(pages)
    fitting = spark.sql("SELECT 1L AS k")
    with pytest.raises(AnalysisException, match="exists with 'primary-key' = 'k', and the statement says 'v'"):
        fitting.write.mode("overwrite").option("primary-key", "v").saveAsTable(pages)
    with pytest.raises(AnalysisException, match="exists with 'merge-engine' = None"):
        fitting.writeTo(pages).tableProperty("merge-engine", "deduplicate").replace()
    with pytest.raises(AnalysisException, match="are for files"):
        fitting.write.mode("overwrite").partitionBy("k").saveAsTable(pages)
    assert stored(storage) == [(1, "a", 1), (2, "b", 2)]
    fitting.writeTo(pages).tableProperty("primary-key", " k").replace()
    assert stored(storage) == [(1, None, None)]


@both_stores
def test_new_tables_of_a_query(spark: SparkSession, catalog: str, storage: Storage) -> None:
    frame = spark.sql("SELECT 1L AS k, 'a' AS v")
    spark.sql(f"CREATE TABLE {catalog}.t0 TBLPROPERTIES ('primary-key' = 'k') AS SELECT 1L AS k, 'a' AS v")
    spark.sql(f"CREATE OR REPLACE TABLE {catalog}.t1 TBLPROPERTIES ('primary-key' = 'k') AS SELECT 1L AS k, 'a' AS v")
    frame.writeTo(f"{catalog}.t2").using("structable").tableProperty("primary-key", "k").create()
    for number, mode in enumerate(("errorifexists", "ignore", "append", "overwrite"), 3):
        frame.write.mode(mode).option("primary-key", "k").option("indexes", "v").saveAsTable(f"{catalog}.t{number}")
    for number in range(7):
        made = storage.admin.get_specification(f"t{number}")
        assert made.fields == (Field.long("k"), Field.string("v"))
        assert (made.primary_key, made.indexes) == (("k",), ("v",) if number >= 3 else ())
        assert stored(storage, f"t{number}") == [(1, "a")]


def test_texts_of_a_length_become_strings(
    spark: SparkSession, catalog: str, storage: Storage, tables: Tables, url: str
) -> None:
    """As by `create_table`: a CHAR is as long as Spark makes it, and later rows may be longer."""
    spark.sql("CREATE TABLE files (k CHAR(2), v VARCHAR(3)) USING parquet")
    try:
        spark.sql("INSERT INTO files VALUES ('a', 'b')")
        frames = {
            "read": "SELECT * FROM files",
            "cast": "SELECT CAST('a ' AS CHAR(2)) AS k, CAST('b' AS VARCHAR(3)) AS v",
        }
        for number, (name, query) in itertools.product((0, 1), frames.items()):
            with settings(spark, {"spark.sql.preserveCharVarcharTypeInfo": str(bool(number))}):
                frame = spark.sql(query)
                made = create_table(frame, TableRef(url, f"{name}{number}"), ["k"])
                assert made.fields == (Field.string("k"), Field.string("v"))
                tables.write(frame, made.name)
                spark.sql(f"CREATE TABLE {catalog}.sql{made.name} TBLPROPERTIES ('primary-key' = 'k') AS {query}")
                frame.write.option("primary-key", "k").saveAsTable(f"{catalog}.saved{made.name}")
            tables.write(spark.sql("SELECT 'longer' AS k, 'longer' AS v"), f"sql{made.name}")
            assert stored(storage, f"sql{made.name}") == [("a ", "b"), ("longer", "longer")]
            for other in (made.name, f"saved{made.name}"):
                assert stored(storage, other) == [("a ", "b")]
                assert storage.admin.get_specification(other).fields == made.fields
    finally:
        spark.sql("DROP TABLE files")


def test_a_table_whose_rows_cannot_be_made_is_none(spark: SparkSession, catalog: str, storage: Storage) -> None:
    failing = spark.range(10).selectExpr("if(id = 7, raise_error('broken'), id) AS k")
    with pytest.raises(Exception, match="broken"):
        failing.writeTo(f"{catalog}.t").tableProperty("primary-key", "k").create()
    with pytest.raises(AnalysisException, match="'primary-key' is missing"):
        failing.write.saveAsTable(f"{catalog}.t")
    with pytest.raises(AnalysisException, match="primary_key names 'k', which is not a field"):
        spark.sql("SELECT 1 AS v").write.option("primary-key", "k").saveAsTable(f"{catalog}.t")
    with pytest.raises(AnalysisException) as caught:
        failing.writeTo(f"{catalog}.t").replace()
    assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    assert storage.admin.list() == []


@every_store
def test_a_new_table_with_rows_of_others_stays(
    spark: SparkSession, catalog: str, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own rows are not there, but what others have committed to it is not dropped."""
    storage.admin.create(PAGES)
    storage.table("pages").upsert({"k": 7})
    failing = spark.table(f"{catalog}.pages").selectExpr("if(k = 7, raise_error('broken'), k) AS k", "v")
    write = failing.writeTo(f"{catalog}.t").tableProperty("primary-key", "k")
    with (
        planned_scans(spark, lambda: storage.table("t").insert({"k": 1, "v": "theirs"})),
        pytest.raises(Exception, match="broken"),
    ):
        write.create()
    assert stored(storage, "t") == [(1, "theirs")]
    assert "table 't' was made by a statement that failed, and stays" in caplog.text
    storage.admin.drop("t")
    with (
        planned_scans(spark, lambda: storage.admin.drop("t")),
        pytest.raises(AnalysisException, match="table 't' does not exist"),
    ):
        write.create()
    assert storage.admin.list() == ["pages"]
    theirs = TableSpecification("t", [Field.string("id")], ["id"])

    def make_again() -> None:
        storage.admin.drop("t")
        storage.admin.create(theirs)

    with planned_scans(spark, make_again), pytest.raises(Exception, match=r"broken|table 't'"):
        write.create()
    assert storage.admin.get_specification("t") == theirs


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("k = 1", [2]),
        ("2 <= k", [1]),
        ("k <> 1", [1]),
        ("k IN (2, 7)", [1]),
        ("NOT (k = 1 AND v = 'a')", [1]),
        ("k > 5 OR (v = 'a' AND n IS NOT NULL)", [2]),
        ("NOT (n > 1 OR n IS NULL)", [2]),
        ("v LIKE 'b%'", [1]),
        ("n <=> 2", [1]),
        ("n = NULL", [1, 2]),
        ("true", []),
        ("false", [1, 2]),
    ],
)
def test_delete(spark: SparkSession, pages: str, storage: Storage, condition: str, kept: list[int]) -> None:
    spark.sql(f"DELETE FROM {pages} WHERE {condition}")
    assert [row[0] for row in stored(storage)] == kept


@every_store
def test_delete_by_values_of_every_type(spark: SparkSession, catalog: str, storage: Storage, tables: Tables) -> None:
    storage.admin.create(EVERYTHING)
    table = f"{catalog}.everything"
    conditions = {
        "flag": "flag",
        "tiny": "tiny = 1Y",
        "small": "small = 1S",
        "medium": "medium = 1",
        "large": "large = 1L",
        "wide": "wide = 5e-324D",
        "price": "price = 1.50BD",
        "huge": "huge = 0.0000000001BD",
        "text": "text = 'abd\\u0001'",
        "raw": "raw = X'61626480'",
        "day": "day = DATE '2020-02-29'",
        "instant": "instant = TIMESTAMP '2020-02-29 08:30:15.123456 UTC'",
        "local": "local = TIMESTAMP_NTZ '2020-02-29 08:30:15.123456'",
    }
    for field, condition in conditions.items():
        storage.table("everything").upsert_many(ROWS)
        expected = [row for row in complete(EVERYTHING, ROWS) if not _chosen(row, field)]
        assert 0 < len(expected) < len(ROWS)
        spark.sql(f"DELETE FROM {table} WHERE {condition}")
        left = [dict(row) for row in storage.table("everything").scan()]
        assert repr(left) == repr(expected), field


def _chosen(row: dict[str, Value], field: str) -> bool:
    return row["flag"] is True if field == "flag" else (row["name"], row["number"]) == ("a", 1)


@every_store
def test_truncate_and_delete_of_all_rows(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"TRUNCATE TABLE {pages}")
    assert stored(storage) == []
    storage.table("pages").upsert({"k": 1})
    spark.sql(f"DELETE FROM {pages}")
    assert stored(storage) == []


@both_stores
def test_a_change_feed_has_deleted_rows_and_is_not_overwritten(
    spark: SparkSession, catalog: str, storage: Storage, url: str
) -> None:
    storage.admin.create(PAGES.evolve(options={"changelog-producer": "lookup"}))
    frame = spark.sql("SELECT 1L AS k, 'x' AS v, 0 AS n")
    for overwrite in (
        lambda: Tables(spark, url).write(frame, "pages", mode="overwrite"),
        lambda: spark.sql(f"INSERT OVERWRITE {catalog}.pages VALUES (1, 'x', 0)"),
    ):
        with pytest.raises(AnalysisException, match=r"has a change feed(.|\n)*DELETE FROM in a catalog"):
            overwrite()
    frame.writeTo(f"{catalog}.pages").append()
    spark.sql(f"DELETE FROM {catalog}.pages")
    frame.writeTo(f"{catalog}.pages").append()
    with storage.changes("pages").read() as changes:
        assert [str(change.kind) for change in changes] == ["+I", "-D", "+I"]


def test_tables_without_a_key(spark: SparkSession, catalog: str, storage: Storage) -> None:
    spark.sql(f"CREATE TABLE {catalog}.log (v STRING) TBLPROPERTIES ('primary-key' = '')")
    spark.sql(f"CREATE TABLE {catalog}.bag (v STRING) TBLPROPERTIES ('primary-key' = '', 'write-mode' = 'change-log')")
    for table in ("log", "bag"):
        spark.sql(f"INSERT INTO {catalog}.{table} VALUES ('a'), ('a')")
    for statement in (
        "TRUNCATE TABLE {}.log",
        "DELETE FROM {}.log WHERE v = 'a'",
        "INSERT OVERWRITE {}.log VALUES ('b')",
    ):
        with pytest.raises(AnalysisException, match="table 'log' has no primary key"):
            spark.sql(statement.format(catalog))
    spark.sql(f"TRUNCATE TABLE {catalog}.bag")
    assert (stored(storage, "log"), stored(storage, "bag")) == ([("a",), ("a",)], [])


def test_streams_are_refused(spark: SparkSession, pages: str) -> None:
    with pytest.raises(AnalysisException, match=r"readStream\.format\(.structable.\) with url, table and"):
        spark.readStream.table(pages)


@both_stores
def test_every_thread_writes(spark: SparkSession, pages: str, storage: Storage) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        frame = spark.sql(f"SELECT {number}L AS k, 'x' AS v, 0 AS n")
        try:
            spark.sql(f"INSERT INTO {pages} VALUES ({number + 1}, 'x', 0)")
            frame.writeTo(pages).append()
            frame.write.mode("append").saveAsTable(pages)
            frame.write.option("primary-key", "k").saveAsTable(f"{pages}_{number}")
            spark.sql(f"DELETE FROM {pages} WHERE k = {number + 1}")
            assert spark.table(pages).where(f"k = {number}").count() == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [row[0] for row in stored(storage)] == [1, 2, 10, 20, 30]
    assert storage.admin.list() == ["pages", "pages_10", "pages_20", "pages_30"]


def test_a_cached_table_is_read_anew_after_a_write(spark: SparkSession, pages: str) -> None:
    spark.sql(f"CACHE TABLE {pages}")
    try:
        assert rows(spark, f"SELECT count(*) FROM {pages}") == [(2,)]
        spark.sql(f"INSERT INTO {pages} VALUES (3, 'c', 3)")
        assert rows(spark, f"SELECT count(*) FROM {pages}") == [(3,)]
    finally:
        spark.sql(f"UNCACHE TABLE {pages}")
