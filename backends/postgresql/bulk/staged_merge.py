"""The statements that publish staged rows, by the mode of their job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.sql.binding import DIALECT, TableBinding
from structable.backends.postgresql.sql.names import column_name, qualified, quoted
from structable.backends.postgresql.sql.row_sizes import size_of
from structable.spi import Field, WriteMode
from structable.spi.values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE

from .staging import StagedTable, staged_columns

__all__ = ["StagedMerge", "returned_rows"]

_PUTS = (WriteMode.UPSERT, WriteMode.REPLACE, WriteMode.INSERT, WriteMode.OVERWRITE)
_PARTIAL = (WriteMode.UPSERT, WriteMode.UPDATE)


class StagedMerge:
    """The SQL that writes one staging table into the table; the server rejects it if the table has another version.

    `source` is a query of some of its rows, in parentheses; given none, it writes all of them.
    """

    def __init__(self, binding: TableBinding, mode: WriteMode, staged: StagedTable, source: str | None = None) -> None:
        self._binding = binding
        self._mode = mode
        self._staged = staged
        self._source = source or qualified(binding.schema, staged.name)
        self._given = dict(zip(staged.columns, staged_columns(len(staged.columns)), strict=True))
        key = binding.spec.primary_key
        self._key_columns = [quoted(column_name(name)) for name in key]
        self._key_given = [f"s.{self._given[name]}" for name in key]
        # With names of our own for both tables: the table's could be any.
        self._target = f"{binding.qualified} as t"
        self._same_key = " and ".join(
            f"t.{column} = {given}" for column, given in zip(self._key_columns, self._key_given, strict=True)
        )

    def there(self) -> str:
        """Return the query whether the rows still exist: a crash of the server empties staging tables."""
        return f"select exists (select from {self._source})"

    def write(self, *, each_key_once: bool) -> str:
        """Return the statement that writes the rows.

        `each_key_once` keeps one row of each key, which costs a sort. Otherwise the server rejects repeated keys.
        """
        target, token = self._target, self._binding.token
        if self._mode is WriteMode.DELETE:
            return f"delete from {target} using {self._source} s where {self._same_key} and {token}"
        if self._mode is WriteMode.UPDATE:
            changes = ", ".join(f"{self._column(name)} = {self._new_value(name)}" for name in self._changed())
            return f"update {target} set {changes} from {self._source} s where {self._same_key} and {token}"
        columns = ", ".join(self._column(name) for name in self._given)
        values = ", ".join(f"s.{given}" for given in self._given.values())
        rows = f"select {values} from {self._source} s where {token}"
        if each_key_once:
            key = ", ".join(self._key_given)
            rows = (
                f"select distinct on ({key}) {values} from {self._source} s where {token} order by {key}, s.ctid desc"
            )
        insert = f"insert into {target} ({columns}) {rows}"
        if self._mode is WriteMode.INSERT or (self._mode is WriteMode.OVERWRITE and not each_key_once):
            return insert
        changes = ", ".join(f"{self._column(name)} = excluded.{self._column(name)}" for name in self._changed())
        return f"{insert} on conflict ({', '.join(self._key_columns)}) do update set {changes}"

    def key_written(self) -> str:
        """Return the columns of the key, for the end of an update that returns the keys of its rows."""
        return ", ".join(f"t.{column}" for column in self._key_columns)

    def _new_value(self, name: str) -> str:
        """Return the value that an update assigns: the row's own where a row of a patch does not name the field."""
        given = f"s.{self._given[name]}"
        if not self._staged.partial:
            return given
        named = f"s.{staged_columns(len(self._given) + 3)[-1]}"
        place = self._staged.columns.index(name)
        old = f"t.{self._column(name)}"
        return f"case when {named} is null or get_bit({named}, {place}) = 1 then {given} else {old} end"

    def _changed(self) -> Sequence[str]:
        """Return the fields that are assigned; a write of the key alone is a write of the row, too."""
        binding = self._binding
        everything = self._mode not in _PARTIAL
        given = self._staged.changed or self._given
        names = [name for name in binding.value_names if everything or name in given]
        return names or binding.spec.primary_key[:1]

    @staticmethod
    def _column(name: str) -> str:
        return quoted(column_name(name))

    def expected(self, *, each_key_once: bool) -> int | None:
        """Return the number of rows that `write` reports; None if that depends on the table."""
        return self._staged.rows if self._mode in _PUTS and not each_key_once else None

    # Queries for the reason of a rejection

    def existing(self) -> str:
        """Return the query of a key that the table has."""
        return self._keys(f"join {self._target} on {self._same_key}")

    def missing(self) -> str:
        """Return the query of a key that the table does not have."""
        return self._keys(f"where not exists (select from {self._target} where {self._same_key})")

    def _keys(self, rest: str) -> str:
        return f"select {', '.join(self._key_given)} from {self._source} s {rest} limit 1"

    def left_out(self, written: int) -> str:
        """Return the query whether there are rows that an update or a delete, which wrote so many, has left out."""
        if self._mode is WriteMode.DELETE:
            return f"select exists ({self.existing()})"
        keys = f"select distinct {', '.join(self._key_given)} from {self._source} s"
        return f"select count(*) > {written} from ({keys}) as k"

    def all_keys(self) -> str:
        """Return the query of all keys, repeated as often as they occur."""
        return f"select {', '.join(self._key_given)} from {self._source} s"

    # Sizes

    def may_outgrow(self) -> bool:
        """Tell whether merged rows may exceed the limit together with the fields they keep."""
        width = self._binding.width_without(() if self._staged.partial else self._staged.changed or self._given)
        return self._mode in _PARTIAL and (width is None or self._staged.largest + width > MAX_ROW_SIZE)

    def outgrown(self) -> str:
        """Return the query of the size of a written row over the limit."""
        binding = self._binding
        written: list[tuple[Field, sa.ColumnElement[Any]]] = [
            (field, sa.literal_column(f"t.{self._column(field.name)}")) for field in binding.spec.fields
        ]
        size = _sql(size_of(binding, written))
        rows = f"from {self._source} s join {self._target} on {self._same_key}"
        return f"select {size} {rows} where {size} > {MAX_ROW_SIZE} limit 1"

    def outsized(self) -> list[tuple[str, str]]:
        """Return fields that became indexed since their values were staged, and the queries of values too large.

        Such a query returns the sizes of the value and of the key.
        """
        if self._mode is WriteMode.DELETE:
            return []
        spec = self._binding.write_spec
        found = []
        for name in spec.indexes:
            if name in self._given and name not in self._staged.indexes and not spec.field(name).type.width:
                value, key = self._size((name,)), self._size(spec.primary_key)
                limits = f"{value} > {MAX_KEY_SIZE} or {key} + {value} > {MAX_KEY_AND_INDEX_SIZE}"
                query = f"select {value}, {key} from {self._source} s where {limits} limit 1"
                found.append((name, query))
        return found

    def _size(self, names: Sequence[str]) -> str:
        spec = self._binding.spec
        if not names:
            return "0"
        given: list[tuple[Field, sa.ColumnElement[Any]]] = [
            (spec.field(name), sa.literal_column(f"s.{self._given[name]}")) for name in names
        ]
        return f"({_sql(size_of(self._binding, given))})"


def returned_rows() -> StatementRefusedError:
    """Return the refusal of a statement that has waited for a writer which deleted a row and inserted it again.

    At READ COMMITTED the statement sees neither.
    """
    return StatementRefusedError("40001", "rows were deleted and inserted by another writer meanwhile")


def _sql(expression: sa.ColumnElement[int]) -> str:
    return str(expression.compile(dialect=DIALECT))
