"""`AsyncTable`: a table for services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from structable.spi import TransactionClosedError, UnsupportedOperationError, UpdateMessage, Value
from structable.spi.authors import shown

from .layers import Layers
from .sources import CheckedWrite, Source
from .verbs import TableVerbs

K = TypeVar("K")
V = TypeVar("V")

_NO_VALUE = CheckedWrite(None, True)
_log = logging.getLogger("structable.access")


class AsyncTable(TableVerbs[K], Generic[K, V]):
    """A table whose calls an asyncio program awaits; made by `open_table`.

    Order. Every method takes its place when it is called, and returns a future, which may be awaited later or never.
    Calls for one key take effect in the order in which they were called; calls for different keys run at the same time.
    Gets of one key with no write between them share one read, also one that is under way. A call is carried out even if
    its caller is cancelled.

    Bulk calls (`get_many`, `put_many`, ...) bypass batches: they send the open batch first if it holds one of their
    keys, wait for earlier calls of their keys, and later ones wait for them. Over a `StructuredTable` each is one
    transaction; `put_many` with a None makes two, the puts first. Over functions each is one bulk call, `update_many`
    as many as it has updates of one key. If one `put_many` has several puts of a key, the last one counts.

    Arguments. Over a `StructuredTable` a key is a tuple or a mapping, and results have tuples; over functions it is any
    hashable object. Values, updates and defaults may leave the key out. A wrong argument is refused when the method is
    called, and changes nothing; a row that does not fit the schema as it was last seen is left to the store, which
    judges it alone, so that it fails no other call. A value must not be changed before its call has ended.

    Errors. A call's error is its future's. `flush`, and leaving the table, raise the first error of a write whose
    future was neither awaited nor inspected, so that writes need not be awaited one by one; asyncio's log has the
    errors that neither a caller nor `flush` has seen. Callers that share a failed call each get an exception of their
    own, as far as its class can be copied. Besides the source's own errors, every method may raise

    - `ValueError`: the key is None;
    - `UnsupportedOperationError`: a write without a write function, a read without a read function;
    - `TransactionClosedError`: the table was left or closed;
    - `RuntimeError`: the call is outside of the event loop of the table's first call, or in a forked process.

    Leave it by `async with` or `close`, which end the threads, and the functions. A function is opened on entering, or
    by the first call.
    """

    def __init__(self, source: Source, layers: Layers) -> None:
        self._source = source
        self._layers = layers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The table's name in errors and metrics."""
        return self._source.name

    @property
    def pending(self) -> int:
        """The size of the open batch, as `Batching` counts it; 0 without one."""
        return self._layers.pending

    def get(self, key: K) -> asyncio.Future[V | None]:
        """Return the value of a key, or None."""
        self._use_for_reads()
        return self._layers.get(self._source.key_of(key))

    def get_many(self, keys: Iterable[K]) -> asyncio.Future[dict[K, V]]:
        """Return the values of the keys that have one, in key order, each once."""
        self._use_for_reads()
        checked = [self._source.key_of(key) for key in _listed("keys", keys)]
        return self._layers.get_many(checked)  # type: ignore[return-value]  # keys in their checked form

    def put(self, key: K, value: V | Mapping[str, Value] | None) -> asyncio.Future[None]:
        """Set the value of a key; None deletes it. Over a StructuredTable this is `replace`."""
        self._use_for_writes()
        checked_key = self._source.key_of(key)
        if value is None:
            return self._layers.write("delete", checked_key, _NO_VALUE)
        return self._layers.write("put", checked_key, self._source.checked("put", checked_key, value))

    def put_many(self, pairs: Iterable[tuple[K, V | Mapping[str, Value] | None]]) -> asyncio.Future[None]:
        """`put` of all pairs: the values by one bulk call, then the Nones, which delete, by another."""
        self._use_for_writes()
        last = {self._source.key_of(key): value for key, value in _pairs(pairs)}
        puts = [(key, self._source.checked("put", key, value)) for key, value in last.items() if value is not None]
        return self._layers.write_many("put", puts, [key for key, value in last.items() if value is None])

    def upsert(self, key: K, changes: Mapping[str, Value]) -> asyncio.Future[None]:
        """Merge a row into the table, as `StructuredTable.upsert` does.

        Raises
        ------
        UnsupportedOperationError
            If the table is a table of functions.
        """
        self._use_for_writes()
        self._check_upserts()
        checked_key = self._source.key_of(key)
        return self._layers.write("upsert", checked_key, self._source.checked("upsert", checked_key, changes))

    def upsert_many(self, pairs: Iterable[tuple[K, Mapping[str, Value]]]) -> asyncio.Future[None]:
        """`upsert` of all pairs, in their order, in one transaction.

        Raises
        ------
        UnsupportedOperationError
            If the table is a table of functions.
        """
        self._use_for_writes()
        self._check_upserts()
        given = [(self._source.key_of(key), changes) for key, changes in _pairs(pairs)]
        return self._layers.write_many(
            "upsert", [(key, self._source.checked("upsert", key, changes)) for key, changes in given]
        )

    def update(
        self, key: K, changes: Mapping[str, Value], default: V | Mapping[str, Value] | None = None
    ) -> asyncio.Future[None]:
        """Change a part of the value of a key; if it has none, put `default` and change that.

        Over a StructuredTable this is one `update`. Over functions it is `update`; if that finds no value,
        `insert_if_absent` or else `put` of the default, whose failure is logged and counted, and `update` once more,
        whose failure is raised with a note.

        Raises
        ------
        RecordNotFoundError
            If the key has no value, and there is no default.
        UnsupportedOperationError
            If batches are compact, or the write function has no `update`.
        """
        self._use_for_updates()
        checked_key = self._source.key_of(key)
        return self._layers.write("update", checked_key, self._source.checked("update", checked_key, changes, default))

    def update_many(self, pairs: Iterable[tuple[K, UpdateMessage]]) -> asyncio.Future[list[K]]:
        """`update` of all pairs; return each key once whose update found no row, had no default, and was skipped.

        Raises
        ------
        TypeError
            If a value is not an UpdateMessage.
        UnsupportedOperationError
            If batches are compact, or the write function has no `update`.
        """
        self._use_for_updates()
        checked: list[tuple[Hashable, CheckedWrite]] = []
        for key, message in _pairs(pairs):
            if not isinstance(message, UpdateMessage):
                raise TypeError(f"the update of key {shown(key)} is {shown(message)}; it must be an UpdateMessage")
            checked_key = self._source.key_of(key)
            payload = self._source.checked("update", checked_key, message.update, message.default)
            checked.append((checked_key, payload))
        return self._layers.update_many(checked)

    def delete(self, key: K) -> asyncio.Future[None]:
        """Remove the value of a key; nothing happens if it has none."""
        self._use_for_writes()
        return self._layers.write("delete", self._source.key_of(key), _NO_VALUE)

    def delete_many(self, keys: Iterable[K]) -> asyncio.Future[None]:
        """`delete` of all keys, by one bulk call."""
        self._use_for_writes()
        gone = dict.fromkeys(self._source.key_of(key) for key in _listed("keys", keys))
        return self._layers.write_many("delete", [(key, _NO_VALUE) for key in gone])

    def flush(self) -> asyncio.Future[None]:
        """Send the open batch, and wait until all calls made before have ended.

        Raises an error of a failed write whose future was never looked at: the first of the last 100. Each is raised
        once, with a note of how many more there are. Writes whose caller was cancelled are among them.
        """
        self._use()
        return asyncio.ensure_future(self._layers.flush(self._layers.ends()))

    async def close(self) -> None:
        """Flush the table, and close its functions and threads; idempotent, and carried out if the caller is cancelled.

        Raises what `flush` raises, else what a function's `close` raises.
        """
        if self._closing is not None and self._closing.done():
            return
        closing = self._begin_closing()
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            closing.add_done_callback(self._log_closing)
            raise

    def _begin_closing(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._bind()
            self._closing = asyncio.create_task(self._close())
        return self._closing

    def _log_closing(self, closing: asyncio.Task[None]) -> None:
        if not closing.cancelled() and closing.exception() is not None:
            _log.error(
                "closing table %r failed after its caller was cancelled", self.name, exc_info=closing.exception()
            )

    async def _close(self) -> None:
        try:
            await self._layers.flush(self._layers.ends())
        except Exception as failure:
            try:
                await self._source.close()
            except Exception as error:
                failure.add_note(f"and closing table {self.name!r} failed: {error!r}")
            raise
        await self._source.close()

    async def __aenter__(self) -> Self:
        self._use()
        try:
            await self._source.open()
        except asyncio.CancelledError:  # the functions may still be opened
            self._begin_closing().add_done_callback(self._log_closing)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and leaving table {self.name!r} failed: {failure!r}")
            _log.error("leaving table %r failed after %r", self.name, error, exc_info=failure)

    def _use(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            self._bind()
        if self._closing is not None:
            raise TransactionClosedError(f"table {self.name!r} was closed")

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise RuntimeError(
                f"table {self.name!r} belongs to the event loop of its first call; open one for each, and after a fork"
            )

    def _use_for_reads(self) -> None:
        self._use()
        if not self._source.readable:
            raise UnsupportedOperationError(f"table {self.name!r} has no read function")

    def _use_for_writes(self) -> None:
        self._use()
        if not self._source.writable:
            raise UnsupportedOperationError(f"table {self.name!r} has no write function")

    def _use_for_updates(self) -> None:
        self._use_for_writes()
        self._check_updates()

    def _check_updates(self) -> None:
        if self._layers.is_compact:
            raise UnsupportedOperationError(
                f"table {self.name!r} has compact batches, which keep whole values: it has no update; use put or upsert"
            )

    def _check_upserts(self) -> None:
        if not self._source.upserts:
            raise UnsupportedOperationError(f"table {self.name!r} is a table of functions, which has no upsert")

    def _send_batch(self) -> None:
        """Send the open batch if it waits for more operations without a time limit."""
        if self._layers.waits_for_more:
            self._layers.send()


def _listed(argument: str, given: object) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} is {shown(given)}; it must be a list of {argument}")
    return list(given)


def _pairs(given: object) -> list[tuple[Any, Any]]:
    pairs = _listed("pairs", given)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"pairs has {shown(pair)}; it must be a pair of a key and a value")
    return pairs
