"""`TableVerbs`: the calls of a table for services that need a StructuredTable, not only keys and values."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from itertools import islice
from typing import Generic, TypeVar

from structable.spi import Filter, Range, Row, RowIterator, UnsupportedOperationError, Value

from .layers import Layers
from .sources import Source
from .structured import StructuredSource

K = TypeVar("K")

_ALL = Range()
_ROWS = 1_000
"""Rows of a scan that a thread fetches at once."""


class TableVerbs(ABC, Generic[K]):
    """Calls of a StructuredTable; over functions each is an `UnsupportedOperationError`.

    Writes keep their place among the other calls of their key, in no batch. A scan and a count see all calls that were
    made before them.
    """

    _source: Source
    _layers: Layers

    @abstractmethod
    def _use_for_reads(self) -> None:
        """Check that the table may be read here."""

    @abstractmethod
    def _use_for_writes(self) -> None:
        """Check that the table may be written here."""

    def insert(self, key: K, value: Mapping[str, Value]) -> asyncio.Future[None]:
        """Put a new row, as `StructuredTable.insert` does.

        Raises
        ------
        RecordExistsError
            If the key has one.
        """
        self._use_for_writes()
        source = self._structured("insert")
        checked_key = source.key_of(key)
        row = source.checked("put", checked_key, value).payload
        return self._layers.call(checked_key, lambda: source.call("insert", row))

    def increment(self, key: K, field: str, amount: int = 1) -> asyncio.Future[None]:
        """Add to an integer field, as `StructuredTable.increment` does."""
        self._use_for_writes()
        source = self._structured("increment")
        checked_key = source.key_of(key)
        return self._layers.call(
            checked_key, lambda: source.call("increment", source.for_store(checked_key), field, amount)
        )

    def compare_and_swap(self, key: K, field: str, expected: Value, value: Value) -> asyncio.Future[bool]:
        """Set a field, as `StructuredTable.compare_and_swap` does, and return whether it had the expected value."""
        self._use_for_writes()
        source = self._structured("compare_and_swap")
        checked_key = source.key_of(key)
        return self._layers.call(
            checked_key, lambda: source.call("compare_and_swap", source.for_store(checked_key), field, expected, value)
        )

    async def count(self, ranges: Range | Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of rows, as `StructuredTable.count` does."""
        self._use_for_reads()
        source = self._structured("count")
        await self._earlier_calls()
        found: int = await source.call("count", ranges, where)
        return found

    async def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncGenerator[Row]:
        """Yield rows of one snapshot, as `StructuredTable.scan` does, some hundred at a time.

        Leave the loop early by way of `contextlib.aclosing`, which frees the snapshot at once.
        """
        options = {"where": where, "columns": columns, "order_by": order_by, "reverse": reverse, "limit": limit}
        async with contextlib.aclosing(self._parts(range, options)) as parts:
            async for part in parts:
                for row in part:
                    yield row

    async def _parts(self, range: Range, options: Mapping[str, object]) -> AsyncGenerator[list[Row]]:
        """Yield the rows of a scan in lists. A thread fetches one list at a time."""
        self._use_for_reads()
        source = self._structured("scan")
        await self._earlier_calls()
        rows = _ThreadScan(await source.call("scan", range, **options))
        try:
            while part := await source.run(rows.fetch):
                yield part
                self._use_for_reads()
        finally:
            await source.run_last(rows.close)

    async def _earlier_calls(self) -> None:
        if ends := self._layers.ends():
            await asyncio.wait(ends)

    def _structured(self, verb: str) -> StructuredSource:
        if not isinstance(self._source, StructuredSource):
            raise UnsupportedOperationError(f"table {self._source.name!r} is a table of functions, which has no {verb}")
        return self._source


class _ThreadScan:
    """A scan that one thread uses at a time, also if the task that waits for it is cancelled."""

    def __init__(self, rows: RowIterator) -> None:
        self._rows = rows
        self._lock = threading.Lock()

    def fetch(self) -> list[Row]:
        with self._lock:
            return list(islice(self._rows, _ROWS))

    def close(self) -> None:
        with self._lock:
            self._rows.close()
