"""The order entry's tables in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from structable.spi import FieldType

from .model import SPECIFICATIONS

SQLITE = {FieldType.STRING: "TEXT", FieldType.INT: "INTEGER", FieldType.LONG: "INTEGER"}
POSTGRESQL = {FieldType.STRING: 'text COLLATE "C"', FieldType.INT: "integer", FieldType.LONG: "bigint"}

_INDEXES = (
    "CREATE INDEX customers_by_surname ON customers (warehouse, district, surname)",
    "CREATE INDEX orders_by_customer ON orders (warehouse, district, customer, number)",
)


def select_all(table: str) -> str:
    """Return a query of all rows of a table, in key order."""
    specification = SPECIFICATIONS[table]
    return f"SELECT {', '.join(specification.field_names)} FROM {table} ORDER BY {', '.join(specification.primary_key)}"


def definitions(types: Mapping[FieldType, str], options: str = "") -> Iterator[str]:
    """Yield statements that create the tables and their indexes."""
    for table, specification in SPECIFICATIONS.items():
        fields = ", ".join(f"{field.name} {types[field.type]}" for field in specification.fields)
        key = ", ".join(specification.primary_key)
        yield f"CREATE TABLE {table} ({fields}, PRIMARY KEY ({key})) {options}"
    yield from _INDEXES
