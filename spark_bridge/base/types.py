"""Spark's form of tables: the schema of a specification, and whether a DataFrame's schema fits it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from structable.spi import CHANGE_TYPE, FEED_COLUMNS, Field, FieldType, InvalidFieldError, TableSpecification, WriteMode
from structable.spi.arrow import arrow_type
from structable.spi.authors import check_mode, not_a_field

_TYPES: dict[FieldType, spark.DataType] = {
    FieldType.BOOLEAN: spark.BooleanType(),
    FieldType.BYTE: spark.ByteType(),
    FieldType.SHORT: spark.ShortType(),
    FieldType.INT: spark.IntegerType(),
    FieldType.LONG: spark.LongType(),
    FieldType.FLOAT: spark.FloatType(),
    FieldType.DOUBLE: spark.DoubleType(),
    FieldType.STRING: spark.StringType(),
    FieldType.BYTES: spark.BinaryType(),
    FieldType.DATE: spark.DateType(),
    FieldType.TIMESTAMP: spark.TimestampType(),
    FieldType.TIMESTAMP_NTZ: spark.TimestampNTZType(),
}


def spark_type(field: Field) -> spark.DataType:
    """Return the Spark type of a field."""
    if field.type is FieldType.DECIMAL:
        return spark.DecimalType(field.precision or 0, field.scale or 0)
    return _TYPES[field.type]


def spark_schema(spec: TableSpecification, columns: Iterable[str] | None = None) -> spark.StructType:
    """Return the Spark schema of a table's columns, in the given order; key fields are not nullable."""
    names = spec.field_names if columns is None else tuple(columns)
    return spark.StructType(
        [spark.StructField(name, spark_type(_field(spec, name)), name not in spec.primary_key) for name in names]
    )


