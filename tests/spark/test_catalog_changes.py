"""UPDATE, MERGE and DELETE of rows that a query finds: each is one job, which refuses rows that changed meanwhile."""

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from structable.spi import Field, Storage, TableSpecification
from tests.spark.conftest import Tables, complete, every_store
from tests.spark.support.catalogs import both_stores, rows, stored
from tests.spark.support.plans import planned_scans
from tests.spark.support.samples import EVERYTHING, ROWS

PAGES = TableSpecification("pages", [Field.long("k"), Field.string("v"), Field.int("n")], ["k"], ["v"])
BEFORE = [(1, "a", 1), (2, "b", 2), (3, "c", 3)]


def source(values: str, columns: str) -> str:
    """Return the source of a MERGE; it may not name its columns itself."""
    return f"(SELECT * FROM VALUES {values} AS given({columns})) AS s"


NEWS = source("(2L, 'new', 20), (9L, 'nine', 90)", "k, v, n")


@pytest.fixture
def pages(catalog: str, storage: Storage) -> str:
    """Return the name of a table of three rows."""
    storage.admin.create(PAGES)
    storage.table("pages").upsert_many({"k": k, "v": v, "n": n} for k, v, n in BEFORE)
    return f"{catalog}.pages"


@every_store
def test_update(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"UPDATE {pages} SET v = 'x' WHERE k = 1")
    spark.sql(f"UPDATE {pages} AS p SET p.n = p.n + 1, v = upper(v) WHERE length(p.v) = 1 AND p.k > 1")
    assert stored(storage) == [(1, "x", 1), (2, "B", 3), (3, "C", 4)]
    assert [row.key for row in storage.table("pages").scan_index("v", "B")] == [(2,)]
    spark.sql(f"UPDATE {pages} SET n = NULL")
    assert stored(storage) == [(1, "x", None), (2, "B", None), (3, "C", None)]
    spark.sql(f"UPDATE {pages} SET n = 7 WHERE k > 100")
    assert stored(storage) == [(1, "x", None), (2, "B", None), (3, "C", None)]


@both_stores
def test_update_with_subqueries(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"UPDATE {pages} SET v = 'in' WHERE k IN (SELECT k + 1 FROM {pages} WHERE n < 2)")
    spark.sql(f"UPDATE {pages} AS p SET n = 0 WHERE EXISTS (SELECT 1 FROM {pages} o WHERE o.k = p.k - 2)")
    spark.sql(f"UPDATE {pages} SET n = 9 WHERE k = (SELECT min(k) FROM {pages})")
    assert stored(storage) == [(1, "a", 9), (2, "in", 2), (3, "c", 0)]


@every_store
def test_merge(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"""
        MERGE INTO {pages} AS t USING (
            SELECT * FROM {NEWS} UNION ALL VALUES (3L, 'drop', 0), (7L, 'skip', 0)
        ) AS s ON t.k = s.k
        WHEN MATCHED AND s.v = 'drop' THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = s.v, n = t.n + s.n
        WHEN NOT MATCHED AND s.v <> 'skip' THEN INSERT (k, v) VALUES (s.k, s.v)
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = -1
    """)
    assert stored(storage) == [(1, "a", -1), (2, "new", 22), (9, "nine", None)]
    spark.sql(f"""
        MERGE INTO {pages} AS t USING {NEWS} ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.n < 0 THEN DELETE
    """)
    assert stored(storage) == [(2, "new", 20), (9, "nine", 90)]


@both_stores
def test_merge_that_only_inserts(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"MERGE INTO {pages} t USING {NEWS} ON t.k = s.k WHEN NOT MATCHED THEN INSERT (v, k) VALUES (s.v, s.k)")
    assert stored(storage) == [*BEFORE, (9, "nine", None)]
    spark.sql(f"""
        MERGE INTO {pages} t USING {source("(5L), (6L)", "k")} ON t.k = s.k
        WHEN NOT MATCHED AND s.k = 5 THEN INSERT (k, v) VALUES (s.k, 'five')
        WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 6)
    """)
    assert stored(storage) == [*BEFORE, (5, "five", None), (6, None, 6), (9, "nine", None)]


