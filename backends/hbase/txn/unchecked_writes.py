"""`UncheckedWrites`: writes without a transaction, for rows that no snapshot reads yet or reads any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from structable.backends.hbase.layout import FAMILY, GC, STATE, VALUE, Layout
from structable.backends.hbase.tables import drop_table
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import (
    ROWS_AT_ONCE,
    ThriftCall,
    delete_columns,
    get_row,
    put_rows,
    split_rows,
)
from structable.backends.ordered.engine import SPACE_BYTES, WriteSet, successor

from .intents import write_intent
from .session import read_clock
from .sessionless import publish_removed


def safe_point(gateway: Gateway, layout: Layout) -> int:
    """Return the timestamp that no snapshot of any process is older than."""
    cells = gateway.call(get_row(layout.transactions, GC, [STATE]))
    return int(cells[STATE][0]) if STATE in cells else 0


class UncheckedWrites:
    """Writes and removes cells at once."""

    def __init__(self, gateway: Gateway, layout: Layout) -> None:
        self._gateway = gateway
        self._layout = layout
        self._discarded_at: dict[bytes, int] = {}

    def write(self, writes: WriteSet) -> None:
        """Put and remove rows without a check; later snapshots see the result."""
        layout = self._layout
        puts: dict[str, dict[bytes, Mapping[bytes, bytes]]] = {}
        removed: dict[str, list[bytes]] = {}
        for key, value in chain(writes.writes.items(), writes.derived.items()):
            table, row = layout.table(key[:SPACE_BYTES]), layout.row(key)
            if value is None:
                removed.setdefault(table, []).append(row)
            else:
                puts.setdefault(table, {})[row] = {VALUE: write_intent(value)}
        at = read_clock(self._gateway, layout)
        calls: list[ThriftCall[None]] = []
        for table, rows in puts.items():
            calls += [put_rows(table, part, at) for part in split_rows(rows)]
        for table, names in removed.items():
            calls += delete_columns(table, names, [FAMILY], at)
        self._gateway.flight(calls, retry=True)

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        """Remove rows once no snapshot can read them; see `Engine.discard`."""
        gateway, layout = self._gateway, self._layout
        now = self._discarded_at.get(beginning)
        if now is None:
            now = self._discarded_at[beginning] = read_clock(gateway, layout)
        if safe_point(gateway, layout) < now:
            return False
        publish_removed(gateway, layout, now)
        if len(beginning) == SPACE_BYTES:
            drop_table(gateway, layout.table(beginning))
        else:
            table, first, last = layout.interval(beginning, successor(beginning))
            try:
                for page in gateway.pages(table, first, last, [FAMILY], before=None, page_rows=ROWS_AT_ONCE):
                    if stopped():
                        return False
                    gateway.flight(delete_columns(table, (row for row, _ in page), [FAMILY], now), retry=True)
            except TableMissingError:
                return True
        del self._discarded_at[beginning]
        return True
