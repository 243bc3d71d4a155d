"""Decimals of up to 18 digits reach Spark as integers, and are the same decimals there."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from structable.spark_bridge.read.split_results import unscaled_batch
from structable.spi import Field, Storage, TableSpecification, Value
from tests.spark.conftest import Tables, every_store, give_up_snapshots

SPEC = TableSpecification(
    "amounts",
    [
        Field.decimal("id", 18, 0),
        Field.decimal("small", 1, 1),
        Field.decimal("price", 15, 2),
        Field.decimal("most", 18, 18),
        Field.decimal("more", 19, 0),
        Field.long("number"),
    ],
    primary_key=["number"],
)
NINES = 10**18 - 1
ROWS: list[dict[str, Value]] = [
    {
        "id": Decimal(number),
        "small": None if number == 0 else Decimal(number % 10).scaleb(-1),
        "price": Decimal(number).scaleb(-2) if abs(number) < 10**15 else None,
        "most": Decimal(number).scaleb(-18),
        "more": Decimal(number) * 10,
        "number": number,
    }
    for number in (-NINES, -1, 0, 1, 123, 10**15 - 1, NINES)
]


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


@every_store
def test_rows_are_the_same(tables: Tables, storage: Storage) -> None:
    storage.admin.create(SPEC)
    storage.table("amounts").upsert_many(ROWS)
    frame = tables.read("amounts")
    assert "MakeDecimal(price#" in plan_of(frame)
    assert "MakeDecimal(more#" not in plan_of(frame)
    assert "MakeDecimal" not in plan_of(tables.read("amounts", pushdown="none"))
    wanted = [tuple(row[name] for name in SPEC.field_names) for row in ROWS]
    for level in ("all", "filters", "none"):
        assert [tuple(row) for row in tables.read("amounts", pushdown=level).orderBy("number").collect()] == wanted
    assert frame.schema == tables.read("amounts", pushdown="none").schema


def test_what_is_done_with_them(tables: Tables, storage: Storage) -> None:
    storage.admin.create(SPEC)
    storage.table("amounts").upsert_many(ROWS)
    for level in ("all", "filters", "none"):
        tables.read("amounts", pushdown=level).createOrReplaceTempView("amounts")
        for query, wanted in {
            "select sum(price), min(most), max(small), count(price) from amounts": [
                (Decimal("10000000000001.22"), Decimal(-NINES).scaleb(-18), Decimal("0.9"), 5)
            ],
            "select id from amounts where price = 0.01 or price is null order by id": [
                (Decimal(-NINES),),
                (Decimal(1),),
                (Decimal(NINES),),
            ],
            "select price from amounts order by number limit 2": [(None,), (Decimal("-0.01"),)],
            "select min(id), max(id) from amounts": [(Decimal(-NINES), Decimal(NINES))],
            "select a.price from amounts a join amounts b on a.id = b.id where b.number = 123": [(Decimal("1.23"),)],
            "select (select max(price) from amounts where number < 9), count(*) from amounts where most > 0.5": [
                (Decimal("0.01"), 1)
            ],
            "select price, count(*) from amounts where number in (1, 123) group by price order by price": [
                (Decimal("0.01"), 1),
                (Decimal("1.23"), 1),
            ],
        }.items():
            assert [tuple(row) for row in tables.session.sql(query).collect()] == wanted, query


def test_an_explicit_schema_and_columns(tables: Tables, storage: Storage) -> None:
    storage.admin.create(SPEC)
    storage.table("amounts").upsert_many(ROWS)
    frame = tables.reader("amounts").schema("price decimal(15,2), number long").load()
    assert frame.where("number = 123").collect() == [(Decimal("1.23"), 123)]
    assert tables.read("amounts", columns="id,price").where("id = 123").collect() == [(Decimal(123), Decimal("1.23"))]


@pytest.mark.parametrize("begin", [0, 1, 3])
@given(numbers=st.lists(st.none() | st.integers(-(10**15) + 1, 10**15 - 1), max_size=20))
def test_batches_hold_the_unscaled_values(begin: int, numbers: list[int | None]) -> None:
    decimals = [None if number is None else Decimal(number).scaleb(-2) for number in numbers]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(decimals, pa.decimal128(15, 2)), pa.array(numbers, pa.int64())], names=["price", "number"]
    )
    schema = pa.schema([("price", pa.int64()), ("number", pa.int64())])
    made = unscaled_batch(batch.slice(begin), schema)
    made.validate(full=True)
    assert made.column("price").to_pylist() == made.column("number").to_pylist() == numbers[begin:]


@pytest.mark.parametrize(
    "schema",
    [
        "price decimal(10,1)",
        "price long, id decimal(18,0)",
        "price decimal(15,3), number long",
        "most decimal(18,2), more decimal(19,0)",
        "more decimal(18,0)",
        "price decimal(15,2) not null",
    ],
)
def test_a_wrong_schema_is_refused(tables: Tables, storage: Storage, schema: str) -> None:
    storage.admin.create(SPEC)
    storage.table("amounts").upsert_many(ROWS)
    for level in ("all", "none"):
        with pytest.raises(Exception, match="InvalidFieldError"):
            tables.reader("amounts", pushdown=level).schema(schema).load().collect()


def test_a_table_of_another_scale_is_refused(tables: Tables, storage: Storage) -> None:
    storage.admin.create(SPEC)
    storage.table("amounts").upsert_many(ROWS)
    frame = tables.read("amounts", graceSeconds=0.1).select("price", "number")
    never_collected = tables.read("amounts").select("price")
    frame.collect()
    give_up_snapshots(tables.session)
    storage.admin.drop("amounts")
    fields = [Field.decimal("price", 15, 4) if field.name == "price" else field for field in SPEC.fields]
    storage.admin.create(TableSpecification("amounts", fields, primary_key=["number"]))
    storage.table("amounts").upsert({"number": 1, "price": Decimal("1.2345")})
    for one in (frame, frame.select("*"), frame.groupBy().sum("price"), never_collected):
        with pytest.raises(Exception, match=r"InvalidFieldError.*'price'"):
            one.collect()