def test_a_row_that_matches_twice_is_refused(spark: SparkSession, pages: str, storage: Storage) -> None:
    for action in ("UPDATE SET v = s.v", "DELETE"):
        condition = "AND s.v <> 'none' " if action == "DELETE" else ""
        with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
            spark.sql(f"""
                MERGE INTO {pages} AS t USING {source("(2L, 'x'), (2L, 'y'), (1L, 'z')", "k, v")} ON t.k = s.k
                WHEN MATCHED {condition}THEN {action}
            """)
    assert stored(storage) == BEFORE


@both_stores
@pytest.mark.parametrize("others", ["", "WHEN MATCHED THEN UPDATE SET n = 0"])
def test_a_merge_inserts_no_key_that_exists_or_twice(
    spark: SparkSession, pages: str, storage: Storage, others: str
) -> None:
    for key in ("1", "5"):
        with pytest.raises(AnalysisException, match=rf"already has a row with the key \({key},\)"):
            spark.sql(f"""
                MERGE INTO {pages} AS t USING {source("(7L), (8L), (2L)", "k")} ON t.k = s.k
                {others} WHEN NOT MATCHED THEN INSERT (k) VALUES ({key})
            """)
    assert stored(storage) == BEFORE


@every_store
def test_keys_are_updated(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"UPDATE {pages} SET k = k + 1, n = 0 WHERE k > 1")
    assert stored(storage) == [(1, "a", 1), (3, "b", 0), (4, "c", 0)]
    spark.sql(f"UPDATE {pages} SET k = k")
    spark.sql(f"MERGE INTO {pages} t USING {pages} s ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = 5 - s.k")
    assert stored(storage) == [(1, "c", 0), (2, "b", 0), (4, "a", 1)]
    assert [row.key for row in storage.table("pages").scan_index("v", "c")] == [(1,)]
    for statement in ("UPDATE {} SET k = 7", "UPDATE {} SET k = 4 WHERE k = 1"):
        with pytest.raises(AnalysisException, match="already has a row with the key"):
            spark.sql(statement.format(pages))
    assert stored(storage) == [(1, "c", 0), (2, "b", 0), (4, "a", 1)]


@both_stores
def test_several_clauses_assign_the_key(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"""
        MERGE INTO {pages} t USING {NEWS} ON t.k = s.k
        WHEN MATCHED AND s.n < 0 THEN UPDATE SET *
        WHEN MATCHED AND t.n = 2 THEN UPDATE SET k = 1, n = s.n
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.k = 1 THEN UPDATE SET k = 2
        WHEN NOT MATCHED BY SOURCE THEN DELETE
    """)
    assert stored(storage) == [(1, "b", 20), (2, "a", 1), (9, "nine", 90)]


STATEMENTS = {
    "update": "UPDATE {0} SET n = n + 1 WHERE upper(v) = 'B'",
    "delete": "DELETE FROM {0} WHERE upper(v) = 'B'",
    "merge": f"MERGE INTO {{0}} t USING {NEWS} ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = s.n "
    "WHEN NOT MATCHED THEN INSERT *",
    "key": "UPDATE {0} SET k = 9 WHERE upper(v) = 'B'",
}


def act_once(pending: list[Callable[[], object]]) -> None:
    if pending:
        pending.pop()()


@every_store
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_row_that_changed_meanwhile_is_refused(
    spark: SparkSession, pages: str, storage: Storage, statement: str
) -> None:
    """No update of another writer is lost, in whatever column, and a refused statement can be run again."""
    table = storage.table("pages")
    text = STATEMENTS[statement].format(pages)
    changes: list[tuple[Callable[[], object], str]] = [
        (lambda: table.update({"k": 2, "v": "b", "n": 50}), r"1 row has changed since .* nothing was written: \(2,\)"),
        (lambda: table.delete((2,)), r"1 row has changed since .* nothing was written: \(2,\)"),
    ]
    if statement in ("merge", "key"):
        changes.insert(0, (lambda: table.insert({"k": 9}), r"already has a row with the key \(9,\)"))
    for change, message in changes:
        pending = [change]
        with (
            planned_scans(spark, partial(act_once, pending)),
            pytest.raises(AnalysisException, match=message),
        ):
            spark.sql(text)
        assert pending == []
        changed = stored(storage)
        assert {row[0] for row in changed} <= {1, 2, 3, 9}
        table.delete((9,))
    assert stored(storage) == [(1, "a", 1), (3, "c", 3)]
    table.insert({"k": 2, "v": "b", "n": 60})
    spark.sql(text)
    outcomes = {"update": (2, "b", 61), "merge": (2, "b", 20)}
    assert (outcomes.get(statement) in stored(storage)) == (statement in outcomes)
    assert (2 in {row[0] for row in stored(storage)}) == (statement in outcomes)


