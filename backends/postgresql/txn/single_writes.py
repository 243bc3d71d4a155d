"""Writes of one row that are a transaction of their own, each one statement with a receipt.

They do what a `ServerTransaction` of one call does, without its objects, which take the client as long as the exchange
with the server takes it. Whatever they cannot do, or the server refuses, is left to a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from structable.backends.postgresql.driver.errors import (
    BrokenConnectionError,
    ForeignSessionError,
    StatementRefusedError,
    translated,
)
from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merge_statements import merge_row
from structable.backends.postgresql.sql.merging import Effect
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.spi import Isolation, Key, RecordNotFoundError, Value
from structable.spi.rules.rows import check_row
from structable.spi.values import MAX_ROW_SIZE

from .boundaries import BEGIN, BEGIN_WAITING
from .increments import increment_of
from .lost_commits import error_of_lost_commit
from .refusals import CHECKED_SIZE
from .row_calls import most_bytes, surely_fits
from .store_parts import StoreParts

__all__ = [
    "SingleWriter",
    "commit_alone",
    "single_delete",
    "single_increment",
    "single_insert",
    "single_replace",
    "single_update",
    "single_upsert",
]

_BEGIN = BEGIN[Isolation.SNAPSHOT, False]


class SingleWrite(NamedTuple):
    """One statement that writes one row."""

    call: Call
    waits: bool = False
    """Whether it waits for other writers of the row, and takes effect on what they leave."""
    existing: tuple[Value, ...] | None = None
    """The key of a row that must exist."""


SingleWriter: TypeAlias = Callable[[TableBinding, Any], SingleWrite | None]
"""Returns the write of what a verb was given, as `single_upsert` does."""


def single_upsert(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.upsert`; None if that needs a transaction. Raises the errors of its arguments."""
    found = _encoded(binding, row)
    if found is None or not binding.merges:
        return None if found is None else _put(binding, *found)
    names, pieces = found
    if at_most(pieces) >= MAX_ROW_SIZE:
        return None
    return SingleWrite(Call(merge_row(binding, Effect.ADD, names, waits=True), pieces), waits=True)


def single_replace(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.replace`, as `single_upsert` does."""
    whole = {**dict.fromkeys(binding.spec.field_names), **check_row(binding.write_spec, row)}
    found = _encoded(binding, whole)
    return None if found is None else _put(binding, *found)


def single_insert(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.insert`, as `single_upsert` does."""
    found = None if binding.merges else _encoded(binding, row)
    # It waits for a transaction that inserts the same key, or deletes it.
    return None if found is None else SingleWrite(statements.insert(binding, found[0]).call(found[1]), waits=True)


def single_update(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.update`, as `single_upsert` does."""
    found = None if binding.merges else _encoded(binding, row)
    if found is None or at_most(found[1]) > CHECKED_SIZE:
        return None
    names, pieces = found
    key, _ = binding.encoded_key(tuple([row[name] for name in binding.spec.primary_key]))
    return SingleWrite(statements.change(binding, names, checked=True).call(pieces), existing=key)


def single_increment(binding: TableBinding, given: tuple[Key, str, int]) -> SingleWrite | None:
    """Return the write of `table.increment`, as `single_upsert` does."""
    names, row = increment_of(binding, *given)
    return SingleWrite(statements.increment(binding, names).call(row.pieces))


def single_delete(binding: TableBinding, key: Key) -> SingleWrite | None:
    """Return the write of `table.delete`, as `single_upsert` does."""
    return SingleWrite(Call(statements.delete_row(binding), binding.encoded_key(key)[1]))


def _encoded(binding: TableBinding, row: Mapping[str, Value]) -> tuple[tuple[str, ...], Pieces] | None:
    names = tuple(row) if row.__class__ is dict else ()
    ordered = binding.known_names(names)
    return None if ordered is None else (ordered, binding.encoder(names).pieces(row))


def _put(binding: TableBinding, names: tuple[str, ...], pieces: Pieces) -> SingleWrite | None:
    size = at_most(pieces)
    fits = surely_fits(most_bytes(binding.width_without(names), size, None), size)
    if not fits and size > CHECKED_SIZE:
        return None
    return SingleWrite(statements.put(binding, names, checked=not fits).call(pieces))


def commit_alone(store: StoreParts, table: str, write: SingleWrite) -> bool:
    """Commit a write of a row of a table; False if nothing was committed, and a transaction must try.

    Raises
    ------
    RecordNotFoundError
        If there is no row that must exist.
    StorageUnavailableError
        If there is no connection, it broke before the commit, or a pooler gave its session to another client.
    CommitOutcomeUnknownError
        If it broke during the commit, and the server could not be asked.
    """
    call, waits, existing = write
    pool = store.pool
    connection = pool.acquire()
    receipt = loss = result = None
    try:
        if connection.commits:  # the first commit of a connection has no receipt
            receipt = store.receipts.next(connection)
        if receipt is not None:
            begin, if_changed = BEGIN_WAITING if waits else _BEGIN, existing is not None
            result = receipt.commit(begin, (call,), of_one_row=True, if_changed=if_changed, waits=waits)
        if result is None:
            connection.roll_back()
    except ForeignSessionError as foreign:
        raise translated(foreign, "the transaction") from foreign
    except StatementRefusedError:
        connection.roll_back()
    except BrokenConnectionError as broken:
        loss = broken
    finally:
        pool.release(connection)
    if loss is not None:
        if receipt is None:
            raise translated(loss, "the transaction") from loss
        error = error_of_lost_commit(receipt.is_there(pool), str(receipt), loss)
        if error is not None:
            raise error from loss
        return True
    if result is not None and existing is not None and not result.command_tuples:
        raise RecordNotFoundError(table, existing)
    return result is not None
