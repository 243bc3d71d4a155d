"""Columns whose types are not the table's: cast where no value can be lost, else refused before a task runs."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.functions import col

from structable.spark_bridge import TableRef, foreach_batch, send_to, send_update_to
from structable.spark_bridge.base.time_zones import midnights, time_zone
from structable.spark_bridge.base.types import castable, check_write_schema
from structable.spi import Field, InvalidFieldError, Storage, TableSpecification, WriteMode
from tests.spark.conftest import Tables
from tests.spark.support.arrivals import Arrivals, ended

two_stores = pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
ZONE = ZoneInfo("America/Los_Angeles")
"""That of the session."""

INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
FLOATS = [float("-inf"), float("inf"), float("nan"), -0.0, 2.0**-149, 3.4028234663852886e38, None]
DAYS = [dt.date(1, 1, 1), dt.date(9999, 12, 30), dt.date(1582, 10, 10), dt.date(2024, 11, 3), None]
LARGE = Decimal("12345678.99")


def casts() -> tuple[TableSpecification, str, dict[str, list[object]]]:
    """Return a table, a DataFrame's columns that are cast to its fields, and their values."""
    fields, columns, values = [Field.long("k")], ["k tinyint"], dict[str, list[object]]()
    for place, (kind, bits) in enumerate(INTEGERS.items()):
        extremes: list[object] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, None]
        digits = len(str(2 ** (bits - 1)))
        wider = [getattr(Field, wide)(f"{kind}_{wide}") for wide in list(INTEGERS)[place + 1 :]]
        exact = [Field.decimal(f"{kind}_exact", digits, 0), Field.decimal(f"{kind}_scaled", 38, 38 - digits)]
        for field in (*wider, *exact):
            fields.append(field)
            columns.append(f"{field.name} {spark_name(kind)}")
            values[field.name] = extremes
    for field, given, own in (
        (Field.double("float_double"), "float", FLOATS),
        (Field.timestamp("date_timestamp"), "date", DAYS),
        (Field.timestamp_ntz("date_local"), "date", DAYS),
        (Field.decimal("decimal_both", 38, 20), "decimal(10,2)", [LARGE, -LARGE, Decimal("0.01"), None]),
        (Field.decimal("decimal_left", 11, 2), "decimal(10,2)", [LARGE, -LARGE, Decimal("0.01"), None]),
        (Field.decimal("decimal_right", 12, 4), "decimal(10,2)", [LARGE, -LARGE, Decimal("0.01"), None]),
        (Field.boolean("void_boolean"), "void", [None]),
        (Field.decimal("void_decimal", 9, 2), "void", [None]),
        (Field.string("void_string"), "void", [None]),
        (Field.bytes("void_bytes"), "void", [None]),
        (Field.timestamp("void_timestamp"), "void", [None]),
    ):
        fields.append(field)
        columns.append(f"{field.name} {given}")
        values[field.name] = list(own)
    return TableSpecification("casts", fields, ["k"]), ", ".join(columns), values


def spark_name(kind: str) -> str:
    return {"byte": "tinyint", "short": "smallint", "long": "bigint"}.get(kind, kind)


def expected(field: Field, value: object) -> object:
    """Return the value of a field, as Python compares it and shows its type."""
    if value is None:
        return "None"
    match field.name:
        case "date_timestamp":
            assert isinstance(value, dt.date)
            return repr(dt.datetime(value.year, value.month, value.day, tzinfo=ZONE).astimezone(dt.UTC))
        case "date_local":
            assert isinstance(value, dt.date)
            return repr(dt.datetime(value.year, value.month, value.day))
    if field.precision is not None:
        assert isinstance(value, int | Decimal)
        return repr(Decimal(f"{Decimal(value):.{field.scale}f}"))
    return repr(value)


def frame_write(frame: DataFrame, table: TableRef) -> None:
    frame.write.format("structable").option("url", table.url).option("table", table.name).mode("append").save()


def sent(frame: DataFrame, table: TableRef) -> None:
    send_to(frame, table)


def updated(frame: DataFrame, table: TableRef) -> None:
    send_update_to(frame, table, default={})


