"""The statements that write records to a feed of the producer `input`."""

from __future__ import annotations

from structable.backends.postgresql.driver.statement import CHAR, CHAR_ARRAY, Call, Statement
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column, qualified, quoted
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import Field, RowKind

from .input_objects import counted_before
from .layout import after_column, feed_table, record_kind

GIVEN = Call(Statement("select set_config('structable.input', 'given', true)"))
"""The call after which the triggers record nothing in this transaction, because the store writes the records."""
RECORDED = Call(Statement("select set_config('structable.input', '', true)"))
"""The call after which the triggers record again."""


def _fields(binding: TableBinding) -> list[Field]:
    return [binding.spec.field(name) for name in binding.shape.columns]


def _into(binding: TableBinding) -> str:
    assert binding.version.feed is not None
    columns = ", ".join(quoted(after_column(name)) for name in binding.shape.columns)
    return f"insert into {qualified(binding.schema, feed_table(binding.version.feed))} (n, kind, {columns})"


def _first(binding: TableBinding) -> str:
    """Return the SQL to add to the number of a record in its statement; empty except in a log."""
    number = binding.version.feed
    assert number is not None
    return f"{counted_before(number)} + " if binding.spec.table_options.log else ""


def record_given(binding: TableBinding) -> Statement:
    """Return the statement that records given rows; its parameters are arrays of kinds and all fields, key first."""

    def make() -> Statement:
        fields = _fields(binding)
        types = [CHAR_ARRAY, *(stored_type(field).array_oid for field in fields)]
        arrays = ", ".join(f"${place + 1}" for place in range(len(types)))
        names = ", ".join(column(field.name) for field in fields)
        text = (
            f"{_into(binding)} select {_first(binding)}_place - 1, _kind, {names} "
            f"from unnest({arrays}) with ordinality as g(_kind, {names}, _place) where {binding.token} order by _place"
        )
        return Statement(text, types, is_small=False)

    return binding.kept("record_given", make)


def record_one(binding: TableBinding) -> Statement:
    """Return the statement that records a given row; its parameters are the kind and all fields, key first.

    From arrays of one row the server would make a table, and sort it.
    """

    def make() -> Statement:
        names = binding.shape.columns
        values = ", ".join(f"${place + 2}" for place in range(len(names)))
        text = f"{_into(binding)} select {_first(binding)}0, $1, {values} where {binding.token}"
        return Statement(text, [CHAR, *(binding.oids[name] for name in names)])

    found: Statement = binding.kept("record_one", make)
    return found


def record_rows_of_keys(binding: TableBinding) -> Statement:
    """Return the statement that records the present rows of keys; its parameters are an array of each key field."""

    def make() -> Statement:
        key = binding.spec.key_fields
        types = [stored_type(field).array_oid for field in key]
        arrays = ", ".join(f"${place + 1}" for place in range(len(types)))
        names = ", ".join(column(field.name) for field in key)
        same = " and ".join(f"t.{column(field.name)} = g.{column(field.name)}" for field in key)
        row = f"select t.* from {binding.qualified} as t where {same} and {binding.token} offset 0"
        values = ", ".join(f"_row.{column(name)}" for name in binding.shape.columns)
        text = (
            f"{_into(binding)} select row_number() over (order by _place) - 1, 'U', {values} "
            f"from unnest({arrays}) with ordinality as g({names}, _place), lateral ({row}) as _row order by _place"
        )
        return Statement(text, types, is_small=False)

    return binding.kept("record_rows_of_keys", make)


def record_staged(
    binding: TableBinding, given: dict[str, str], source: str, *, kind: RowKind | str, ordered: bool = True
) -> str:
    """Return the statement that records staged rows.

    Parameters
    ----------
    binding : TableBinding
        The table.
    given : dict of str to str
        The columns of the staging table, by their fields; other fields are null.
    source : str
        The staging table, or a query in parentheses.
    kind : RowKind or str
        The kind of all rows, or the column of their kinds as numbers.
    ordered : bool
        Whether the records are in the order of the rows.
    """
    if isinstance(kind, RowKind):
        kinds = f"'{record_kind(kind)}'::\"char\""
    else:
        letters = "".join(map(record_kind, RowKind))
        kinds = f"substr('{letters}', s.{kind} + 1, 1)::\"char\""
    fields = _fields(binding)
    values = ", ".join(
        f"s.{given[field.name]}" if field.name in given else f"null::{stored_type(field).name}" for field in fields
    )
    names = ", ".join(f"v{place}" for place in range(len(fields)))
    order = " order by s.ctid" if ordered else ""
    rows = f"select {kinds}, {values} from {source} s where {binding.token}{order}"
    number = f"{_first(binding)}row_number() over () - 1"
    return f"{_into(binding)} select {number}, kind, {names} from ({rows}) as r(kind, {names})"