def arrow_schema_of(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes columns of tables; PySpark's own has other parameters in 4.1."""
    return pa.schema([pa.field(one.name, _arrow_type(one.dataType), one.nullable) for one in schema.fields])


def field_changed(table: str, name: str, was: pa.Field[Any], now: pa.Field[Any]) -> InvalidFieldError:
    """Return the error for a field whose type has changed since Spark planned."""
    shown = [f"{one.type}{'' if one.nullable else ' not null'}" for one in (was, now)]
    reason = f"has changed since this DataFrame was loaded, from {shown[0]} to {shown[1]}; load it again"
    return InvalidFieldError(table, name, reason)


def _arrow_type(kind: spark.DataType) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return next(arrow_type(Field("_", own)) for own, listed in _TYPES.items() if listed == kind)


_FEED_SCHEMA = spark.StructType(
    [
        spark.StructField(name, kind, nullable=False)
        for name, kind in zip(FEED_COLUMNS, (spark.StringType(), spark.LongType(), spark.TimestampType()), strict=True)
    ]
)


def feed_schema(spec: TableSpecification, columns: Iterable[str] | None = None) -> spark.StructType:
    """Return the Spark schema of a table's changes: the columns, and what happened, in which version and when."""
    return spark.StructType([*spark_schema(spec, columns).fields, *_FEED_SCHEMA.fields])


def check_feed_schema(spec: TableSpecification, schema: spark.StructType) -> tuple[str, ...]:
    """Return the fields of a schema to read changes with, at least one; rejects as `check_read_schema` does."""
    own = spark.StructType([column for column in schema.fields if column.name not in FEED_COLUMNS])
    for column in schema.fields:
        if column.name in FEED_COLUMNS and column.dataType != _FEED_SCHEMA[column.name].dataType:
            kept, wanted = _text(_FEED_SCHEMA[column.name].dataType), _text(column.dataType)
            raise InvalidFieldError(spec.name, column.name, f"is of type {kept} and cannot be read as {wanted}")
    return check_read_schema(spec, own) if own.fields or not schema.fields else spec.field_names[:1]


def check_read_schema(spec: TableSpecification, schema: spark.StructType) -> tuple[str, ...]:
    """Return the columns of a schema to read a table with, given by the user or taken from the table at `load()`.

    Rejects a column that the table lacks, has with another type, or allows to be null although the schema does not.
    """
    for column in schema.fields:
        field = _field(spec, column.name)
        if column.dataType != spark_type(field):
            kept, wanted = _text(spark_type(field)), _text(column.dataType)
            raise InvalidFieldError(spec.name, field.name, f"is of type {kept} and cannot be read as {wanted}")
        if not column.nullable and column.name not in spec.primary_key:
            raise InvalidFieldError(spec.name, field.name, "may be null, and the schema says NOT NULL")
    if not schema.fields:
        raise InvalidFieldError(spec.name, "schema", "has no columns; name at least one")
    return tuple(schema.fieldNames())


def check_write_schema(spec: TableSpecification, schema: spark.StructType, mode: WriteMode) -> None:
    """Check that the rows of a DataFrame can be written to a table, before any of them is computed.

    Rejects a mode that the table does not have, a column that is unknown, repeated, of another type or not wanted by
    the mode, and a missing key column.
    """
    check_mode(spec, mode)
    refuse(spec.name, write_problems(spec, schema, mode))


def refuse(table: str, problems: Iterable[InvalidFieldError]) -> None:
    """Raise the only problem, or one InvalidFieldError that names all of them."""
    found = list(problems)
    if len(found) > 1:
        fields = ", ".join(dict.fromkeys(problem.field for problem in found))
        raise InvalidFieldError(table, fields, "; ".join(f"{one.field} {one.reason}" for one in found))
    for problem in found:
        raise problem


def write_problems(
    spec: TableSpecification, schema: spark.StructType, mode: WriteMode, beside: Container[str] = ()
) -> Iterator[InvalidFieldError]:
    """Yield the problems of writing the rows of a DataFrame to a table; columns `beside` are not written."""
    names = schema.fieldNames()
    changes = mode is WriteMode.CHANGES and CHANGE_TYPE not in beside
    if changes:
        kinds = [column for column in schema.fields if column.name == CHANGE_TYPE]
        if len(kinds) != 1 or kinds[0].dataType != spark.StringType():
            reason = "must be in the DataFrame once, as a string column of row kinds such as '+I' or 'delete'"
            yield InvalidFieldError(spec.name, CHANGE_TYPE, f"{reason}; mode changes needs it")
    for place, column in enumerate(schema.fields):
        if column.name in beside or (changes and column.name in FEED_COLUMNS):
            continue
        if column.name not in spec:
            reason = f"{_unknown(spec, column.name).reason}; leave it out"
            yield InvalidFieldError(spec.name, column.name, reason)
            continue
        field, is_key = spec.field(column.name), column.name in spec.primary_key
        if column.name in names[:place]:
            yield InvalidFieldError(spec.name, column.name, "appears twice in the DataFrame")
        elif mode is WriteMode.DELETE and not is_key:
            key = ", ".join(spec.primary_key)
            yield InvalidFieldError(spec.name, column.name, f"is not part of the key; delete takes only {key}")
        elif not castable(column.dataType, field) or (is_key and column.dataType == spark.NullType()):
            reason = f"is {_text(column.dataType)} in the DataFrame{_remedy(column.dataType, field)}"
            yield InvalidFieldError(spec.name, column.name, reason)
    for name in spec.primary_key:
        if name not in names or name in beside:
            reason = f"is part of the primary key and missing in the DataFrame, which has {', '.join(names)}"
            yield InvalidFieldError(spec.name, name, reason)


_WIDER = (
    (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DateType, spark.TimestampType),
    (spark.DateType, spark.TimestampNTZType),
)
"""Each type can be cast to the later types of its row."""
_TEXTS = (spark.CharType, spark.VarcharType)
"""Types of texts with a length, which Spark checks; their values are strings."""
_DIGITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 19,
}


def castable(kind: spark.DataType, field: Field) -> bool:
    """Whether a column of a type can be cast to a field without loss of any value; `void` is a column of nulls."""
    wanted = spark_type(field)
    if kind in (wanted, spark.NullType()) or (isinstance(kind, _TEXTS) and wanted == spark.StringType()):
        return True
    if isinstance(wanted, spark.DecimalType):
        if isinstance(kind, spark.DecimalType):
            digits, scale = kind.precision - kind.scale, kind.scale
        else:
            digits, scale = _DIGITS.get(type(kind), wanted.precision + 1), 0
        return digits <= wanted.precision - wanted.scale and scale <= wanted.scale
    for row in _WIDER:
        if type(kind) in row and type(wanted) in row:
            return row.index(type(kind)) <= row.index(type(wanted))
    return False


