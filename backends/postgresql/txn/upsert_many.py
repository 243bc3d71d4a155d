"""`upsert_many`: rows of distinct keys in few statements; new rows by COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.sqlstates import UNIQUE_VIOLATION
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.sql import batches, statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column_name, quoted
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.spi import FieldSizeLimitError, Value
from structable.spi.rules.rows import check_row
from structable.spi.values import MAX_ROW_SIZE

from .bound_table import BoundTable
from .refusals import CHECKED_SIZE, refusal_of_sizes
from .row_arrays import arrays, arrays_by_key, portions
from .row_calls import most_bytes, surely_fits
from .seen_rows import ABSENT
from .server_transaction import ServerTransaction

__all__ = ["EncodedRow", "encoded_row", "require_sizes", "upsert_batch"]

_COPY_FROM = 100
"""Number of rows from which COPY, despite its extra round trips, is faster than arrays."""
_COPIED = 225
"""Rows of one COPY. While the server inserts them, the next rows are encoded."""
_COPIED_FIRST = 100
"""Rows of the first COPY, for which the server waits."""
_COPIES = 16
"""Number of COPYs in one round trip."""
_SAVEPOINT = Call(Statement("savepoint structable_copy"))
_RELEASE = Call(Statement("release structable_copy"))
_ROLLBACK = Call(Statement("rollback to structable_copy"))


def upsert_batch(
    tx: ServerTransaction, table: BoundTable, rows: list[Mapping[str, Value]], *, copies: bool = True, beside: int = 0
) -> None:
    """Put rows; all are checked before anything is written. It never `copies` rows of which some exist.

    `beside` are the bytes that the call writes after this.
    """
    if copies and len(rows) >= _COPY_FROM and table.binding.copies_first() and _copied(tx, table, rows, beside):
        table.seen.clear()
        return
    binding = table.binding  # a look-up may find another version of the table
    writes: list[_Portion] = []
    sizes: dict[Pieces, int | None] = {}
    for names, group in _groups(binding, rows).items():
        others, known = binding.width_without(names), table.seen.known(group)
        unsure, large = 0, []
        for key, one in group.items():
            most = sizes[key] = most_bytes(others, one.size, known.get(key))
            if not surely_fits(most, one.size):
                unsure += 1
                if one.size > CHECKED_SIZE:
                    large.append(one)
        require_sizes(tx, table, binding, names, large)
        there = len(known) == len(group) and ABSENT not in known.values()
        writes += [
            _Portion(names, portion, unsure > len(large), there)
            for portion in portions(group.values(), lambda one: one.size)
        ]
    if len(writes) > 1 or beside:
        # A single portion is checked as it is deferred; of several, none may be written if together they are too many.
        tx.require_room(beside + sum(one.size for portion in writes for one in portion.rows))
    for portion in writes:
        _defer(tx, table, binding, portion)
    table.seen.put_each(sizes)


class EncodedRow(NamedTuple):
    """A row in one version of its table, and a copy of what was given: the caller may change that."""

    row: Mapping[str, Value]
    pieces: Pieces
    size: int
    """An upper bound of the bytes of its fields."""


class _Portion(NamedTuple):
    """Rows that name the same fields, and are written by one statement."""

    names: tuple[str, ...]
    rows: list[EncodedRow]
    checked: bool
    """Whether the server refuses rows that get too large."""
    there: bool
    """Whether all of them exist."""


def _groups(binding: TableBinding, rows: list[Mapping[str, Value]]) -> dict[tuple[str, ...], dict[Pieces, EncodedRow]]:
    """Return rows by their fields and their keys; those of one key are one row."""
    alike = _alike(binding, rows)
    if alike is not None:
        return alike
    groups: dict[tuple[str, ...], dict[Pieces, EncodedRow]] = {}
    places: dict[Pieces, tuple[str, ...]] = {}
    width = len(binding.key_fields)
    for row in rows:
        row, names, pieces = encoded_row(binding, row)
        key = pieces[:width]
        before = places.get(key)
        if before is not None:
            # A later row with the same key adds to the earlier one.
            earlier = groups[before].pop(key).row
            row, names, pieces = encoded_row(binding, {**earlier, **row})
        places[key] = names
        groups.setdefault(names, {})[key] = EncodedRow(dict(row), pieces, at_most(pieces))
    return groups


def _alike(
    binding: TableBinding, rows: list[Mapping[str, Value]]
) -> dict[tuple[str, ...], dict[Pieces, EncodedRow]] | None:
    """Return the groups of plain dicts with the same fields and with different keys: one; None of any other rows."""
    names = tuple(rows[0]) if rows and rows[0].__class__ is dict else ()
    ordered = binding.known_names(names)
    if ordered is None:
        return None
    width, encoder = len(binding.key_fields), binding.encoder(names)
    group: dict[Pieces, EncodedRow] = {}
    for row, pieces in zip(rows, map(encoder.fast, rows), strict=True):
        if pieces is None:
            return None
        most = encoder.most if None not in pieces else 0
        group[pieces[:width]] = EncodedRow(dict(row), pieces, most or at_most(pieces))
    return {ordered: group} if len(group) == len(rows) else None


def _are_whole(binding: TableBinding, rows: list[Mapping[str, Value]]) -> bool:
    width = len(binding.spec.fields)
    names = tuple(rows[0]) if rows[0].__class__ is dict else ()
    return binding.known_names(names) is not None and {*map(type, rows)} == {dict} and {*map(len, rows)} == {width}


def encoded_row(binding: TableBinding, row: Mapping[str, Value]) -> tuple[Mapping[str, Value], tuple[str, ...], Pieces]:
    """Check a row; return it, its fields in the order of statements, and their values in binary."""
    names = tuple(row) if row.__class__ is dict else ()
    ordered = binding.known_names(names)
    if ordered is None:
        row = check_row(binding.write_spec, row)
        names = tuple(row)
        ordered = binding.ordered(names)
    return row, ordered, binding.encoder(names).pieces(row)


def require_sizes(
    tx: ServerTransaction,
    table: BoundTable,
    first: TableBinding,
    names: tuple[str, ...],
    rows: Iterable[EncodedRow],
) -> None:
    """Reject rows, encoded for the `first` version, that would be too large together with fields they do not name."""
    for portion in portions(rows, lambda one: one.size):

        def build(binding: TableBinding, portion: list[EncodedRow] = portion) -> Call:
            given = _encoded_for(binding, first, names, portion)
            return Call(batches.oversized(binding, names), arrays(binding, names, given))

        for (size,) in tx.rows_of(tx.ask(table, build)):
            raise FieldSizeLimitError(table.binding.spec.name, "row", int(str(size)), MAX_ROW_SIZE)


def _encoded_for(
    binding: TableBinding, first: TableBinding, names: tuple[str, ...], rows: Iterable[EncodedRow]
) -> list[Pieces]:
    """Return rows that were encoded for the `first` version of the table, encoded for another."""
    return [one.pieces if binding is first else binding.row_pieces(names, one.row) for one in rows]


def _defer(tx: ServerTransaction, table: BoundTable, first: TableBinding, portion: _Portion) -> None:
    names, rows, checked, there = portion

    def build(binding: TableBinding) -> Call:
        given = _encoded_for(binding, first, names, rows)
        statement = batches.upsert_many(binding, names, checked=checked, there=there)
        return Call(statement, arrays_by_key(binding, names, given))

    tx.defer(table, build, None, refusal_of_sizes(first) if checked else None)


def _encoded_rows(
    binding: TableBinding, rows: list[Mapping[str, Value]], count: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield rows in COPY's form; checks each, and adds its bytes to `count`."""
    encoded = b"".join(map(binding.encoder(tuple(rows[0])).copied, rows))
    count(len(encoded))
    yield encoded