@both_stores
def test_other_rows_may_change_meanwhile(spark: SparkSession, pages: str, storage: Storage) -> None:
    table = storage.table("pages")
    with planned_scans(spark, lambda: table.upsert_many([{"k": 1, "n": 50}, {"k": 4, "v": "b"}])):
        spark.sql(f"UPDATE {pages} SET n = n + 1 WHERE upper(v) = 'B'")
    assert stored(storage) == [(1, "a", 50), (2, "b", 3), (3, "c", 3), (4, "b", None)]


@every_store
def test_values_of_every_type_stay(spark: SparkSession, catalog: str, storage: Storage, tables: Tables) -> None:
    """What a statement has read is what the store has, in every type: no row counts as changed."""
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(ROWS)
    table = f"{catalog}.everything"
    spark.sql(f"UPDATE {table} SET small = 7 WHERE length(name) < 9")
    expected = complete(EVERYTHING, [{**row, "small": 7} for row in ROWS])
    assert repr([dict(row) for row in storage.table("everything").scan()]) == repr(expected)
    spark.sql(
        f"MERGE INTO {table} t USING {table} s ON t.name = s.name AND t.number = s.number WHEN MATCHED THEN "
        "UPDATE SET *"
    )
    assert repr([dict(row) for row in storage.table("everything").scan()]) == repr(expected)
    spark.sql(f"UPDATE {table} SET number = number - 1 WHERE name = 'a' AND length(name) = 1")
    assert [row["number"] for row in storage.table("everything").scan()][1:4] == [-2, -1, 0]
    spark.sql(f"DELETE FROM {table} WHERE length(name) < 9")
    assert storage.table("everything").count() == 0


@every_store
def test_a_change_feed_has_the_images(spark: SparkSession, catalog: str, storage: Storage) -> None:
    """All changes of a statement are one commit, with the rows before and after it."""
    storage.admin.create(PAGES.evolve(options={"changelog-producer": "lookup"}))
    storage.table("pages").upsert_many({"k": k, "v": v, "n": n} for k, v, n in BEFORE)
    since = storage.changes("pages").latest()
    spark.sql(f"""
        MERGE INTO {catalog}.pages AS t USING {NEWS} ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.k = 3 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET k = 10
    """)
    with storage.changes("pages").read(since=since) as changes:
        found = [(str(change.kind), *change.row.values(), change.version) for change in changes]
    assert sorted(one[:-1] for one in found) == [
        ("+I", 9, "nine", 90),
        ("+I", 10, "a", 1),
        ("+U", 2, "new", 2),
        ("-D", 1, "a", 1),
        ("-D", 3, "c", 3),
        ("-U", 2, "b", 2),
    ]
    assert len({one[-1] for one in found}) == 1


@both_stores
@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max"},
        {"merge-engine": "first-row"},
        {"merge-engine": "partial-update"},
        {"sequence.field": "n"},
    ],
    ids=str,
)
def test_merge_engines_are_not_asked(
    spark: SparkSession, catalog: str, storage: Storage, options: dict[str, str]
) -> None:
    """A statement says what rows become, as the plain verbs do."""
    storage.admin.create(PAGES.evolve(options=options))
    storage.table("pages").insert_many({"k": k, "v": v, "n": n} for k, v, n in BEFORE)
    spark.sql(f"UPDATE {catalog}.pages SET n = 0, v = NULL WHERE k = 1")
    spark.sql(f"""
        MERGE INTO {catalog}.pages t USING {NEWS} ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = -1
        WHEN NOT MATCHED THEN INSERT *
    """)
    spark.sql(f"DELETE FROM {catalog}.pages WHERE k + 0 = 3")
    assert stored(storage) == [(1, None, 0), (2, "b", -1), (9, "nine", 90)]


