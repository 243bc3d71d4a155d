"""Table properties of Spark's SQL: the key, the indexes and the options of a table."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from structable.spark_bridge.base.types import new_specification
from structable.spi import InvalidFieldError, InvalidSpecificationError, TableSpecification

PRIMARY_KEY = "primary-key"
_INDEXES = "indexes"
_NEVER = ("comment", "location", "external", "is_managed_location", "collation", "table_type")


def properties_of(spec: TableSpecification) -> dict[str, str]:
    """Return the properties that describe a table; `specification_of` takes them."""
    described = {PRIMARY_KEY: ",".join(spec.primary_key)}
    if spec.indexes:
        described[_INDEXES] = ",".join(spec.indexes)
    return described | dict(sorted(spec.options.items()))


def specification_of(
    table: str, schema: StructType, properties: Mapping[str, str], *, declared: bool = False
) -> TableSpecification:
    """Return the specification of a new table, with declared columns or the columns of a query.

    Raises
    ------
    InvalidSpecificationError
        If the properties do not define the key, or describe something that tables of structable do not have.
    InvalidFieldError
        If no field can have the type of a column, with each such column; or for NOT NULL outside the key.
    """
    _refuse_foreign(table, properties)
    if PRIMARY_KEY not in properties:
        raise InvalidSpecificationError(
            f"table {table!r}: the property 'primary-key' is missing; give TBLPROPERTIES ('primary-key' = 'a,b'), "
            ".tableProperty('primary-key', 'a,b') or, for saveAsTable, .option('primary-key', 'a,b'), and "
            "'primary-key' = '' for a table without a key"
        )
    key, indexes = _names(properties[PRIMARY_KEY]), _names(properties.get(_INDEXES, ""))
    options = {name: value for name, value in properties.items() if name not in (PRIMARY_KEY, _INDEXES)}
    spec = new_specification(table, schema, key, indexes, options, declared=declared)
    for column in schema.fields:
        if not column.nullable and column.name not in key:
            raise InvalidFieldError(table, column.name, "is NOT NULL, as key columns only are; leave NOT NULL out")
    return spec


def check_properties(spec: TableSpecification, properties: Mapping[str, str]) -> None:
    """Check that the properties in a statement equal the properties of a table, which is not changed.

    Raises
    ------
    InvalidSpecificationError
        For a property that differs from the table's; nothing was changed.
    """
    _refuse_foreign(spec.name, properties)
    own = properties_of(spec)
    for name, value in properties.items():
        same = _names(value) == _names(own.get(name, "")) if name in (PRIMARY_KEY, _INDEXES) else value == own.get(name)
        if not same:
            raise InvalidSpecificationError(
                f"table {spec.name!r} exists with {name!r} = {own.get(name)!r}, and the statement says {value!r}; an "
                "overwritten table stays what it is, and nothing was written; leave the property out, or drop the table"
            )


def _refuse_foreign(table: str, properties: Mapping[str, str]) -> None:
    for name in properties:
        if name.startswith("option."):
            own = name.removeprefix("option.")
            raise InvalidSpecificationError(f"table {table!r}: OPTIONS has {own!r}; give it in TBLPROPERTIES")
        if name in _NEVER:
            raise InvalidSpecificationError(f"table {table!r}: tables of structable have no {name}; leave it out")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()