def _lock(binding: TableBinding) -> Call:
    statement = binding.kept("lock", lambda: Statement(f"lock table {binding.qualified} in row exclusive mode"))
    return Call(statement)


def _copied(tx: ServerTransaction, table: BoundTable, rows: list[Mapping[str, Value]], beside: int) -> bool:
    """Try to insert all rows as new ones; return False, without effect, if one exists, is repeated or lacks a field."""
    known = table.binding
    if not _are_whole(known, rows):
        return False
    if tx.writes.may_not_fit:
        tx.flush()  # before this call has an effect
    # No token stops a COPY into another version of the table. The lock does: a change of columns waits for it.
    tx.precede(table, _lock)
    tx.precede(table, lambda _: _SAVEPOINT)
    tx.ask(table, lambda binding: Call(statements.current(binding)))
    binding = table.binding
    if binding is not known and not _are_whole(binding, rows):
        tx.precede(table, lambda _: _RELEASE)
        return False
    columns = ", ".join(quoted(column_name(name)) for name in binding.shape.columns)
    text = f"copy {binding.qualified} ({columns}) from stdin (format binary)"
    done = False
    copied = 0

    def count(size: int) -> None:
        nonlocal copied
        copied += size
        tx.require_room(copied + beside)

    def body(connection: ServerConnection) -> None:
        nonlocal done
        try:
            bounds = [0, *range(_COPIED_FIRST, len(rows), _COPIED), len(rows)]
            copies = [_encoded_rows(binding, rows[first:end], count) for first, end in pairwise(bounds)]
            for first in range(0, len(copies), _COPIES):
                connection.copy_in(text, copies[first : first + _COPIES])
            done = True
            tx.note_written(copied)
        except BaseException as error:
            if not connection.closed:
                connection.pipeline((_ROLLBACK, _RELEASE))
            if not isinstance(error, StatementRefusedError) or error.state != UNIQUE_VIOLATION:
                raise

    tx.run(body, "copying rows")
    binding.note_copy(done)
    if done:
        tx.precede(table, lambda _: _RELEASE)
    return done