@pytest.mark.parametrize("mode", ["append-only", "change-log"])
def test_tables_without_a_key_are_refused(spark: SparkSession, catalog: str, storage: Storage, mode: str) -> None:
    spark.sql(f"CREATE TABLE {catalog}.t (v STRING) TBLPROPERTIES ('primary-key' = '', 'write-mode' = '{mode}')")
    spark.sql(f"INSERT INTO {catalog}.t VALUES ('a')")
    using = "USING (SELECT 'a' AS v) AS s ON t.v = s.v"
    for statement, message in (
        (
            "UPDATE {} SET v = 'x'",
            "no UPDATE of a table without a primary key, and nothing was written to .*: INSERT INTO",
        ),
        ("UPDATE {} AS p SET v = 'x' WHERE p.v = 'a'", "no UPDATE"),
        (f"MERGE INTO {{}} AS t {using} WHEN MATCHED THEN DELETE", "no MERGE"),
        (f"MERGE INTO {{}} AS t {using} WHEN NOT MATCHED THEN INSERT *", "no MERGE"),
        (
            "DELETE FROM {} WHERE upper(v) = 'A'",
            "evaluate the whole condition, and nothing was deleted .* mode of value",
        ),
    ):
        with pytest.raises(AnalysisException, match=message) as caught:
            spark.sql(statement.format(f"{catalog}.t"))
        assert caught.value.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    assert stored(storage, "t") == [("a",)]


def test_views_are_refused(spark: SparkSession, pages: str, storage: Storage) -> None:
    """A view's columns need not be those of the table."""
    for number, query in enumerate((f"SELECT * FROM {pages}", f"SELECT n AS k, v, k AS n FROM {pages} WHERE n < 3")):
        view = f"pages_{number}"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")
        try:
            for statement, message in (
                (f"UPDATE {view} SET n = 0", "no UPDATE of a view, and nothing was written to .*: name the table"),
                (f"MERGE INTO {view} t USING {NEWS} ON t.k = s.k WHEN MATCHED THEN DELETE", "no MERGE of a view"),
                (
                    f"DELETE FROM {view} WHERE upper(v) = 'A'",
                    "no DELETE of a view, and nothing was written to .*: name",
                ),
                (f"DELETE FROM {view} WHERE K IN (SELECT 1L)", "no DELETE of a view"),
            ):
                with pytest.raises(AnalysisException, match=message):
                    spark.sql(statement)
            assert stored(storage) == BEFORE
            if number == 0:
                spark.sql(f"DELETE FROM {view} WHERE K = 1 AND (V = 'a' OR n > 5)")
                assert stored(storage) == BEFORE[1:]
                storage.table("pages").insert({"k": 1, "v": "a", "n": 1})
        finally:
            spark.catalog.dropTempView(view)


def test_values_that_do_not_fit_are_refused(spark: SparkSession, pages: str, storage: Storage) -> None:
    for statement, message in (
        ("UPDATE {} SET n = array(1)", "CANNOT_SAFELY_CAST|CAST"),
        ("UPDATE {} SET n = true", "CAST"),
        ("UPDATE {} SET z = 1", "UNRESOLVED_COLUMN"),
        ("UPDATE {} SET n = 1, n = 2", "n"),
        ("UPDATE {} SET n = k + 3000000000", "OVERFLOW"),
        ("UPDATE {} SET k = NULL", "(?i)null"),
        (f"MERGE INTO {{}} t USING {NEWS} ON t.k = s.k WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)", "(?i)null|k"),
    ):
        with pytest.raises(Exception, match=message):
            spark.sql(statement.format(pages))
    assert stored(storage) == BEFORE


