"""Writes of one row that are a transaction of their own, each one statement with a receipt.

They do what a `ServerTransaction` of one call does, without its objects, which take the client as long as the exchange
with the server takes it. Whatever they cannot do, or the server refuses, is left to a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from structable.backends.postgresql.driver.errors import BrokenConnectionError, StatementRefusedError, translated
from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merge_statements import merge_row
from structable.backends.postgresql.sql.merging import Effect
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.spi import Isolation, Value
from structable.spi.values import MAX_ROW_SIZE

from .boundaries import BEGIN, BEGIN_WAITING
from .lost_commits import error_of_lost_commit
from .refusals import CHECKED_SIZE
from .row_calls import most_bytes, surely_fits
from .store_parts import StoreParts

__all__ = ["SingleWrite", "commit_alone", "single_update", "single_upsert"]

_BEGIN = BEGIN[Isolation.SNAPSHOT, False]


class SingleWrite(NamedTuple):
    """One statement that writes one row; `waits` and `if_changed` as `Receipt.commit` says."""

    call: Call
    waits: bool
    if_changed: bool


def single_upsert(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.upsert(row)`; None if it needs a transaction. Raises the errors of `check_row`."""
    found = _encoded(binding, row)
    if found is None:
        return None
    names, pieces = found
    size = at_most(pieces)
    if binding.merges:
        if size >= MAX_ROW_SIZE:
            return None
        return SingleWrite(Call(merge_row(binding, Effect.ADD, names, waits=True), pieces), True, False)
    fits = surely_fits(most_bytes(binding.width_without(names), size, None), size)
    if not fits and size > CHECKED_SIZE:
        return None
    return SingleWrite(statements.put(binding, names, checked=not fits).call(pieces), False, False)


def single_update(binding: TableBinding, row: Mapping[str, Value]) -> SingleWrite | None:
    """Return the write of `table.update(row)`, as `single_upsert` does."""
    found = None if binding.merges else _encoded(binding, row)
    if found is None or at_most(found[1]) > CHECKED_SIZE:
        return None
    names, pieces = found
    return SingleWrite(statements.change(binding, names, checked=True).call(pieces), False, True)


def _encoded(binding: TableBinding, row: Mapping[str, Value]) -> tuple[tuple[str, ...], Pieces] | None:
    if row.__class__ is not dict or binding.takes_input or binding.spec.keyless:
        return None
    names = tuple(row)
    ordered = binding.known_names(names)
    return None if ordered is None else (ordered, binding.encoder(names).pieces(row))


def commit_alone(store: StoreParts, write: SingleWrite) -> bool | None:
    """Commit a write, and return whether it took effect; None if nothing was committed, and a transaction must try.

    Raises
    ------
    StorageUnavailableError
        If there is no connection, or it broke before the commit.
    CommitOutcomeUnknownError
        If it broke during the commit, and the server could not be asked.
    """
    call, waits, if_changed = write
    pool = store.pool
    connection = pool.acquire()
    receipt = loss = result = None
    try:
        if connection.commits:  # the first commit of a connection has no receipt
            receipt = store.receipts.next(connection)
        if receipt is not None:
            begin = BEGIN_WAITING if waits else _BEGIN
            result = receipt.commit(begin, (call,), of_one_row=True, if_changed=if_changed, waits=waits)
        if result is None:
            connection.roll_back()
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
    return None if result is None else not if_changed or bool(result.command_tuples)
