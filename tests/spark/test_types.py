from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from structable import spark_bridge
from structable.spark_bridge.base.types import arrow_schema_of, check_read_schema, check_write_schema, spark_schema
from structable.spi import InvalidFieldError, WriteMode
from structable.spi.arrow import arrow_schema
from tests.spark.support.samples import EVERYTHING, RUNS


def test_the_arrow_schema_that_spark_demands_is_the_tables_own() -> None:
    demanded: pa.Schema = to_arrow_schema(spark_schema(EVERYTHING), timezone="UTC")
    assert arrow_schema_of(spark_schema(EVERYTHING)) == demanded == arrow_schema(EVERYTHING)


def test_nullability_is_that_of_the_schema() -> None:
    nullable = spark.StructType([spark.StructField("app", spark.StringType(), nullable=True)])
    assert arrow_schema_of(nullable) == pa.schema([pa.field("app", pa.string(), nullable=True)])


def test_pysparks_own_schemas_of_arrow_are_not_used() -> None:
    # Their parameters differ between PySpark 4.1 and 4.2.
    for module in Path(spark_bridge.__file__).parent.rglob("*.py"):
        assert "pyspark.sql.pandas" not in module.read_text(), module


def test_columns_come_in_the_order_asked_for() -> None:
    assert spark_schema(RUNS, ["cost", "app"]).simpleString() == "struct<cost:double,app:string>"


def test_only_key_fields_are_not_nullable() -> None:
    assert [field.name for field in spark_schema(RUNS).fields if not field.nullable] == ["app", "started"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("app string, colour string", "field 'colour': is not a field; the fields are app, started, status, cost"),
        ("App string", "field 'App': is not a field"),
        ("started int", "is of type bigint and cannot be read as int"),
        ("status string not null", "may be null, and the schema says NOT NULL"),
    ],
)
def test_a_schema_that_does_not_fit_cannot_be_read(schema: str, message: str) -> None:
    with pytest.raises(InvalidFieldError, match=message):
        check_read_schema(RUNS, _schema(schema))


def test_a_key_field_may_be_read_as_nullable_or_not() -> None:
    assert check_read_schema(RUNS, _schema("cost double, app string, started bigint not null")) == (
        "cost",
        "app",
        "started",
    )


@pytest.mark.parametrize(
    ("schema", "mode", "message"),
    [
        ("app string, cost double", WriteMode.UPSERT, "field 'started': is part of the primary key and missing"),
        ("app string, started bigint, colour int", WriteMode.UPSERT, "field 'colour': is not a field"),
        (
            "app string, started bigint, cost bigint",
            WriteMode.UPSERT,
            r"is bigint in the DataFrame; cast it: .cast\('double'\)",
        ),
        ("app string, started void", WriteMode.UPSERT, "field 'started': is void in the DataFrame"),
        ("app string, started bigint, cost double", WriteMode.DELETE, "delete takes only app, started"),
        ("app string, started bigint, cost double, cost double", WriteMode.INSERT, "field 'cost': appears twice"),
    ],
)
def test_a_schema_that_does_not_fit_cannot_be_written(schema: str, mode: WriteMode, message: str) -> None:
    with pytest.raises(InvalidFieldError, match=message):
        check_write_schema(RUNS, _schema(schema), mode)


def test_a_column_of_null_literals_can_be_written() -> None:
    check_write_schema(RUNS, _schema("started bigint, app string, cost void"), WriteMode.UPSERT)


_NAMED = {
    "string": spark.StringType(),
    "bigint": spark.LongType(),
    "int": spark.IntegerType(),
    "double": spark.DoubleType(),
    "float": spark.FloatType(),
    "void": spark.NullType(),
}


def _schema(text: str) -> spark.StructType:
    # Spark's own parser needs a running session.
    fields = []
    for column in text.split(", "):
        name, kind, *rest = column.split()
        fields.append(spark.StructField(name, _NAMED[kind], not rest))
    return spark.StructType(fields)


def test_one_error_names_everything_that_keeps_a_write_back() -> None:
    with pytest.raises(InvalidFieldError) as caught:
        check_write_schema(RUNS, _schema("started string, cost bigint, unknown int"), WriteMode.UPSERT)
    assert caught.value.field.split(", ") == ["started", "cost", "unknown", "app"]
    for part in (".cast('bigint')", ".cast('double')", "is not a field", "missing in the DataFrame"):
        assert part in caught.value.reason
