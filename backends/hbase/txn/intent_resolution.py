"""`IntentResolution`: turns the intents of ended transactions into versions, or removes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from structable.backends.hbase.failpoints import failpoints
from structable.backends.hbase.layout import VALUE, intent_column
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.requests import (
    ROWS_AT_ONCE,
    ThriftCall,
    delete_columns,
    put_then_delete,
    split_rows,
)

from .context import PrefixContext
from .intents import LOCK, STEPS, RowState
from .status import COMMITTED, Status
from .visibility import Visibility

IntentCells = Mapping[bytes, Mapping[bytes, bytes]]
"""Space to row to intent."""

_PUT_BYTES = 512 << 10
"""The maximum number of bytes of the versions that one call puts; the deletes of the intents in it repeat all keys."""

EndedIntents = tuple[bytes, Status, IntentCells]
"""A transaction that has ended, its status, and all or some of its intents."""


class IntentResolution:
    """Resolves intents. Any process may do so for any transaction that has ended, any number of times."""

    def __init__(self, context: PrefixContext) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._visibility = Visibility(context)

    def resolve(self, txid: bytes, status: Status, intents: IntentCells) -> None:
        """Resolve intents of one transaction, leaving out tables that were dropped."""
        for space, rows in intents.items():
            with suppress(TableMissingError):
                self._gateway.flight(self.calls([(txid, status, {space: rows})]), retry=True)

    def calls(self, transactions: Sequence[EndedIntents]) -> list[ThriftCall[None]]:
        """Return the calls that put every row's version and then delete its intent."""
        merged = self._merged(transactions)
        return [call for one in transactions for call in self._calls(*one, merged)]

    def _merged(self, transactions: Sequence[EndedIntents]) -> dict[bytes, Mapping[tuple[bytes, int], RowState]]:
        """Return, for each space, the states of its rows after the steps of each transaction, at its timestamp.

        A state contains all steps of the row up to its timestamp, of all transactions, in their order.
        """
        committed = {txid: status for txid, status, _ in transactions if status.state == COMMITTED}
        rows: dict[bytes, dict[bytes, list[int]]] = {}
        for _, status, intents in transactions:
            if status.state != COMMITTED:
                continue
            for space, some in intents.items():
                for row, intent in some.items():
                    if intent[0] in STEPS:
                        rows.setdefault(space, {}).setdefault(row, []).append(status.commit)
        # A hot row is in many transactions, and has many intents: it is read once for all of them.
        return {
            space: self._visibility.history(self._layout.table(space), some, committed) for space, some in rows.items()
        }

    def _calls(
        self,
        txid: bytes,
        status: Status,
        intents: IntentCells,
        merged: Mapping[bytes, Mapping[tuple[bytes, int], RowState]],
    ) -> list[ThriftCall[None]]:
        column = intent_column(txid)
        count = 1 if failpoints else ROWS_AT_ONCE
        found: list[ThriftCall[None]] = []
        for space, rows in intents.items():
            table = self._layout.table(space)
            if status.state != COMMITTED:
                # A job's intents are one later than its start.
                found += delete_columns(table, rows, [column], status.start + 1, count)
                continue
            puts: dict[bytes, Mapping[bytes, bytes]] = {}
            for row, intent in rows.items():
                if intent[0] in STEPS:
                    state = merged[space].get((row, status.commit))
                    if state is not None and state.version == status.commit:
                        puts[row] = {VALUE: state.version_cell}
                elif intent[0] != LOCK:
                    puts[row] = {VALUE: intent}
            if locked := [row for row in rows if row not in puts]:
                # A lock leaves no version: pending transactions must be pushed beyond it.
                self._visibility.read(table, locked, status.commit, {txid: status})
            for part in split_rows(puts, count, _PUT_BYTES):
                found.append(put_then_delete(table, part, {row: [column] for row in part}, status.commit))
            found += delete_columns(table, locked, [column], status.commit, count)
        return found
