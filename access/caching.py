"""`Cache`: rows kept for a while in front of a table, loaded once for all callers that wait for one."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from cachetools import TLRUCache

from structable.spi.authors import shown

from .copies import another, private_copy
from .metrics import Instruments

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """A table's cache; immutable, and usable for any number of tables, each with rows of its own.

    A row that is not cached is loaded once for all callers that wait for it; cancelling one of them leaves the load to
    the others, and a load that fails fails them all and keeps nothing. A write drops its rows when it is called. A
    put's value is kept once the put succeeded; updated and deleted rows are loaded again. A load that a write of its
    key overlaps is given to its callers, never kept. A write of another process is seen after at most `ttl` seconds, as
    rows age from the call that loaded or put them, however long that took.

    Every caller gets a value of its own: mutable values are copied (`copy.deepcopy`) on the way into the cache and out
    of it, so that changing one changes nothing else. A value that cannot be copied is a TypeError of the call that
    loads it. A `Row` is immutable and is never copied. Callers that wait for a load that fails have an error each.

    Parameters
    ----------
    max_rows : int
        The maximum number of rows to keep; beyond it, the least recently read row is dropped.
    ttl : float
        Seconds of the event loop's clock for which a row is kept.
    absent : bool
        Whether the absence of a row is kept, too, and counts as a row.

    Raises
    ------
    TypeError
        If an argument has another type.
    ValueError
        If `max_rows` or `ttl` is not positive.
    """

    max_rows: int = 10_000
    ttl: float = 60.0
    absent: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int):
            raise TypeError(f"max_rows is {shown(self.max_rows)}; it must be an int")
        if self.max_rows < 1:
            raise ValueError(f"max_rows is {self.max_rows}; it must be at least 1")
        if isinstance(self.ttl, bool) or not isinstance(self.ttl, int | float):
            raise TypeError(f"ttl is {shown(self.ttl)}; it must be a number of seconds")
        if not 0 < self.ttl < math.inf:
            raise ValueError(f"ttl is {self.ttl}; it must be a positive number of seconds")
        if not isinstance(self.absent, bool):
            raise TypeError(f"absent is {shown(self.absent)}; it must be a bool")


class _CachedRow(NamedTuple):
    """A row, None if it is absent, and the time at which it expires."""

    row: Any
    expires: float


class _Load(Generic[K, V]):
    """One load under way, of one key or of several."""

    __slots__ = ("_given", "_other_error", "began", "ends", "error", "overlapped", "rows")

    def __init__(self, overlapped: set[K], began: float) -> None:
        self.began = began
        self.overlapped = overlapped
        """The keys of the load that a write overlaps."""
        self.ends: list[Callable[[], None]] = []
        self.rows: Mapping[K, V | None] = {}
        self.error: BaseException | None = None
        self._other_error: BaseException | None = None
        self._given: set[K] = set()

    def row(self, key: K) -> V | None:
        """Return the loaded row for one more caller, or raise the error of the load."""
        if self.error is not None:
            error, self._other_error = self._other_error or self.error, another(self.error)
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        row = self.rows.get(key)
        if key in self._given:
            return private_copy(row)
        self._given.add(key)
        return row


class CachedWrite(Generic[K]):
    """A write from its call to its end, as `CachedRows` knows it."""

    __slots__ = ("began", "keys")

    def __init__(self, keys: tuple[K, ...], began: float) -> None:
        self.keys = keys
        self.began = began


class _KeyWrites(Generic[K]):
    """The writes of one key that have been called and have not ended."""

    __slots__ = ("count", "last")

    def __init__(self, last: CachedWrite[K]) -> None:
        self.count = 1
        self.last = last


class CachedRows(Generic[K, V]):
    """The cached rows of one table, on one event loop.

    Look-ups and `written` act when they are called, not when first awaited, so that they keep the order of the calls.

    Parameters
    ----------
    cache : Cache
        The policy.
    instruments : Instruments
        The instruments that report hits, misses and rows.
    """

    def __init__(self, cache: Cache, instruments: Instruments) -> None:
        self._cache = cache
        self._instruments = instruments
        self._gauge = instruments.cache_gauge()
        self._kept: TLRUCache[K, _CachedRow] | None = None
        self._loads: dict[K, _Load[K, V]] = {}
        self._under_way: set[asyncio.Future[Any]] = set()
        self._writing: dict[K, _KeyWrites[K]] = {}

    def get(self, key: K, load: Callable[[], Awaitable[V | None]]) -> asyncio.Future[V | None]:
        """Return the future row of a key, None if it is absent; `load` is called at once where it is needed."""
        loop = asyncio.get_running_loop()
        own: asyncio.Future[V | None] = loop.create_future()
        try:
            kept = self._rows(loop)[key].row
        except KeyError:
            self._instruments.miss()
        else:
            self._instruments.hit()
            own.set_result(private_copy(kept))
            return own
        under_way = self._loads.get(key)
        if under_way is None:
            task: asyncio.Future[V | None] = asyncio.ensure_future(load())
            under_way = self._begin([key], task, lambda: {key: task.result()})
        shared = under_way
        shared.ends.append(lambda: _settle(own, lambda: shared.row(key)))
        return own

    def get_many(
        self, keys: Iterable[K], load_many: Callable[[list[K]], Awaitable[Mapping[K, V | None]]]
    ) -> asyncio.Future[dict[K, V]]:
        """Return the future rows of the keys that have one, in key order.

        `load_many` is called at once, and at most once: with the keys that are neither kept nor being loaded.
        """
        loop = asyncio.get_running_loop()
        own: asyncio.Future[dict[K, V]] = loop.create_future()
        rows = self._rows(loop)
        found: dict[K, V | None] = {}
        awaited: dict[K, _Load[K, V]] = {}
        missing: list[K] = []
        for key in dict.fromkeys(keys):
            found[key] = None
            try:
                found[key] = private_copy(rows[key].row)
            except KeyError:
                under_way = self._loads.get(key)
                if under_way is None:
                    missing.append(key)
                else:
                    awaited[key] = under_way
        misses = len(missing) + len(awaited)
        if len(found) > misses:
            self._instruments.hit(len(found) - misses)
        if misses:
            self._instruments.miss(misses)
        if missing:
            task: asyncio.Future[Mapping[K, V | None]] = asyncio.ensure_future(load_many(missing))
            awaited |= dict.fromkeys(missing, self._begin(missing, task, task.result))
        left = set(awaited.values())

        def all_rows() -> dict[K, V]:
            rows = {key: awaited[key].row(key) if key in awaited else row for key, row in found.items()}
            return {key: row for key, row in rows.items() if row is not None}

        def end(load: _Load[K, V]) -> None:
            left.discard(load)
            if not left or load.error is not None:
                _settle(own, all_rows)

        for load in left:
            load.ends.append(partial(end, load))
        if not left:
            _settle(own, all_rows)
        return own

    def written(self, keys: Iterable[K]) -> CachedWrite[K]:
        """Drop the rows of a write that is called now; `acknowledged` must follow, even if the write fails."""
        write = CachedWrite(tuple(dict.fromkeys(keys)), asyncio.get_running_loop().time())
        for key in write.keys:
            if self._kept is not None:
                self._kept.pop(key, None)
            under_way = self._loads.pop(key, None)
            if under_way is not None:
                under_way.overlapped.add(key)
            writing = self._writing.get(key)
            if writing is None:
                self._writing[key] = _KeyWrites(write)
            else:
                writing.count += 1
                writing.last = write
        self._count()
        return write

    def acknowledged(self, write: CachedWrite[K], values: Mapping[K, V] | None = None) -> None:
        """End a write, and keep the values that it put, unless a later write of their key was called.

        Parameters
        ----------
        write : CachedWrite
            The result of `written`.
        values : mapping, optional
            By key, the rows that a successful put left; None for an update, a delete, and a write that failed.
        """
        keys, write.keys = write.keys, ()
        for key in keys:
            writing = self._writing[key]
            writing.count -= 1
            if writing.count:
                continue
            del self._writing[key]
            if values is not None and writing.last is write and key in values:
                # The put stands, so a value that cannot be copied is an error of the next load, not of the put.
                with contextlib.suppress(TypeError):
                    self._keep(key, values[key], write.began)
        self._count()

    def _rows(self, loop: asyncio.AbstractEventLoop) -> TLRUCache[K, _CachedRow]:
        if self._kept is None:
            self._kept = TLRUCache(self._cache.max_rows, lambda key, kept, now: kept.expires, loop.time)
        return self._kept

    def _keep(self, key: K, row: V | None, began: float) -> None:
        loop, expires = asyncio.get_running_loop(), began + self._cache.ttl
        if (row is not None or self._cache.absent) and loop.time() < expires:
            self._rows(loop)[key] = _CachedRow(private_copy(row), expires)

    def _count(self) -> None:
        if self._instruments.enabled and self._kept is not None:
            self._gauge.rows = len(self._kept)

    def _begin(
        self, keys: list[K], task: asyncio.Future[Result], rows: Callable[[], Mapping[K, V | None]]
    ) -> _Load[K, V]:
        began = asyncio.get_running_loop().time()
        load: _Load[K, V] = _Load({key for key in keys if key in self._writing}, began)
        for key in keys:
            self._loads[key] = load
        self._under_way.add(task)
        task.add_done_callback(lambda done: self._end(keys, load, done, rows))
        return load

    def _end(
        self,
        keys: list[K],
        load: _Load[K, V],
        task: asyncio.Future[Result],
        rows: Callable[[], Mapping[K, V | None]],
    ) -> None:
        self._under_way.discard(task)
        for key in keys:
            if self._loads.get(key) is load:
                del self._loads[key]
        try:
            load.rows = rows()
            for key in keys:
                if key not in load.overlapped:
                    self._keep(key, load.rows.get(key), load.began)
        except BaseException as error:  # a cancelled load is its callers' CancelledError
            load.error = error
        for end in load.ends:
            end()
        self._count()


def _settle(future: asyncio.Future[Result], result: Callable[[], Result]) -> None:
    if future.done():
        return  # its caller was cancelled
    try:
        future.set_result(result())
    except asyncio.CancelledError:
        future.cancel()
    except BaseException as error:  # whatever the load ended with
        future.set_exception(error)
