"""`blocking`: a table for services whose methods wait, for threads without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

from structable.spi import Filter, Range, Row, TransactionClosedError, UpdateMessage, Value
from structable.spi.authors import shown

from .loop_thread import LoopThread
from .table import AsyncTable

K = TypeVar("K")
V = TypeVar("V")
Result = TypeVar("Result")

_ALL = Range()


def blocking(table: AsyncTable[K, V]) -> BlockingTable[K, V]:
    """Return the same table with methods that wait, on an event loop on a thread of its own.

    Parameters
    ----------
    table : AsyncTable
        The result of `open_table`, neither entered nor used yet; the BlockingTable owns it from now on.

    Raises
    ------
    TypeError
        If the argument is not an AsyncTable.
    """
    if not isinstance(table, AsyncTable):
        raise TypeError(f"table is {shown(table)}; it must be an AsyncTable, as open_table returns it")
    return BlockingTable(table)


class BlockingTable(Generic[K, V]):
    """The methods of an AsyncTable for threads: each returns once its call has taken effect, or raises its error.

    All methods may be called from any number of threads at once; calls that wait at the same time share batches, reads
    and the cache. The event loop starts with the first call, or on entering the table as a context manager, and ends
    with `close`; afterwards every method raises TransactionClosedError.

    An exception that a signal's handler raises in a waiting thread, such as KeyboardInterrupt, ends the wait alone: the
    call is still carried out, its error goes to asyncio's log, and the table can be used and closed as before.

    A process that was forked after the first call cannot use the table: every method raises RuntimeError there, and
    `close` does nothing. A table that was not used before the fork works in either process.
    """

    def __init__(self, table: AsyncTable[K, V]) -> None:
        self._table = table
        self._name = f"blocking table {table.name!r}"
        self._lock = threading.RLock()
        self._thread: LoopThread | None = None
        self._closed = False

    def __enter__(self) -> Self:
        try:
            self._running().enter()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and leaving {self._name} failed: {failure!r}")

    def __del__(self) -> None:
        thread = self.__dict__.get("_thread")
        if thread is not None and not self._closed and thread.process == os.getpid():
            warnings.warn(f"{self._name} was not closed", ResourceWarning, stacklevel=2, source=self)
            thread.stop()

    @property
    def pending(self) -> int:
        """The size of the open batch; 0 without one."""
        return self._table.pending

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None; as `AsyncTable.get`."""
        return self._call(lambda: self._table.get(key))

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the values of the keys that have one; as `AsyncTable.get_many`."""
        drawn = _drawn(keys)
        return self._call(lambda: self._table.get_many(drawn))

    def put(self, key: K, value: V | Mapping[str, Value] | None) -> None:
        """Set the value of a key; None deletes it; as `AsyncTable.put`."""
        self._call(lambda: self._table.put(key, value))

    def put_many(self, pairs: Iterable[tuple[K, V | Mapping[str, Value] | None]]) -> None:
        """Set or delete the values of keys; as `AsyncTable.put_many`."""
        drawn = _drawn(pairs)
        self._call(lambda: self._table.put_many(drawn))

    def upsert(self, key: K, changes: Mapping[str, Value]) -> None:
        """Merge a row into the table; as `AsyncTable.upsert`."""
        self._call(lambda: self._table.upsert(key, changes))

    def upsert_many(self, pairs: Iterable[tuple[K, Mapping[str, Value]]]) -> None:
        """Merge rows into the table; as `AsyncTable.upsert_many`."""
        drawn = _drawn(pairs)
        self._call(lambda: self._table.upsert_many(drawn))

    def update(self, key: K, changes: Mapping[str, Value], default: V | Mapping[str, Value] | None = None) -> None:
        """Change a part of the value of a key, from the default if it has none; as `AsyncTable.update`."""
        self._call(lambda: self._table.update(key, changes, default))

    def update_many(self, pairs: Iterable[tuple[K, UpdateMessage]]) -> list[K]:
        """Change parts of values, and return the missing keys; as `AsyncTable.update_many`."""
        drawn = _drawn(pairs)
        return self._call(lambda: self._table.update_many(drawn))

    def delete(self, key: K) -> None:
        """Remove the value of a key; as `AsyncTable.delete`."""
        self._call(lambda: self._table.delete(key))

    def delete_many(self, keys: Iterable[K]) -> None:
        """Remove the values of keys; as `AsyncTable.delete_many`."""
        drawn = _drawn(keys)
        self._call(lambda: self._table.delete_many(drawn))

    def insert(self, key: K, value: Mapping[str, Value]) -> None:
        """Put a new row; as `AsyncTable.insert`."""
        self._call(lambda: self._table.insert(key, value))

    def increment(self, key: K, field: str, amount: int = 1) -> None:
        """Add to an integer field; as `AsyncTable.increment`."""
        self._call(lambda: self._table.increment(key, field, amount))

    def compare_and_swap(self, key: K, field: str, expected: Value, value: Value) -> bool:
        """Set a field, and return whether it had the expected value; as `AsyncTable.compare_and_swap`."""
        return self._call(lambda: self._table.compare_and_swap(key, field, expected, value))

    def count(self, ranges: Range | Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of rows; as `AsyncTable.count`."""
        drawn = ranges if ranges is None or isinstance(ranges, Range) else _drawn(ranges)
        return self._call(lambda: self._table.count(drawn, where))

    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Generator[Row]:
        """Yield rows of one snapshot; as `AsyncTable.scan`.

        Leave the loop early by way of `contextlib.closing`, which frees the snapshot at once.
        """
        chosen = None if columns is None else _drawn(columns)
        options = {"where": where, "columns": chosen, "order_by": order_by, "reverse": reverse, "limit": limit}
        parts = self._table._parts(range, options)
        turn = asyncio.Lock()  # an interrupted wait leaves its call under way

        async def fetched() -> list[Row]:
            async with turn:
                return await anext(parts, [])

        async def left() -> None:
            async with turn:
                await parts.aclose()

        try:
            while part := self._call(fetched):
                yield from part
        finally:
            self._leave(left)

    def flush(self) -> None:
        """Send the open batch, and wait until all calls made before have ended; as `AsyncTable.flush`."""
        self._call(self._table.flush)

    def close(self) -> None:
        """Flush the table, and end its functions and threads; idempotent.

        Raises the error of closing a function, once; the thread has ended anyway.
        """
        if self._is_of_another_process():
            return
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is None:
            return
        if thread.is_current:
            raise RuntimeError(f"{self._name} cannot be closed by a function that it calls")
        thread.stop()
        thread.join()
        error, thread.error = thread.error, None
        if error is not None:
            raise error

    def _leave(self, left: Callable[[], Awaitable[None]]) -> None:
        """Close a scan, unless asyncio closes it with the event loop, or when it collects the scan."""
        thread = self._thread
        if thread is not None and not (self._closed or thread.is_current or self._is_of_another_process()):
            self._call(left)

    def _call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        return self._running().call(function)

    def _running(self) -> LoopThread:
        if self._is_of_another_process():
            raise RuntimeError(
                f"{self._name} was used before this process was forked; open another one in this process"
            )
        if self._closed:
            raise TransactionClosedError(f"{self._name} was closed")
        thread = self._thread
        if thread is None or not thread.is_started:
            with self._lock:
                if self._closed:
                    raise TransactionClosedError(f"{self._name} was closed")
                if self._thread is None:
                    self._thread = LoopThread(self._table, self._name)
                thread = self._thread
                thread.start()
        if thread.is_current:
            raise RuntimeError(f"a function that {self._name} calls cannot call the table and wait for it")
        return thread

    def _is_of_another_process(self) -> bool:
        thread = self._thread
        return thread is not None and thread.process != os.getpid()


def _drawn(given: Iterable[Result]) -> Iterable[Result]:
    """Consume an iterator in the caller's thread, where it may wait; the table checks any other argument."""
    return list(given) if isinstance(given, Iterator) else given
