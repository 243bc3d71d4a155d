"""Writes to tables without a key: rows get hidden keys, which begin with digests that find equal rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from structable.backends.postgresql.driver.statement import BIGINT, BYTEA, Call
from structable.backends.postgresql.sql.names import HIDDEN_KEY
from structable.backends.postgresql.sql.row_codec import SLACK, at_most
from structable.backends.postgresql.sql.types import array
from structable.backends.postgresql.sql.write_statements import WriteShape, take_rows
from structable.spi import RowKind
from structable.spi.authors import Effect, When, new_ids, row_digest

from .bound_table import BoundTable
from .row_statements import EncodedRow, Given, RowStatement, chunks, defer, size_of_rows
from .server_transaction import ServerTransaction

_NONE: Mapping[bytes, int] = {}
_COUNT = struct.Struct(">q")


def insert_keyless(
    tx: ServerTransaction, table: BoundTable, rows: Sequence[Given], taken: Mapping[bytes, int] = _NONE
) -> None:
    """Delete rows by their digests, then insert checked rows; together they must fit in the transaction."""
    binding = table.binding
    groups: dict[tuple[str, ...], list[EncodedRow]] = {}
    for hidden, row in zip(new_ids(binding.spec, rows), rows, strict=True):
        names = binding.ordered(row)
        pieces = binding.row_pieces(names, row)
        one = EncodedRow(row, (hidden, *pieces), len(hidden) + at_most(pieces))
        groups.setdefault((HIDDEN_KEY, *names), []).append(one)
    writes = [
        RowStatement(binding, WriteShape(Effect.PUT, names, When.ABSENT), chunk, many=True)
        for names, group in groups.items()
        for chunk in chunks(group, lambda one: one.size)
    ]
    size = sum(size_of_rows(statement.rows) for statement in writes)
    tx.require_room(size + sum(len(digest) + SLACK for digest in taken))
    for some in chunks(taken.items(), lambda one: len(one[0])):
        _take(tx, table, some)
    for statement in writes:
        defer(tx, table, statement)


def apply_to_bag(tx: ServerTransaction, table: BoundTable, changes: Iterable[tuple[RowKind, Given]]) -> None:
    """Put rows and delete equal ones, in the order of the changes.

    A retract removes an equal row that was put before it, or else a row of the table. Rows that are put and not
    retracted again are inserted.
    """
    put: dict[bytes, list[Given]] = {}
    taken: dict[bytes, int] = {}
    for kind, row in changes:
        digest = row_digest(row)
        if not kind.retracts:
            put.setdefault(digest, []).append(row)
        elif put.get(digest):
            put[digest].pop()
        else:
            taken[digest] = taken.get(digest, 0) + 1
    insert_keyless(tx, table, [row for rows in put.values() for row in rows], taken)


def _take(tx: ServerTransaction, table: BoundTable, taken: list[tuple[bytes, int]]) -> None:
    digests = array(BYTEA, [digest for digest, _ in taken])
    numbers = array(BIGINT, [_COUNT.pack(number) for _, number in taken])
    tx.defer(table, lambda binding: Call(take_rows(binding), (digests, numbers)))