@two_stores
@pytest.mark.parametrize("write", [frame_write, sent, updated])
def test_each_cast_keeps_every_value(
    spark: SparkSession, storage: Storage, url: str, write: Callable[[DataFrame, TableRef], None]
) -> None:
    spec, schema, values = casts()
    storage.admin.create(spec)
    count = max(map(len, values.values()))
    rows = [(k, *(own[k % len(own)] for own in values.values())) for k in range(count)]
    write(spark.createDataFrame(rows, schema), TableRef(url, spec.name))
    stored = list(storage.table(spec.name).scan())
    assert [row["k"] for row in stored] == list(range(count))
    for field in spec.fields[1:]:
        own = values[field.name]
        assert [repr(row[field.name]) for row in stored] == [
            expected(field, own[k % len(own)]) for k in range(count)
        ], field


def test_streams_cast_as_batches_do(
    spark: SparkSession, storage: Storage, url: str, tmp_path: Path, tables: Tables
) -> None:
    fields = [Field.long("k"), Field.timestamp("day"), Field.double("cost"), Field.decimal("exact", 10, 2)]
    for name in ("format", "function", "sent"):
        storage.admin.create(TableSpecification(name, fields, ["k"]))
    arrivals = Arrivals(spark, tmp_path / "arrivals", "k int, day date, cost float, exact smallint")
    arrivals.add({"k": 1, "day": "2024-07-01", "cost": 0.5, "exact": 7}, {"k": 2})
    stream, folder = arrivals.stream(), tmp_path / "checkpoints"
    place = stream.writeStream.format("structable").option("url", url).option("table", "format")
    function = stream.writeStream.foreachBatch(foreach_batch(url, "function"))
    for writer, name in ((place, "format"), (function, "function")):
        ended(writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start())
    now = {"availableNow": True}
    ended(send_to(stream, TableRef(url, "sent"), name="all", checkpoint=str(folder / "sent"), trigger=now))
    day = dt.datetime(2024, 7, 1, 7, tzinfo=dt.UTC)
    for name in ("format", "function", "sent"):
        assert [tuple(row.values()) for row in storage.table(name).scan()] == [
            (1, day, 0.5, Decimal("7.00")),
            (2, None, None, None),
        ]


