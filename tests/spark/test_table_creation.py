"""`create_table`: tables of the schemas of DataFrames."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge import TableRef, create_table
from structable.spi import (
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    SchemaIncompatibleError,
    Storage,
    StoreNotFoundError,
    TableAlreadyExistsError,
    TableSpecification,
)
from tests.spark.conftest import Tables, complete, every_store, rows_of
from tests.spark.support.samples import EVERYTHING, ROWS


@every_store
def test_a_table_of_every_type_takes_the_rows_of_its_frame(tables: Tables, storage: Storage, url: str) -> None:
    frame = tables.frame(EVERYTHING, ROWS)
    made = create_table(frame, TableRef(url, "made"), ["name", "number"], indexes=iter(["medium", "text"]))
    assert made == storage.admin.get_specification("made")
    assert (made.fields, made.primary_key, made.indexes) == (
        EVERYTHING.fields,
        EVERYTHING.primary_key,
        EVERYTHING.indexes,
    )
    assert list(storage.table("made").scan()) == []
    tables.write(frame, "made")
    assert repr(rows_of(tables.read("made"), made)) == repr(complete(EVERYTHING, ROWS))


def test_key_columns_lose_nullability(spark: SparkSession, tables: Tables, storage: Storage, url: str) -> None:
    create_table(spark.sql("select nullif(1, 2) k, 2 v"), TableRef(url, "t"), ["k"])
    assert [column.nullable for column in tables.read("t").schema.fields] == [False, True]


def test_a_table_has_the_options_given_and_no_key_without_one(
    spark: SparkSession, tables: Tables, storage: Storage, url: str
) -> None:
    frame = spark.sql("select 'a' page, 1L views")
    options = {"merge-engine": "aggregation", "fields.views.aggregate-function": "sum"}
    assert create_table(frame, TableRef(url, "sums"), ["page"], options=options).options == options
    tables.write(frame.union(frame), "sums")
    assert [row.astuple() for row in storage.table("sums").scan()] == [("a", 2)]
    log = create_table(frame, TableRef(url, "log"))
    assert log.keyless
    assert log.table_options.append_only
    tables.write(frame.union(frame), "log")
    assert [row.astuple() for row in storage.table("log").scan()] == [("a", 1)] * 2
    bag = create_table(frame, TableRef(url, "bag"), options={"write-mode": "change-log"})
    assert bag.keyless
    assert not bag.table_options.append_only


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_an_existing_table_is_an_error_left_alone_or_changed(spark: SparkSession, storage: Storage, url: str) -> None:
    old = TableSpecification("t", [Field.long("k"), Field.int("n")], ["k"])
    storage.admin.create(old)
    wider, ref = spark.sql("select 1L k, 2L n, 'x' more"), TableRef(url, "t")
    with pytest.raises(TableAlreadyExistsError):
        create_table(wider, ref, ["k"])
    assert create_table(wider, ref, ["k"], if_exists="ignore") == old == storage.admin.get_specification("t")
    with pytest.raises(SchemaIncompatibleError):
        create_table(wider, ref, ["more"], if_exists="update")
    new = TableSpecification("t", [Field.long("k"), Field.long("n"), Field.string("more")], ["k"])
    assert create_table(wider, ref, ["k"], if_exists="update") == new == storage.admin.get_specification("t")
    older = spark.sql("select 1L k, 2 n")
    assert create_table(older, ref, ["k"], if_exists="update") == new == storage.admin.get_specification("t")
    for if_exists in ("ignore", "update"):
        other = create_table(wider, TableRef(url, if_exists), ["k"], if_exists=if_exists)
        assert other == storage.admin.get_specification(if_exists)


def test_types_without_a_counterpart_are_named_with_their_remedies(
    spark: SparkSession, storage: Storage, url: str
) -> None:
    frame = spark.sql(
        "select 1 k, array(1) a, map('x', 1) b, struct(1 as x) c, parse_json('1') d, interval 1 month e, null f"
    )
    with pytest.raises(InvalidFieldError) as caught:
        create_table(frame, TableRef(url, "t"), ["k"])
    assert caught.value.field == "a, b, c, d, e, f"
    for told in (
        "a is array<int> in the DataFrame, a type that no field has; write to_json(...) into a string field, or the",
        "b is map<string,int> in the DataFrame",
        "c is struct<x:int> in the DataFrame",
        "d is variant in the DataFrame",
        "e is interval month in the DataFrame",
        "f is void in the DataFrame, a type that no field has; cast it to the type of its values to come",
    ):
        assert told in str(caught.value)
    assert not storage.admin.exists("t")


def test_wrong_arguments_create_nothing(spark: SparkSession, storage: Storage, url: str, tmp_path: Path) -> None:
    frame, ref = spark.sql("select 1 k, 2.5D cost"), TableRef(url, "t")
    for key in (["absent"], ["cost"], ["k", "k"], "k"):
        with pytest.raises(InvalidSpecificationError):
            create_table(frame, ref, key)
    with pytest.raises(TypeError, match=r"ref is 't'; it must be a TableRef"):
        create_table(frame, "t", ["k"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="if_exists is 'replace'; allowed are error, ignore, update"):
        create_table(frame, ref, ["k"], if_exists="replace")
    assert not storage.admin.exists("t")
    with pytest.raises(StoreNotFoundError):
        create_table(frame, TableRef(f"leveldb://{tmp_path}/mistyped", "t"), ["k"])
