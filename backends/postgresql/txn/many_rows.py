"""Writes of many rows: rows of distinct keys by few statements, which a transaction defers; new rows by COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import UNIQUE_VIOLATION, StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import current, lookup_many_call
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT, Judge, judge
from structable.backends.postgresql.sql.types import encode_value
from structable.backends.postgresql.sql.write_statements import WriteShape, columns_of
from structable.spi import Field, RecordExistsError, Value
from structable.spi.authors import Effect, When, check_row

from .bound_table import BoundTable
from .row_statements import (
    EncodedRow,
    Given,
    RowStatement,
    chunks,
    defer,
    defer_rows,
    encoded_row,
    require_sizes,
    size_of_rows,
)
from .server_transaction import ServerTransaction

_COPY_FROM = 100
"""The number of rows from which COPY, despite its extra round trips, is faster than arrays."""
_COPIED = 225
"""The rows of one COPY. While the server inserts them, the next rows are encoded."""
_COPIED_FIRST = 100
"""The rows of the first COPY, for which the server waits."""
_COPIES = 16
"""The number of COPYs in one round trip."""
_SAVEPOINT = Call(Statement("savepoint structable_copy"))
_RELEASE = Call(Statement("release structable_copy"))
_ROLLBACK = Call(Statement("rollback to structable_copy"))


def upsert_batch(
    tx: ServerTransaction, table: BoundTable, rows: Sequence[Given], *, copies: bool = True, beside: int = 0
) -> None:
    """Put rows; all are checked before anything is written. With `copies`, COPY may write many new rows.

    `beside` is the number of bytes that the call writes after this.
    """
    if copies and len(rows) >= _COPY_FROM and table.binding.copies_first() and _copied(tx, table, rows, beside):
        table.seen.clear()
        return
    binding = table.binding  # a look-up may find another version of the table
    writes: list[RowStatement] = []
    sizes: dict[Pieces, int | None] = {}
    for names, group in _groups(binding, rows).items():
        others, known = binding.width_without(names), table.seen.known(group)
        checked, large = False, []
        for key, one in group.items():
            sizes[key], judged_by = judge(others, one.size, known.get(key))
            if judged_by is Judge.SERVER:
                checked = True
            elif judged_by is Judge.CALL:
                large.append(one)
        require_sizes(tx, table, binding, names, large)
        there = len(known) == len(group) and ABSENT not in known.values()
        shape = WriteShape(Effect.CHANGE, names, When.PRESENT if there else When.ANY, checked)
        writes += [
            RowStatement(binding, shape, chunk, many=True) for chunk in chunks(group.values(), lambda one: one.size)
        ]
    if len(writes) > 1 or beside:
        # A single chunk is checked when it is deferred; several must fit together before any is written.
        tx.require_room(beside + sum(size_of_rows(statement.rows) for statement in writes))
    for statement in writes:
        defer(tx, table, statement)
    table.seen.put_each(sizes)


def insert_batch(tx: ServerTransaction, table: BoundTable, rows: Sequence[Given]) -> None:
    """Insert rows; raises `RecordExistsError`, before anything is written, if a key exists or comes twice."""
    spec = table.binding.write_spec
    checked = [check_row(spec, row) for row in rows]
    keys: dict[Pieces, None] = {}
    for row in checked:
        key = tuple([row[name] for name in spec.primary_key])
        pieces = table.binding.key_pieces(key)
        if pieces in keys:
            raise RecordExistsError(spec.name, key)
        keys[pieces] = None
    tx.require_room(sum(map(at_most, keys)))
    for chunk in chunks(keys, at_most):

        def build(binding: TableBinding, chunk: list[Pieces] = chunk) -> Call:
            return lookup_many_call(binding, chunk, binding.shape_of(binding.spec.primary_key))

        for found in tx.rows_of(tx.ask(table, build)):
            raise RecordExistsError(spec.name, tuple(found))
    for pieces in keys:
        table.seen.put(pieces, ABSENT)
    upsert_batch(tx, table, checked)


def delete_keys(tx: ServerTransaction, table: BoundTable, keys: Iterable[Pieces]) -> None:
    """Delete the rows of some keys, which may repeat."""
    binding = table.binding
    shape = WriteShape(Effect.REMOVE, binding.spec.primary_key)
    rows = [EncodedRow({}, key, at_most(key)) for key in dict.fromkeys(keys)]
    tx.require_room(size_of_rows(rows))
    for chunk in chunks(rows, lambda one: one.size):
        defer(tx, table, RowStatement(binding, shape, chunk, many=True))
    for one in rows:
        table.seen.put(one.pieces, ABSENT)


def increment_batch(
    tx: ServerTransaction, table: BoundTable, increments: Iterable[tuple[tuple[Value, ...], Field, int]]
) -> None:
    """Add to fields of rows; the arguments are checked. The server adds, and rejects an overflow."""
    binding = table.binding  # the first write may find another version of the table
    key_names, width = binding.spec.primary_key, len(binding.key_fields)
    rounds: list[dict[tuple[Value, ...], dict[str, int]]] = []
    counts: dict[tuple[tuple[Value, ...], str], int] = {}
    for key, field, amount in increments:
        # A repeated field is added to in a later statement: the sum of both amounts might not fit its type.
        place = counts.get((key, field.name), 0)
        counts[key, field.name] = place + 1
        if place == len(rounds):
            rounds.append({})
        rounds[place].setdefault(key, {})[field.name] = amount
    writes: list[tuple[tuple[str, ...], list[EncodedRow]]] = []
    for one_round in rounds:
        groups: dict[tuple[str, ...], list[EncodedRow]] = {}
        for key, amounts in one_round.items():
            names = binding.ordered(amounts)
            encoded = [encode_value(binding.spec.field(name), amounts[name]) for name in names[width:]]
            pieces = (*binding.key_pieces(key), *encoded)
            row = {**dict(zip(key_names, key, strict=True)), **amounts}
            groups.setdefault(names, []).append(EncodedRow(row, pieces, at_most(pieces)))
        writes += [(names, chunk) for names, rows in groups.items() for chunk in chunks(rows, lambda one: one.size)]
    tx.require_room(sum(size_of_rows(rows) for _, rows in writes))
    for names, rows in writes:
        defer_rows(tx, table, binding, WriteShape(Effect.STEP, names), rows)
        for one in rows:
            key_pieces = one.pieces[:width]
            size = table.seen.get(key_pieces)
            table.seen.put(key_pieces, None if size is None else max(size, 0) + one.size)


def _groups(binding: TableBinding, rows: Sequence[Given]) -> dict[tuple[str, ...], dict[Pieces, EncodedRow]]:
    """Group rows by the fields they name, then by key; rows with equal keys are merged."""
    alike = _alike(binding, rows)
    if alike is not None:
        return alike
    groups: dict[tuple[str, ...], dict[Pieces, EncodedRow]] = {}
    places: dict[Pieces, tuple[str, ...]] = {}
    width = len(binding.key_fields)
    for row in rows:
        names, one = encoded_row(binding, row)
        key = one.pieces[:width]
        before = places.get(key)
        if before is not None:
            # A later row with the same key adds to the earlier one.
            names, one = encoded_row(binding, {**groups[before].pop(key).row, **one.row})
        places[key] = names
        groups.setdefault(names, {})[key] = one
    return groups


def _alike(binding: TableBinding, rows: Sequence[Given]) -> dict[tuple[str, ...], dict[Pieces, EncodedRow]] | None:
    """Return the one group of plain dicts with the same fields and distinct keys; None for any other rows."""
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


def _are_whole(binding: TableBinding, rows: Sequence[Given]) -> bool:
    width = len(binding.spec.fields)
    names = tuple(rows[0]) if rows[0].__class__ is dict else ()
    return binding.known_names(names) is not None and {*map(type, rows)} == {dict} and {*map(len, rows)} == {width}


def _encoded_rows(binding: TableBinding, rows: Sequence[Given], count: Callable[[int], None]) -> Iterator[bytes]:
    """Yield rows in COPY's form; checks each, and adds its bytes to `count`."""
    encoded = b"".join(map(binding.encoder(tuple(rows[0])).copied, rows))
    count(len(encoded))
    yield encoded


def _lock(binding: TableBinding) -> Call:
    statement = binding.kept("lock", lambda: Statement(f"lock table {binding.qualified} in row exclusive mode"))
    return Call(statement)


def _copied(tx: ServerTransaction, table: BoundTable, rows: Sequence[Given], beside: int) -> bool:
    """Try to insert all rows as new ones; return False, without effect, if one exists, is repeated or lacks a field."""
    known = table.binding
    if not _are_whole(known, rows):
        return False
    if tx.writes.may_not_fit:
        tx.flush()  # before this call has an effect
    # A token cannot stop a COPY into another version of the table. The lock can: a change of columns waits for it.
    tx.precede(table, _lock)
    tx.precede(table, lambda _: _SAVEPOINT)
    tx.ask(table, lambda binding: Call(current(binding)))
    binding = table.binding
    if binding is not known and not _are_whole(binding, rows):
        tx.precede(table, lambda _: _RELEASE)
        return False
    text = f"copy {binding.qualified} ({columns_of(binding.shape.columns)}) from stdin (format binary)"
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
