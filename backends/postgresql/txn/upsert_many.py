"""`upsert_many`: rows of distinct keys in few statements; new rows by COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TypeVar

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.sql import statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column_name, quoted
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.types import array
from structable.spi import FieldSizeLimitError, Value
from structable.spi.rules.rows import check_row
from structable.spi.values import MAX_ROW_SIZE

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

__all__ = ["upsert_batch"]

Item = TypeVar("Item")

_COPY_FROM = 100
"""Number of rows from which COPY, despite its extra round trips, is faster than arrays."""
_PORTION = 8 << 20
"""Approximate size of one statement's arrays, in bytes."""
_COPIED = 225
"""Rows of one COPY. While the server inserts them, the next rows are encoded."""
_COPIED_FIRST = 100
"""Rows of the first COPY, for which the server waits."""
_COPIES = 16
"""Number of COPYs in one round trip."""
_DUPLICATE = "23505"
_SAVEPOINT = Call(Statement("savepoint structable_copy"))
_RELEASE = Call(Statement("release structable_copy"))
_ROLLBACK = Call(Statement("rollback to structable_copy"))


def upsert_batch(tx: ServerTransaction, table: BoundTable, rows: list[Mapping[str, Value]]) -> None:
    """Put rows; all are checked before anything is written."""
    if len(rows) >= _COPY_FROM and table.binding.copies_first() and _copied(tx, table, rows):
        return
    binding = table.binding
    groups: dict[tuple[str, ...], dict[Pieces, tuple[Mapping[str, Value], Pieces]]] = {}
    places: dict[Pieces, tuple[str, ...]] = {}
    width = len(binding.key_fields)
    for row in rows:
        row, names, pieces = _encoded(binding, row)
        key = pieces[:width]
        before = places.get(key)
        if before is not None:
            # A later row with the same key adds to the earlier one.
            earlier, _ = groups[before].pop(key)
            row, names, pieces = _encoded(binding, {**earlier, **row})
        places[key] = names
        groups.setdefault(names, {})[key] = (row, pieces)
    for names, group in groups.items():
        if group:
            _require_sizes(tx, table, names, [pieces for _, pieces in group.values()])
    portions = [
        (names, portion)
        for names, group in groups.items()
        for portion in _portions(group.values(), lambda one: at_most(one[1]))
    ]
    if len(portions) > 1:
        # A single portion is checked as it is deferred; of several, none may be written if together they are too many.
        tx.require_room(sum(at_most(pieces) for _, portion in portions for _, pieces in portion))
    for names, portion in portions:
        _defer(tx, table, names, portion)


def _are_whole(binding: TableBinding, rows: list[Mapping[str, Value]]) -> bool:
    width = len(binding.spec.fields)
    names = tuple(rows[0]) if rows[0].__class__ is dict else ()
    return binding.known_names(names) is not None and {*map(type, rows)} == {dict} and {*map(len, rows)} == {width}


def _encoded(binding: TableBinding, row: Mapping[str, Value]) -> tuple[Mapping[str, Value], tuple[str, ...], Pieces]:
    names = tuple(row) if row.__class__ is dict else ()
    ordered = binding.known_names(names)
    if ordered is None:
        row = check_row(binding.write_spec, row)
        names = tuple(row)
        ordered = binding.ordered(names)
    return row, ordered, binding.encoder(names).pieces(row)


def _require_sizes(tx: ServerTransaction, table: BoundTable, names: tuple[str, ...], given: list[Pieces]) -> None:
    """Reject rows that would exceed the limit together with fields that they do not name."""
    binding = table.binding
    width = binding.width_without(names)
    if width is not None:
        given = [pieces for pieces in given if width and at_most(pieces) + width > MAX_ROW_SIZE]

    def ask(pieces: list[Pieces]) -> None:
        def build(binding: TableBinding) -> Call:
            statement = binding.kept(("oversized", names), lambda: statements.oversized(binding, names, MAX_ROW_SIZE))
            return Call(statement, _arrays(binding, names, pieces))

        for (size,) in tx.rows_of(tx.ask(table, build)):
            raise FieldSizeLimitError(binding.spec.name, "row", int(str(size)), MAX_ROW_SIZE)

    for portion in _portions(given, at_most):
        ask(portion)


def _arrays(binding: TableBinding, names: tuple[str, ...], given: list[Pieces]) -> list[bytes]:
    columns = zip(*given, strict=True)
    return [array(binding.oids[name], column) for name, column in zip(names, columns, strict=True)]


def _portions(all_of_it: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items in lists of about the size of one statement."""
    portion: list[Item] = []
    size = 0
    for one in all_of_it:
        portion.append(one)
        size += size_of(one)
        if size >= _PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _defer(
    tx: ServerTransaction,
    table: BoundTable,
    names: tuple[str, ...],
    rows: list[tuple[Mapping[str, Value], Pieces]],
) -> None:
    encoded_for = table.binding

    def build(binding: TableBinding) -> Call:
        if binding is encoded_for:
            given = [pieces for _, pieces in rows]
        else:
            given = [binding.encoder(tuple(row)).pieces(row) for row, _ in rows]
        return Call(statements.batch_upsert(binding, names), _arrays(binding, names, given))

    tx.defer(table, build)


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


def _copied(tx: ServerTransaction, table: BoundTable, rows: list[Mapping[str, Value]]) -> bool:
    """Try to insert all rows as new ones; return False, without effect, if one exists, is repeated or lacks a field."""
    known = table.binding
    if not _are_whole(known, rows):
        return False
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
        tx.require_room(copied)

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
            if not isinstance(error, StatementRefusedError) or error.state != _DUPLICATE:
                raise

    tx.run(body, "copying rows")
    binding.note_copy(done)
    if done:
        tx.precede(table, lambda _: _RELEASE)
    return done
