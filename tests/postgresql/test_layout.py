"""The order of a table's columns."""

import psycopg

from structable.spi import Field, TableSpecification, connect

from .support.shared import Schema

SPEC = TableSpecification(
    "t",
    [
        Field.string("text"),
        Field.boolean("flag"),
        Field.decimal("amount", precision=9, scale=2),
        Field.int("number"),
        Field.string("name"),
        Field.double("measure"),
        Field.byte("small"),
        Field.timestamp("at"),
        Field.date("day"),
    ],
    ["name", "at"],
)


def test_wide_columns_come_first_and_texts_last(postgresql_url: str, postgresql_schema: Schema) -> None:
    with connect(postgresql_url) as storage:
        storage.admin.create(SPEC)
        assert storage.admin.get_specification("t").field_names == SPEC.field_names
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        found = connection.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum",
            (f"{postgresql_schema.name}.t",),
        )
        columns = [name for (name,) in found]
    assert columns == ["at", "measure", "number", "day", "small", "flag", "name", "text", "amount"]