@both_stores
def test_a_statement_that_fails_changes_nothing(spark: SparkSession, pages: str, storage: Storage) -> None:
    with pytest.raises(Exception, match="broken"):
        spark.sql(f"UPDATE {pages} SET v = if(k = 3, raise_error('broken'), 'x')")
    assert stored(storage) == BEFORE


@every_store
def test_a_delete_of_rows_that_a_query_finds(spark: SparkSession, pages: str, storage: Storage) -> None:
    """Where the store does not evaluate the condition, Spark does."""
    spark.sql(f"DELETE FROM {pages} WHERE upper(v) = 'A' OR k + n = 100")
    assert stored(storage) == BEFORE[1:]
    spark.sql(f"DELETE FROM {pages} WHERE k IN (SELECT max(k) FROM {pages})")
    assert stored(storage) == [BEFORE[1]]
    spark.sql(f"DELETE FROM {pages} AS p WHERE EXISTS (SELECT 1 FROM {pages} o WHERE o.v = p.v)")
    assert stored(storage) == []


def test_a_delete_by_values_of_no_field(spark: SparkSession, catalog: str, storage: Storage) -> None:
    storage.admin.create(EVERYTHING)
    earlier = "local > TIMESTAMP_NTZ '-0044-03-15 00:00:00'"
    for condition in ("text = 'a\\u0000'", "day < DATE '+12000-01-01'", earlier):
        storage.table("everything").upsert_many(ROWS[:3])
        spark.sql(f"DELETE FROM {catalog}.everything WHERE {condition}")
        assert (storage.table("everything").count() == 0) == (condition != "text = 'a\\u0000'")


def test_a_delete_that_the_store_evaluates_reads_nothing(spark: SparkSession, pages: str, storage: Storage) -> None:
    with planned_scans(spark) as planned:
        spark.sql(f"DELETE FROM {pages} WHERE k = 1 OR v = 'b'")
        assert planned == []
        spark.sql(f"DELETE FROM {pages} WHERE upper(v) = 'C'")
        assert len(planned) == 1


@both_stores
def test_a_merge_that_only_deletes_may_match_twice(spark: SparkSession, pages: str, storage: Storage) -> None:
    spark.sql(f"""
        MERGE INTO {pages} AS t USING {source("(2L), (2L), (1L)", "k")} ON t.k = s.k WHEN MATCHED THEN DELETE
    """)
    assert stored(storage) == BEFORE[2:]


def test_a_table_that_changes_while_a_statement_is_planned_is_refused(
    spark: SparkSession, pages: str, storage: Storage
) -> None:
    wider = PAGES.evolve(fields=[*PAGES.fields, Field.int("more")])
    with (
        planned_scans(spark, lambda: storage.admin.create_or_update(wider)),
        pytest.raises(AnalysisException, match="changed"),
    ):
        spark.sql(f"UPDATE {pages} SET n = 0")
    assert stored(storage) == [(*row, None) for row in BEFORE]


def test_tables_of_keys_alone(spark: SparkSession, catalog: str, storage: Storage) -> None:
    storage.admin.create(TableSpecification("pairs", [Field.int("A"), Field.string("b")], ["A", "b"]))
    spark.sql(f"INSERT INTO {catalog}.pairs VALUES (1, 'x'), (1, 'y'), (2, 'x')")
    spark.sql(f"UPDATE {catalog}.pairs SET b = concat(b, b) WHERE a * 1 = 1")
    spark.sql(f"DELETE FROM {catalog}.pairs WHERE a * 1 = 2 OR upper(b) = 'YY'")
    assert stored(storage, "pairs") == [(1, "xx")]


def test_a_cached_table_is_read_anew_after_an_update(spark: SparkSession, pages: str) -> None:
    spark.sql(f"CACHE TABLE {pages}")
    try:
        assert rows(spark, f"SELECT sum(n) FROM {pages}") == [(6,)]
        spark.sql(f"UPDATE {pages} SET n = 0 WHERE k = 3")
        assert rows(spark, f"SELECT sum(n) FROM {pages}") == [(3,)]
    finally:
        spark.sql(f"UNCACHE TABLE {pages}")
