"""What Spark would leave out of UPDATE and MERGE without a word is refused, or is done."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from structable.spark_bridge import register
from structable.spi import Storage
from tests.spark.conftest import every_store
from tests.spark.support.catalogs import both_stores, catalog_of, rows, stored
from tests.spark.test_catalog_changes import BEFORE, NEWS, PAGES, source


@pytest.fixture
def pages(catalog: str, storage: Storage) -> str:
    """Return the name of a table of three rows."""
    storage.admin.create(PAGES)
    storage.table("pages").upsert_many({"k": k, "v": v, "n": n} for k, v, n in BEFORE)
    return f"{catalog}.pages"


def refused(spark: SparkSession, statement: str, message: str) -> None:
    with pytest.raises(AnalysisException, match=message) as caught:
        spark.sql(statement)
    assert caught.value.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"


def test_the_hidden_column(spark: SparkSession, pages: str) -> None:
    """It is the fields outside the key, and no column of the table."""
    assert spark.table(pages).columns == ["k", "v", "n"]
    assert rows(spark, f"SELECT k, _before.v FROM {pages} WHERE k = 1") == [(1, "a")]


def test_the_hidden_column_is_not_assigned(spark: SparkSession, pages: str, storage: Storage) -> None:
    merge = f"MERGE INTO {pages} AS t USING {NEWS} ON t.k = s.k"
    struct = "named_struct('v', 'x', 'n', 3)"
    for statement in (
        f"UPDATE {pages} SET _before = NULL",
        f"UPDATE {pages} AS p SET n = 0, p._BEFORE = _before WHERE _before.n = 1",
        f"UPDATE {pages} SET _before.n = 3",
        f"EXECUTE IMMEDIATE 'UPDATE {pages} SET _before = NULL'",
        f"UPDATE IDENTIFIER(concat('{pages}', '')) AS p SET p._before = NULL",
        f"{merge} WHEN MATCHED THEN UPDATE SET n = 0, _before = {struct}",
        f"{merge} WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, _before) VALUES (s.k, {struct})",
        f"{merge} WHEN NOT MATCHED THEN INSERT (k, _before) VALUES (s.k, {struct})",
        f"{merge} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t._before = t._before",
    ):
        refused(
            spark, statement, r"assigns the hidden column _before, .*nothing was written to .*pages: assign the col"
        )
    with pytest.raises(AnalysisException, match="too many data columns"):
        spark.sql(f"INSERT INTO {pages} (k, v, n, _before) VALUES (1, 'x', 0, {struct})")
    assert stored(storage) == BEFORE
    spark.sql(f"UPDATE {pages} SET n = _before.n + 1, v = _before.v WHERE _before.n > 1")
    assert stored(storage) == [BEFORE[0], (2, "b", 3), (3, "c", 4)]


def test_the_hidden_column_is_not_assigned_in_another_session(spark: SparkSession, storage: Storage, url: str) -> None:
    storage.admin.create(PAGES)
    other = spark.newSession()
    assert other.range(3).count() == 3  # its analyzer is made
    register(other)
    with catalog_of(other, url) as name:
        other.sql(f"USE {name}")
        refused(other, "UPDATE pages SET _before = NULL", "assigns the hidden column _before")
        refused(other, f"UPDATE {name}.pages SET _before = NULL", "assigns the hidden column _before")


@both_stores
def test_the_source_of_a_merge_reads_the_hidden_column(spark: SparkSession, pages: str, storage: Storage) -> None:
    carrying = f"SELECT *, _before FROM {pages}"
    for text in (
        f"MERGE INTO {pages} t USING ({carrying}) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *",
        f"MERGE INTO {pages} t USING ({carrying} WHERE _before.n > 1) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = s._before.n + t._before.n",
        f"MERGE INTO IDENTIFIER(concat('{pages}', '')) t USING ({carrying}) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = s._before.n",
        f"WITH s AS ({carrying}) MERGE INTO {pages} t USING s ON t.k = s.k "
        "WHEN MATCHED AND s._before.n > 4 THEN DELETE",
        f"MERGE INTO {pages} t USING (SELECT k + 4 AS k, _before.n AS n FROM {pages}) s ON t.k = s.k "
        "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    ):
        spark.sql(text)
    assert stored(storage) == [(1, "a", 1), (2, "b", 4), (5, None, 1), (6, None, 4)]
    frame = spark.table(pages).select("k", "_before").alias("s")
    merge = frame.mergeInto(pages, col("s.k") == col(f"{pages}.k"))
    merge.whenMatched().update({"v": col("s._before.n").cast("string")}).merge()
    assert stored(storage) == [(1, "1", 1), (2, "4", 4), (5, "1", 1), (6, "4", 4)]


def test_schema_evolution_is_refused(spark: SparkSession, pages: str, storage: Storage) -> None:
    """Spark would leave out the new columns."""
    wider = source("(2L, 'new', 20, 1)", "k, v, n, z")
    message = r"no MERGE WITH SCHEMA EVOLUTION, and nothing was written to .*pages: add the columns by ALTER TABLE"
    for given in (wider, NEWS):
        refused(
            spark,
            f"MERGE WITH SCHEMA EVOLUTION INTO {pages} t USING {given} ON t.k = s.k WHEN MATCHED THEN UPDATE SET *",
            message,
        )
    refused(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO IDENTIFIER(concat('{pages}', '')) t USING {NEWS} ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET *",
        message,
    )
    frame = spark.sql(f"SELECT * FROM {wider}").alias("s")
    merge = frame.mergeInto(pages, col("s.k") == col(f"{pages}.k")).whenMatched().updateAll()
    with pytest.raises(AnalysisException, match=message):
        merge.withSchemaEvolution().merge()
    assert stored(storage) == BEFORE


@every_store
def test_a_merge_whose_condition_is_never_true(spark: SparkSession, pages: str, storage: Storage) -> None:
    """Spark's optimizer takes the table out of the query, and the rows are inserted still, not merged."""
    for condition in ("false", "t.k = s.k AND t.v = NULL"):
        merge = f"MERGE INTO {pages} t USING {{}} ON {condition} WHEN NOT MATCHED THEN INSERT *"
        with pytest.raises(AnalysisException, match=r"already has a row with the key \(2,\)"):
            spark.sql(merge.format(NEWS))
        assert stored(storage) == BEFORE
        spark.sql(merge.format(source("(9L, 'nine', 90)", "k, v, n")))
        assert stored(storage) == [*BEFORE, (9, "nine", 90)]
        storage.table("pages").delete((9,))


def test_earlier_versions_are_refused(spark: SparkSession, pages: str) -> None:
    for clause in ("VERSION AS OF 1", "TIMESTAMP AS OF '2024-01-01'"):
        refused(
            spark, f"SELECT * FROM {pages} {clause}", "no VERSION AS OF or TIMESTAMP AS OF: .* option readChangeFeed"
        )
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"SELECT * FROM {pages}_none VERSION AS OF 1")
    assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
