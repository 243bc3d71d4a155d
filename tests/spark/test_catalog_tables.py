"""The catalog structable.Catalog: statements list, describe, read, create, alter and drop its tables."""

from urllib.parse import urlsplit, urlunsplit

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Table

from structable.spark_bridge import register
from structable.spark_bridge.catalog import installation
from structable.spark_bridge.jvm import format_lookup
from structable.spi import Field, Storage, TableAdmin, TableSpecification
from tests.spark.conftest import Tables, complete, every_store, give_up_snapshots, rows_of
from tests.spark.support.catalogs import both_stores, catalog_of, rows
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, create_runs
from tests.spark.test_pushdown import filters_itself


@every_store
def test_tables_are_listed_created_described_and_dropped(spark: SparkSession, catalog: str, storage: Storage) -> None:
    assert rows(spark, f"SHOW TABLES IN {catalog}") == []
    spark.sql(
        f"CREATE TABLE {catalog}.runs (app STRING, started BIGINT, status STRING, cost DOUBLE) "
        "TBLPROPERTIES ('primary-key' = 'app, started', 'indexes' = 'status')"
    )
    assert storage.admin.get_specification("runs") == RUNS
    assert rows(spark, f"SHOW TABLES IN {catalog}") == [("", "runs", False)]
    assert [row[:2] for row in rows(spark, f"DESCRIBE {catalog}.runs")] == [
        ("app", "string"),
        ("started", "bigint"),
        ("status", "string"),
        ("cost", "double"),
    ]
    assert rows(spark, f"SHOW TBLPROPERTIES {catalog}.runs") == [("indexes", "status"), ("primary-key", "app,started")]
    assert [column.nullable for column in spark.table(f"{catalog}.runs").schema] == [False, False, True, True]
    spark.sql(f"DROP TABLE {catalog}.runs")
    spark.sql(f"DROP TABLE IF EXISTS {catalog}.runs")
    assert storage.admin.list() == []
    assert rows(spark, f"SHOW TABLES IN {catalog}") == []


def test_tables_are_listed_as_those_of_spark(spark: SparkSession, catalog: str, storage: Storage) -> None:
    listed = spark.catalog
    create_runs(storage, 2)
    storage.admin.create(RUNS.evolve(name="walks"))
    both = [Table(name, catalog, [], None, "MANAGED", False) for name in ("runs", "walks")]
    spark.range(1).createTempView("viewed")
    try:
        assert listed.listTables(catalog) == listed.listTables(f"`{catalog}`") == both
        assert listed.listTables(catalog, "RUN*|none") == both[:1]
        assert listed.listTables(catalog, "it's \\ none") == []
        assert listed.tableExists(f"{catalog}.runs")
        assert not listed.tableExists(f"{catalog}.none")
        assert [column.name for column in listed.listColumns(f"{catalog}.runs")] == list(RUNS.field_names)
        assert "viewed" in [table.name for table in listed.listTables()]
        listed.setCurrentCatalog(catalog)
        assert listed.listTables() == both
        assert listed.listTables(pattern="w*") == both[1:]
        assert "viewed" in [table.name for table in listed.listTables("default")]
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            listed.listTables("none")
        listed.setCurrentCatalog("spark_catalog")
        spark.sql(f"CREATE DATABASE spark_catalog.{catalog}")  # which goes before the catalog
        assert listed.listTables(catalog, "r*") == []
        spark.sql("CREATE DATABASE spark_catalog.`2024`")
        assert listed.listTables("2024", "r*") == []
    finally:
        listed.setCurrentCatalog("spark_catalog")
        for database in (catalog, "`2024`"):
            spark.sql(f"DROP DATABASE IF EXISTS spark_catalog.{database}")
        listed.dropTempView("viewed")


@every_store
def test_a_table_is_read_as_load_does(
    spark: SparkSession, catalog: str, storage: Storage, tables: Tables, url: str
) -> None:
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(ROWS)
    read = spark.table(f"{catalog}.everything")
    assert read.schema == tables.read("everything").schema
    assert repr(rows_of(read, EVERYTHING)) == repr(complete(EVERYTHING, ROWS))
    filtered = spark.sql(f"SELECT text FROM {catalog}.everything WHERE name = 'a' AND number >= 0")
    assert not filters_itself(filtered)
    assert "ReadSchema: struct<text:string>" in plan(filtered)
    assert sorted(row.text for row in filtered.collect()) == ["abc", "abd\x01"]


def plan(frame: object) -> str:
    explain = frame._jdf.queryExecution().explainString  # type: ignore[attr-defined]
    modes = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[attr-defined]
    return str(explain(modes.fromString("formatted")))


