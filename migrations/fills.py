"""The effect of an operation on each existing row, for the backfill and for its verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from structable.spi import (
    Derived,
    FieldFunction,
    Filter,
    Range,
    Row,
    RowIterator,
    StructuredTable,
    TableSpecification,
    Transaction,
    Value,
)
from structable.spi.authors import RowRules, bind_filter, equal
from structable.spi.text import WhereError, parse_where

from .errors import MigrationError
from .folder import function_named
from .operations import AddField, Operation, RenameField, Rewrite


class RowChange(NamedTuple):
    """The change of a row.

    Parameters
    ----------
    changes : mapping or None
        The fields that change; None if the row is right.
    failed : bool
        Whether no value fits, so that the field is null.
    """

    changes: Mapping[str, Value] | None
    failed: bool = False


class Fill(Protocol):
    """The effect of an operation on the rows of a table."""

    @property
    def table(self) -> str:
        """The table."""

    @property
    def verified(self) -> str | None:
        """The field that must agree with its rule in every row after the fill; None if it has no rule."""

    def open(self, tx: Transaction) -> StructuredTable:
        """Return the table in a transaction, wrapped as this fill needs it."""

    def scan(self, table: StructuredTable, range: Range, limit: int) -> RowIterator:
        """Return the rows to check, in key order."""

    def change(self, row: Row) -> RowChange:
        """Return the change of a row."""


def fill_of(operation: Operation, folder: Path) -> Fill | None:
    """Return the fill of an operation; None if it does not change rows."""
    match operation:
        case AddField(table, field, derive, source) if derive is not None and source is not None:
            return DerivedFill(table, field.name, source, derive)
        case AddField(table, field, default=default) if default is not None:
            return DefaultFill(table, field.name, default)
        case RenameField(table, old, new):
            return RenamedFill(table, old, new)
        case Rewrite(table, function, where):
            return RewriteFill(table, function, function_named(function, folder), where)
    return None


class DerivedFill:
    """Stores the value that a function computes from a field."""

    def __init__(self, table: str, field: str, source: str, function: FieldFunction) -> None:
        self.table = table
        self.verified = field
        self._field = field
        self._source = source
        self._computed = function.computed
        self._rules: RowRules | None = None
        self._unfilled_source = False
        self._dependents: tuple[Derived, ...] = ()

    def open(self, tx: Transaction) -> StructuredTable:
        table = stored_table(tx, self.table)
        rules = self._rules = RowRules.of(table.specification)
        if rules is not None:
            self._unfilled_source = rules.stored([self._source]) != [self._source]
            depending = {self._field}
            for rule in rules.derived:  # in the order in which they are computed
                if rule.source in depending:
                    depending.add(rule.field)
            self._dependents = tuple(rule for rule in rules.derived if rule.source in depending)
        return table

    def scan(self, table: StructuredTable, range: Range, limit: int) -> RowIterator:
        # The source may be a field that is itself not filled yet.
        sources = [self._source] if self._rules is None else self._rules.stored([self._source])
        return table.scan(range, columns=[*sources, self._field], limit=limit)

    def change(self, row: Row) -> RowChange:
        if self._unfilled_source and self._rules is not None:
            source = self._rules.current(row, self._source)
        else:
            source = row[self._source]
        value, failed = self._computed(source)
        stored = row[self._field]
        if value is stored or _same(value, stored):
            return RowChange(None, failed)
        changes = {self._field: value}
        for rule in self._dependents:
            changes[rule.field] = rule.function.computed(changes[rule.source]).value
        return RowChange(changes, failed)


class RenamedFill:
    """Copies a field to its new name."""

    def __init__(self, table: str, old: str, new: str) -> None:
        self.table = table
        self.verified = new
        self._old = old
        self._new = new

    def open(self, tx: Transaction) -> StructuredTable:
        return stored_table(tx, self.table)

    def scan(self, table: StructuredTable, range: Range, limit: int) -> RowIterator:
        return table.scan(range, columns=[self._old, self._new], limit=limit)

    def change(self, row: Row) -> RowChange:
        value = row[self._old]
        return RowChange(None if _same(value, row[self._new]) else {self._new: value})


class DefaultFill:
    """Puts a value where a field is null."""

    verified = None

    def __init__(self, table: str, field: str, default: Value) -> None:
        self.table = table
        self._field = field
        self._default = default

    def open(self, tx: Transaction) -> StructuredTable:
        return tx.table(self.table)

    def scan(self, table: StructuredTable, range: Range, limit: int) -> RowIterator:
        return table.scan(range, columns=[self._field], limit=limit)

    def change(self, row: Row) -> RowChange:
        return RowChange({self._field: self._default} if row[self._field] is None else None)


class RewriteFill:
    """Calls a function of the program with each row."""

    verified = None

    def __init__(
        self, table: str, name: str, function: Callable[[Row], Mapping[str, Value] | None], where: str | None
    ) -> None:
        self.table = table
        self._name = name
        self._function = function
        self._where = where
        self._filter: Filter | None = None
        self._key: tuple[str, ...] = ()

    def open(self, tx: Transaction) -> StructuredTable:
        table = tx.table(self.table)
        self.bind(table.specification)
        return table

    def bind(self, spec: TableSpecification) -> Filter | None:
        """Set the table, as it is or will be, and return the filter of its rows."""
        self._key = spec.primary_key
        self._filter = None if self._where is None else _filter(spec, self._where)
        return self._filter

    def scan(self, table: StructuredTable, range: Range, limit: int) -> RowIterator:
        return table.scan(range, where=self._filter, limit=limit)

    def change(self, row: Row) -> RowChange:
        changes = self._function(row)
        if changes is None:
            return RowChange(None)
        if not isinstance(changes, Mapping):
            raise MigrationError(f"{self._name} returned {changes!r}; it must return a mapping of changes, or None")
        differing = {name: value for name, value in changes.items() if name not in row or not _same(value, row[name])}
        for name in self._key:
            if name in differing:
                raise MigrationError(f"{self._name} changed {name!r}, a field of the key; another key is another row")
        return RowChange(differing or None)


def stored_table(tx: Transaction, name: str) -> StructuredTable:
    """Return a table that reads and writes only stored values, regardless of unfinished rules.

    Raises
    ------
    MigrationError
        If the storage wraps its tables in a way that hides them.
    """
    table = tx.table(name)
    stored = table._stored()
    if stored is table and RowRules.of(table.specification) is not None:
        raise MigrationError(f"table {name!r} of {type(table).__name__} cannot be filled; connect to the store itself")
    return stored


def _same(one: Value, other: Value) -> bool:
    if one is None or other is None:
        return one is other
    return type(one) is type(other) and equal(one, other)


def _filter(spec: TableSpecification, text: str) -> Filter | None:
    try:
        where = parse_where(spec, text)
    except WhereError as error:
        raise MigrationError(f"where {text!r} of a rewrite of table {spec.name!r}: {error}") from None
    return bind_filter(spec, where)
