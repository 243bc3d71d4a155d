"""Writes to tables without a key: rows get hidden keys, and equal rows are found by the digests in these."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.driver.type_oids import BIGINT, BYTEA
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.keyless import insert_rows, take_rows
from structable.backends.postgresql.sql.row_codec import SLACK, Pieces, at_most
from structable.backends.postgresql.sql.types import array
from structable.spi import RowKind, Value
from structable.spi.rules.keyless import new_ids, row_digest

from .bound_table import BoundTable
from .row_arrays import arrays, portions
from .server_transaction import ServerTransaction

__all__ = ["apply_to_bag", "insert_keyless"]

Given: TypeAlias = Mapping[str, Value]
Hidden: TypeAlias = tuple[bytes, Given, Pieces]
"""A row with its hidden key before it, and its values in binary."""
Write: TypeAlias = tuple[tuple[str, ...], list[Hidden]]
"""The fields that some rows name, and the rows."""
_NONE: Mapping[bytes, int] = {}
_COUNT = struct.Struct(">q")


def insert_keyless(tx: ServerTransaction, table: BoundTable, rows: Sequence[Given]) -> None:
    """Insert checked rows."""
    _insert(tx, table, table.binding, rows)


def _writes(binding: TableBinding, rows: Sequence[Given]) -> list[Write]:
    """Return the rows of each statement, which name the same fields, with hidden keys."""
    groups: dict[tuple[str, ...], list[Hidden]] = {}
    for hidden, row in zip(new_ids(binding.spec, rows), rows, strict=True):
        names = binding.ordered(row)
        groups.setdefault(names, []).append((hidden, row, binding.row_pieces(names, row)))
    return [
        (names, portion)
        for names, group in groups.items()
        for portion in portions(group, lambda one: len(one[0]) + at_most(one[2]))
    ]


def _insert(
    tx: ServerTransaction,
    table: BoundTable,
    binding: TableBinding,
    rows: Sequence[Given],
    taken: Mapping[bytes, int] = _NONE,
) -> None:
    """Take rows away, then insert others, checked for a version of the table; together they must have room."""
    writes = _writes(binding, rows)
    size = sum(len(hidden) + at_most(pieces) for _, portion in writes for hidden, _, pieces in portion)
    tx.require_room(size + sum(len(digest) + SLACK for digest in taken))
    for some in portions(taken.items(), lambda one: len(one[0])):
        _take(tx, table, some)
    for names, portion in writes:
        _defer(tx, table, binding, names, portion)


def _defer(
    tx: ServerTransaction, table: BoundTable, first: TableBinding, names: tuple[str, ...], rows: list[Hidden]
) -> None:
    def build(binding: TableBinding) -> Call:
        given = [pieces if binding is first else binding.row_pieces(names, row) for _, row, pieces in rows]
        ids = array(BYTEA, [hidden for hidden, _, _ in rows])
        return Call(insert_rows(binding, names), [ids, *(arrays(binding, names, given) if names else ())])

    tx.defer(table, build)


def apply_to_bag(tx: ServerTransaction, table: BoundTable, changes: Iterable[tuple[RowKind, Given]]) -> None:
    """Put rows and take equal ones away, in the order of the changes.

    Of the changes of equal rows, those that take away more than was put before them take rows of the table; what was
    put and is not taken away again is inserted.
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
    _insert(tx, table, table.binding, [row for rows in put.values() for row in rows], taken)


def _take(tx: ServerTransaction, table: BoundTable, taken: list[tuple[bytes, int]]) -> None:
    digests = array(BYTEA, [digest for digest, _ in taken])
    numbers = array(BIGINT, [_COUNT.pack(number) for _, number in taken])
    tx.defer(table, lambda binding: Call(take_rows(binding), (digests, numbers)))