def days_to_cast(spec: TableSpecification, schema: spark.StructType) -> list[str]:
    """Return the columns of dates whose fields are timestamps, which depend on a time zone."""
    days = [column.name for column in schema.fields if column.dataType == spark.DateType() and column.name in spec]
    return [name for name in days if spec.field(name).type is FieldType.TIMESTAMP]


def table_fields(table: str, schema: spark.StructType, *, declared: bool = False) -> list[Field]:
    """Return the fields of a table for the rows of a DataFrame, or of the columns that a statement declares.

    A table does not check the length of a text: one is taken from a DataFrame, and must not be declared.

    Raises
    ------
    InvalidFieldError
        With every column whose type no field can have, and what to do instead.
    """
    found = [(column, _counterpart(column, declared=declared)) for column in schema.fields]
    where = "" if declared else " in the DataFrame"
    refuse(
        table,
        (
            InvalidFieldError(
                table,
                column.name,
                f"is {_text(column.dataType)}{where}, a type that no field has; "
                f"{_instead(column.dataType, declared=declared)}",
            )
            for column, field in found
            if field is None
        ),
    )
    return [field for _, field in found if field is not None]


def new_specification(
    table: str,
    schema: spark.StructType,
    key: Sequence[str],
    indexes: Iterable[str],
    options: Mapping[str, str],
    *,
    declared: bool = False,
) -> TableSpecification:
    """Return the specification of a table to be made; without a key it is append-only unless the options say otherwise.

    Raises
    ------
    InvalidSpecificationError, InvalidFieldError
        As `TableSpecification` and `table_fields` do.
    """
    given = options if key else {"write-mode": "append-only", **options}
    return TableSpecification(table, table_fields(table, schema, declared=declared), key, indexes, given)


def _counterpart(column: spark.StructField, *, declared: bool) -> Field | None:
    kind = column.dataType
    if isinstance(kind, _TEXTS):
        return None if declared else Field.string(column.name)
    if isinstance(kind, spark.DecimalType):
        return Field.decimal(column.name, kind.precision, kind.scale)
    return next((Field(column.name, own) for own, listed in _TYPES.items() if listed == kind), None)


def _remedy(kind: spark.DataType, field: Field) -> str:
    wanted = _text(spark_type(field))
    if isinstance(kind, _NOT_CAST):
        return f", a type that no field has, and the field is {wanted}; {_instead(kind)}"
    return f"; cast it: .cast({wanted!r})"


_NOT_CAST = (
    spark.ArrayType,
    spark.MapType,
    spark.StructType,
    spark.VariantType,
    spark.DayTimeIntervalType,
    spark.YearMonthIntervalType,
    spark.CalendarIntervalType,
)


def _instead(kind: spark.DataType, *, declared: bool = False) -> str:
    """Return what to do with a column whose type no field can have."""
    match kind:
        case spark.ArrayType():
            return "write to_json(...) into a string field, or the elements as rows of a table of their own"
        case spark.MapType():
            return "write to_json(...) into a string field, or the entries as rows of a table of their own"
        case spark.StructType():
            return "write to_json(...) into a string field, or one column for each member"
        case spark.VariantType():
            return "write to_json(...) into a string field, or one column for each member, by variant_get(...)"
        case spark.DayTimeIntervalType() | spark.YearMonthIntervalType() | spark.CalendarIntervalType():
            return "write its number of units, as of extract(...), into a number, or .cast('string') into a string"
        case spark.NullType() if not declared:
            return "cast it to the type of its values to come, as in .cast('string')"
        case _:
            return "declare STRING" if declared else "cast it: .cast('string')"


def _field(spec: TableSpecification, name: str) -> Field:
    if name in spec:
        return spec.field(name)
    raise _unknown(spec, name)


def _unknown(spec: TableSpecification, name: str) -> InvalidFieldError:
    return InvalidFieldError(spec.name, name, f"{not_a_field(spec.field_names)} (in exactly this case)")


def _text(kind: spark.DataType) -> str:
    return kind.simpleString()