def test_each_scan_has_its_filters_and_each_query_a_snapshot(
    spark: SparkSession, catalog: str, storage: Storage
) -> None:
    create_runs(storage, 10)
    table = spark.table(f"{catalog}.runs")
    both = table.where("started < 2").union(table.where("started > 7"))
    assert sorted(row.started for row in both.collect()) == [0, 1, 8, 9]
    storage.table("runs").delete({"app": "etl", "started": 0})
    assert table.count() == 9
    assert rows(spark, f"SELECT count(*) FROM {catalog}.runs a JOIN {catalog}.runs b USING (app, started)") == [(9,)]
    assert spark.read.option("splits", "1").table(f"{catalog}.runs").rdd.getNumPartitions() == 1


@both_stores
def test_the_planner_knows_how_large_a_table_is(spark: SparkSession, catalog: str, storage: Storage) -> None:
    create_runs(storage, 10)
    joined = spark.sql(f"SELECT * FROM {catalog}.runs a JOIN {catalog}.runs b USING (app, started)")
    assert "BroadcastHashJoin" in plan(joined)
    unknown = spark.read.option("statistics", "false").table(f"{catalog}.runs")
    assert "BroadcastHashJoin" not in plan(unknown.join(unknown.withColumnRenamed("cost", "c"), ["app", "started"]))


@both_stores
def test_a_table_is_changed_and_dropped_after_it_was_read(spark: SparkSession, url: str, storage: Storage) -> None:
    create_runs(storage, 10)
    with catalog_of(spark, url, graceSeconds=1) as name:
        assert len(rows(spark, f"SELECT * FROM {name}.runs")) == 10
        spark.sql(f"ALTER TABLE {name}.runs ADD COLUMNS (n INT)")
        assert len(rows(spark, f"SELECT * FROM {name}.runs WHERE n IS NULL")) == 10
        spark.sql(f"DROP TABLE {name}.runs")
    assert storage.admin.list() == []


@both_stores
def test_columns_are_added(spark: SparkSession, catalog: str, storage: Storage, url: str) -> None:
    create_runs(storage, 1)
    spark.sql(f"ALTER TABLE {catalog}.runs ADD COLUMNS (price DECIMAL(10, 2), day DATE)")
    added = RUNS.evolve(fields=[*RUNS.fields, Field.decimal("price", 10, 2), Field.date("day")])
    assert storage.admin.get_specification("runs") == added
    assert rows(spark, f"SELECT * FROM {catalog}.runs") == [("etl", 0, None, 0.0, None, None)]
    for columns, condition, message in (
        ("cost INT", "FIELD_ALREADY_EXISTS", "cost"),
        ("more ARRAY<INT>", "PYTHON_DATA_SOURCE_ERROR", "'more': is array<int>, a type that no field has"),
        ("more VARCHAR(3)", "PYTHON_DATA_SOURCE_ERROR", r"'more': is varchar\(3\), .*; declare STRING"),
    ):
        with pytest.raises(AnalysisException, match=message) as caught:
            spark.sql(f"ALTER TABLE {catalog}.runs ADD COLUMNS ({columns})")
        assert caught.value.getCondition() == condition
    assert storage.admin.get_specification("runs") == added


def test_columns_are_added_beside_others(
    spark: SparkSession, catalog: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 1)
    kind = type(storage.admin)
    change = kind.create_or_update
    theirs = [RUNS.evolve(fields=[*RUNS.fields, Field.int("theirs")])]

    def changed_before(admin: TableAdmin, spec: TableSpecification) -> None:
        if theirs:
            change(admin, theirs.pop())
        change(admin, spec)

    monkeypatch.setattr(kind, "create_or_update", changed_before)
    spark.sql(f"ALTER TABLE {catalog}.runs ADD COLUMNS (ours INT)")
    assert storage.admin.get_specification("runs").field_names == (*RUNS.field_names, "theirs", "ours")


def test_a_table_without_a_key_and_options(spark: SparkSession, catalog: str, storage: Storage) -> None:
    spark.sql(f"CREATE TABLE {catalog}.log (page STRING) TBLPROPERTIES ('primary-key' = '')")
    assert storage.admin.get_specification("log").table_options.append_only
    spark.sql(
        f"CREATE TABLE {catalog}.sums (page STRING, views BIGINT) USING structable TBLPROPERTIES "
        "('primary-key' = 'page', 'merge-engine' = 'aggregation', 'fields.views.aggregate-function' = 'sum')"
    )
    options = {"merge-engine": "aggregation", "fields.views.aggregate-function": "sum"}
    assert storage.admin.get_specification("sums") == TableSpecification(
        "sums", [Field.string("page"), Field.long("views")], ["page"], options=options
    )
    assert rows(spark, f"SHOW TBLPROPERTIES {catalog}.sums") == sorted({"primary-key": "page", **options}.items())
    spark.sql(f"INSERT INTO {catalog}.sums VALUES ('a', 1), ('a', 2)")
    spark.sql(f"INSERT INTO {catalog}.log VALUES ('a'), ('a')")
    assert rows(spark, f"SELECT * FROM {catalog}.sums") == [("a", 3)]
    assert rows(spark, f"SELECT * FROM {catalog}.log") == [("a",), ("a",)]