@pytest.mark.parametrize(
    "zone",
    ["America/Los_Angeles", "America/Sao_Paulo", "Pacific/Apia", "America/Toronto", "+05:30", "GMT-8", "UTC", "Z"],
)
def test_days_begin_as_spark_says(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    days = "explode(sequence(date'1850-01-01', date'2060-01-01'))"
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        begins = spark.sql(f"select day, unix_micros(cast(day as timestamp)) begin from (select {days} day)").toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    found = midnights(begins["day"].combine_chunks(), time_zone(zone)).cast(pa.int64())
    assert found == begins["begin"].combine_chunks()


def test_the_zone_is_that_of_the_session_that_writes(spark: SparkSession, storage: Storage, url: str) -> None:
    storage.admin.create(TableSpecification("days", [Field.long("k"), Field.timestamp("day")], ["k"]))
    frame, table = spark.sql("select 1 k, date'2024-07-01' day"), TableRef(url, "days")

    def hour() -> int:
        row = storage.table("days").read((1,))
        assert row is not None
        assert isinstance(row.day, dt.datetime)
        return row.day.hour

    before = str(spark.conf.get("spark.sql.session.timeZone"))
    try:
        for zone, begins in (("Asia/Tokyo", 15), ("-03:00", 3), (before, 7)):
            spark.conf.set("spark.sql.session.timeZone", zone)
            frame_write(frame, table)
            assert hour() == begins
        spark.conf.set("spark.sql.session.timeZone", "JST")  # a name of Java alone
        with pytest.raises(AnalysisException, match=r"the time zone 'JST' is not known here; cast it: .cast"):
            frame_write(frame, table)
        frame_write(frame.withColumn("day", col("day").cast("timestamp")), table)
        assert hour() == 15
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@two_stores
def test_days_that_no_timestamp_has_are_refused_by_their_task(spark: SparkSession, storage: Storage, url: str) -> None:
    storage.admin.create(TableSpecification("days", [Field.long("k"), Field.timestamp("day")], ["k"]))
    for day in (
        "make_date(12000, 1, 1)",
        "date'1970-01-01' + 200000000",
        "date'9999-12-31' + 1",
        "date'0001-01-01' - 1",
    ):
        with pytest.raises(PythonException, match="field 'day'"):
            frame_write(spark.sql(f"select 1L k, {day} day"), TableRef(url, "days"))
    assert list(storage.table("days").scan()) == []


def test_only_lossless_casts_are_made() -> None:
    kinds: list[spark.DataType] = [spark.ByteType(), spark.ShortType(), spark.IntegerType(), spark.LongType()]
    for place, kind in enumerate(kinds):
        made = [castable(kind, getattr(Field, wide)("f")) for wide in INTEGERS]
        assert made == [False] * place + [True] * (4 - place)
        digits = len(str(2 ** (8 * 2**place - 1)))
        assert castable(kind, Field.decimal("f", 38, 38 - digits))
        assert castable(kind, Field.decimal("f", digits, 0))
        assert not castable(kind, Field.decimal("f", 38, 39 - digits))
        assert not castable(kind, Field.decimal("f", digits - 1, 0))
        assert not castable(kind, Field.double("f"))
    assert not castable(spark.DoubleType(), Field.float("f"))
    for precision, scale, fits in ((10, 2, True), (9, 2, False), (10, 1, False), (11, 3, True), (11, 4, False)):
        assert castable(spark.DecimalType(10, 2), Field.decimal("f", precision, scale)) is fits
    others: list[tuple[spark.DataType, Field]] = [
        (spark.TimestampType(), Field.date("f")),
        (spark.TimestampType(), Field.timestamp_ntz("f")),
        (spark.TimestampNTZType(), Field.timestamp("f")),
        (spark.BooleanType(), Field.byte("f")),
        (spark.StringType(), Field.bytes("f")),
        (spark.StringType(), Field.date("f")),
        (spark.LongType(), Field.string("f")),
        (spark.DecimalType(3, 0), Field.long("f")),
        (spark.DecimalType(3, 0), Field.double("f")),
    ]
    for kind, field in others:
        assert not castable(kind, field)


def test_one_error_names_every_difference_and_its_remedy(spark: SparkSession, storage: Storage, url: str) -> None:
    fields = [Field.string(name) for name in "abcde"]
    spec = TableSpecification("t", [Field.long("k"), Field.long("n"), *fields, Field.int("f")], ["k", "n"])
    storage.admin.create(spec)
    schema = spark.sql("select 1").selectExpr(
        "array(1) a", "map('x', 1) b", "named_struct('x', 1) c", "parse_json('1') d", "interval 1 second e", "1L f",
        "1 g", "null k",
    )  # fmt: skip
    remedies = [
        "a is array<int> in the DataFrame, a type that no field has, and the field is string; write to_json(...) "
        "into a string field, or the elements as rows of a table of their own",
        "b is map<string,int> in the DataFrame",
        "c is struct<x:int> in the DataFrame, a type that no field has, and the field is string; write to_json(...) "
        "into a string field, or one column for each member",
        "d is variant in the DataFrame",
        "e is interval second in the DataFrame, a type that no field has, and the field is string; write its number",
        "f is bigint in the DataFrame; cast it: .cast('int')",
        "g is not a field; the fields are k, n, a, b, c, d, e, f (in exactly this case); leave it out",
        "k is void in the DataFrame; cast it: .cast('bigint')",
        "n is part of the primary key and missing in the DataFrame",
    ]
    with pytest.raises(InvalidFieldError) as checked:
        check_write_schema(spec, schema.schema, WriteMode.UPSERT)
    assert checked.value.field == "a, b, c, d, e, f, g, k, n"
    with pytest.raises(InvalidFieldError) as sending:
        send_to(schema, TableRef(url, "t"))
    with pytest.raises(AnalysisException) as written:
        frame_write(schema, TableRef(url, "t"))
    for error in (checked, sending, written):
        for remedy in remedies:
            assert remedy in str(error.value)
    assert list(storage.table("t").scan()) == []