@both_stores
def test_existing_and_absent_tables_have_sparks_conditions(spark: SparkSession, catalog: str, storage: Storage) -> None:
    create_runs(storage, 1)
    again = f"{catalog}.runs (k INT) TBLPROPERTIES ('primary-key' = 'k')"
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"CREATE TABLE {again}")
    assert caught.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {again}")
    assert storage.admin.get_specification("runs") == RUNS
    for statement in (
        "SELECT * FROM {}.absent",
        "DROP TABLE {}.absent",
        "DESCRIBE {}.absent",
        "SELECT * FROM {}.a.runs",
        "SELECT * FROM {}.RUNS",
        "INSERT INTO {}.absent VALUES (1)",
        "ALTER TABLE {}.absent ADD COLUMNS (n INT)",
    ):
        with pytest.raises(AnalysisException) as caught:
            spark.sql(statement.format(catalog)).collect()
        assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND", statement


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("(k INT)", r"the property 'primary-key' is missing; give TBLPROPERTIES \('primary-key' = 'a,b'\)"),
        ("(k INT) TBLPROPERTIES ('primary-key' = 'x')", "'x'"),
        ("(k INT, v INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')", "field 'v': is NOT NULL, as key columns only"),
        ("(k INT, a ARRAY<INT>, m MAP<INT, INT>) TBLPROPERTIES ('primary-key' = 'k')", "field 'a, m': a is array<int>"),
        (
            "(k CHAR(2), c VARCHAR(3), m MAP<INT, INT>) TBLPROPERTIES ('primary-key' = 'k')",
            r"'k, c, m': k is char\(2\), a type that no field has; declare STRING; c is varchar\(3\), a type that no "
            r"field has; declare STRING; m is map<int,int>, a type that no field has; write to_json",
        ),
        ("(k INT) TBLPROPERTIES ('primary-key' = 'k', 'merge-engine' = 'x')", "merge-engine"),
        ("(k INT) USING parquet TBLPROPERTIES ('primary-key' = 'k')", "none of the format parquet"),
        ("(k INT) PARTITIONED BY (k) TBLPROPERTIES ('primary-key' = 'k')", "are for files"),
        ("(k INT) COMMENT 'x' TBLPROPERTIES ('primary-key' = 'k')", "keeps no comments: leave out that of the table"),
        ("(k INT COMMENT 'x') TBLPROPERTIES ('primary-key' = 'k')", "leave out that of column k"),
        ("(k INT) LOCATION '/x' TBLPROPERTIES ('primary-key' = 'k')", "have no location; leave it out"),
        ("(k INT) OPTIONS ('primary-key' = 'k')", "OPTIONS has 'primary-key'; give it in TBLPROPERTIES"),
        ("(k INT DEFAULT 1) TBLPROPERTIES ('primary-key' = 'k')", "does not support column default value"),
        ("(k INT, PRIMARY KEY (k))", "does not support table constraint"),
    ],
)
def test_what_no_table_can_have_is_refused(
    spark: SparkSession, catalog: str, storage: Storage, definition: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        spark.sql(f"CREATE TABLE {catalog}.t {definition}")
    assert storage.admin.list() == []


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE {}.runs DROP COLUMN cost", "adds columns only, and changed nothing"),
        ("ALTER TABLE {}.runs RENAME COLUMN cost TO price", "adds columns only, and changed nothing"),
        ("ALTER TABLE {}.runs ALTER COLUMN cost COMMENT 'x'", "adds columns only, and changed nothing"),
        ("ALTER TABLE {}.runs SET TBLPROPERTIES ('a' = 'b')", r"storage.admin.create_or_update"),
        ("ALTER TABLE {}.runs ADD COLUMN n INT FIRST", "leave out NOT NULL, FIRST and AFTER of column n"),
        ("ALTER TABLE {}.runs ADD COLUMN n INT NOT NULL", "leave out NOT NULL, FIRST and AFTER of column n"),
        ("ALTER TABLE {}.runs ADD COLUMN n INT DEFAULT 5", "keeps no defaults, and changed nothing: .* column n"),
        ("ALTER TABLE {}.runs RENAME TO other", "renames no table, and changed nothing: create other"),
        ("CREATE OR REPLACE TABLE {}.runs (k INT)", "replaces no table by an empty one.*TRUNCATE TABLE"),
    ],
)
def test_other_changes_are_refused_with_what_to_do_instead(
    spark: SparkSession, catalog: str, storage: Storage, statement: str, message: str
) -> None:
    create_runs(storage, 2)
    with pytest.raises(AnalysisException, match=message) as caught:
        spark.sql(statement.format(catalog))
    assert caught.value.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    assert storage.admin.get_specification("runs") == RUNS
    assert storage.table("runs").count() == 2


def test_options_of_a_catalog_are_those_of_all_reads(spark: SparkSession, url: str, storage: Storage) -> None:
    create_runs(storage, 100)
    with catalog_of(spark, url, splits=1, graceSeconds=1) as name:
        assert spark.table(f"{name}.runs").rdd.getNumPartitions() == 1
        spark.sql(f"INSERT INTO {name}.runs VALUES ('new', 1, NULL, NULL)")
        assert storage.table("runs").count() == 101
        for option, value in (("readChangeFeed", "true"), ("columns", "app"), ("url", "leveldb:///x")):
            with pytest.raises(AnalysisException, match=rf"(?i)option {option} is not for tables of a catalog"):
                spark.read.option(option, value).table(f"{name}.runs").collect()
        with pytest.raises(AnalysisException, match="option graceSeconds is 'none'"):
            spark.read.option("graceSeconds", "none").table(f"{name}.runs").collect()
    for option, message in (("columns", "the option columns is not for a catalog"), ("mode", "the option mode is not")):
        with catalog_of(spark, url, **{option: "app"}) as name, pytest.raises(AnalysisException, match=message):
            spark.table(f"{name}.runs")
    with catalog_of(spark, "") as name, pytest.raises(AnalysisException, match="the catalog has no store"):
        spark.table(f"{name}.runs")
    with catalog_of(spark, f"{url}-mistyped") as name, pytest.raises(AnalysisException, match="creates no stores"):
        spark.sql(f"SHOW TABLES IN {name}").collect()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_password_is_never_shown(spark: SparkSession, url: str, storage: Storage) -> None:
    create_runs(storage, 3)
    parts = urlsplit(url)
    secret = parts.password or "hunter2"  # which a server that trusts its users does not ask for
    given = f"{parts.username}:{secret}@{parts.netloc.rpartition('@')[2]}"
    with_password = urlunsplit(parts._replace(netloc=given))
    with catalog_of(spark, with_password) as name:
        frame = spark.sql(f"SELECT * FROM {name}.runs WHERE started > 0")
        shown = [str(row) for row in rows(spark, f"DESCRIBE EXTENDED {name}.runs")]
        shown += [str(row) for row in rows(spark, f"SHOW CREATE TABLE {name}.runs")]
        shown += [frame._jdf.queryExecution().toString(), plan(frame), str(len(frame.collect()))]
        shown += [str(row) for row in rows(spark, f"EXPLAIN EXTENDED INSERT INTO {name}.runs VALUES ('a', 1, 'x', 1)")]
        shown += [str(row) for row in rows(spark, f"EXPLAIN EXTENDED UPDATE {name}.runs SET cost = 1")]
        for statement in (
            "CREATE TABLE {}.t (k INT)",
            "INSERT INTO {}.runs VALUES (1)",
            "UPDATE {}.runs SET absent = 1",
            "DELETE FROM {}.runs WHERE upper(absent) = 'x'",
            "SELECT * FROM {}.absent",
        ):
            with pytest.raises(AnalysisException) as caught:
                spark.sql(statement.format(name)).collect()
            shown.append(str(caught.value))
    assert [text for text in shown if secret in text] == []
    give_up_snapshots(spark)


def test_another_session_needs_its_own_call(spark: SparkSession, url: str, storage: Storage) -> None:
    create_runs(storage, 3)
    other = spark.newSession()
    with catalog_of(other, url) as name:
        with pytest.raises(AnalysisException, match=r"call register\(spark\) for it"):
            other.sql(f"SHOW TABLES IN {name}")
        register(other)
        frame = other.table(f"{name}.runs").where("started > 0")
        assert not filters_itself(frame)
        assert frame.count() == 2


def test_what_spark_refuses_is_a_warning(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_CLASSES", ("Broken",))
    monkeypatch.setattr(format_lookup, "java_source", lambda *_: "class Broken extends No {}")
    with pytest.warns(UserWarning, match="takes no catalog of structable"):
        register(spark.newSession())
