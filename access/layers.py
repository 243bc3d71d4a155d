"""`Layers`: the layers of one table in their order: cache, key order, batching, and below them `Calls`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Any, cast

from structable.spi import RecordNotFoundError

from .batching import Batcher, Batching
from .caching import Cache, CachedRows
from .callers import Caller, Failures, WriteCaller
from .calls import Calls
from .copies import another, own_copy
from .limiting import Limiter, RateLimit
from .metrics import Instruments
from .ordering import KeyTurns
from .retrying import Retrier, Retry, caused_by
from .sources import CheckedWrite, Kind, Source, Update
from .turns import AwaitedTurn, Joinable, ReadTurn, RowReading, Rows

Pairs = list[tuple[Hashable, CheckedWrite]]


class Layers:
    """The calls of one table, by checked keys and payloads; each takes its place when it is called."""

    def __init__(
        self,
        source: Source,
        instruments: Instruments,
        *,
        batching: Batching | None,
        read_retry: Retry | None,
        write_retry: Retry | None,
        rate_limit: RateLimit | None,
        cache: Cache | None,
    ) -> None:
        def retrier(policy: Retry | None, kind: Kind) -> Retrier | None:
            if policy is None:
                return None
            return Retrier(policy, lambda error: source.is_retriable(kind, error), instruments)

        self._source = source
        self._calls = Calls(
            source,
            instruments,
            None if rate_limit is None else Limiter(rate_limit, instruments),
            retrier(read_retry, "get"),
            retrier(write_retry, "put"),
        )
        self._read = self._calls.reader()
        self._order = KeyTurns()
        self._failures = Failures()
        self._batcher = None if batching is None else Batcher(batching, self._calls, self._order)
        self._cache: CachedRows[Hashable, Any] | None = None if cache is None else CachedRows(cache, instruments)

    @property
    def pending(self) -> int:
        """The size of the open batch."""
        return 0 if self._batcher is None else self._batcher.pending

    @property
    def is_compact(self) -> bool:
        """Whether batches are compact."""
        return self._batcher is not None and self._batcher.is_compact

    @property
    def waits_for_more(self) -> bool:
        """Whether the open batch stays open until more operations come."""
        return self._batcher is not None and self._batcher.batching.max_delay is None

    def send(self) -> None:
        """Send the open batch."""
        if self._batcher is not None:
            self._batcher.send()

    async def flush(self, ends: list[asyncio.Future[None]]) -> None:
        """Wait for turns, and raise the first failure of a write that no caller has seen."""
        if ends:
            await asyncio.wait(ends)
        await asyncio.sleep(0)  # callers that await their results look at them first
        failure = self._failures.take()
        if failure is not None:
            raise failure

    def ends(self) -> list[asyncio.Future[None]]:
        """Send the open batch, and return the futures of all turns."""
        self.send()
        return self._order.ends()

    def get(self, key: Hashable) -> asyncio.Future[Any]:
        """Return the future row of a key, or None."""
        if self._cache is not None:
            return self._cache.get(key, lambda: self._get(key))
        return self._get(key)

    def _get(self, key: Hashable) -> asyncio.Future[Any]:
        caller = _caller()
        if self._batcher is not None:
            self._batcher.add("get", key, None, caller)
            return caller.future
        last = self._order.last(key)
        if isinstance(last, Joinable):
            last.join_row(key, caller)
        else:
            reading = RowReading(key, self._order, self._read)
            reading.join_row(key, caller)
            self._order.enter(reading)
        return caller.future

    def get_many(self, keys: list[Hashable]) -> asyncio.Future[dict[Hashable, Any]]:
        """Return the future rows of the keys that have one."""
        cache = self._cache
        if cache is None or not keys:
            return self._get_many(keys)
        if self._source.has_bulk("get"):
            return cache.get_many(keys, self._get_many)
        # A load of several keys would share the failure of one.
        rows = {key: cache.get(key, partial(self._get_row, key)) for key in keys}
        return asyncio.ensure_future(_found(rows))

    def _get_row(self, key: Hashable) -> Awaitable[object]:
        return _row(key, self._get_many([key]))

    def _get_many(self, keys: list[Hashable]) -> asyncio.Future[Any]:
        caller = _caller()
        if self._batcher is not None:
            self._batcher.send_holding(keys)
        shares: dict[Joinable, list[Hashable]] = {}
        alone: list[Hashable] = []
        for key in dict.fromkeys(keys):
            last = self._order.last(key)
            if isinstance(last, Joinable):
                shares.setdefault(last, []).append(key)
            else:
                alone.append(key)
        new: dict[Joinable, list[Hashable]] = {}
        if not self._source.has_bulk("get"):
            new = {RowReading(key, self._order, self._read): [key] for key in alone}
        elif alone:
            new = {ReadTurn(alone, self._order, self._calls.get_many): alone}
        found: dict[Hashable, object] = {}
        left = len(shares) + len(new)

        def reader(wanted: list[Hashable]) -> Callable[[Rows, BaseException | None, bool], None]:
            def read(rows: Rows, error: BaseException | None, is_shared: bool) -> None:
                nonlocal left
                if error is not None:
                    if not caller.is_ended:
                        caller.fail(another(error) if is_shared else error)
                    return
                for key in wanted:
                    row = rows.get(key)
                    if row is not None:
                        found[key] = own_copy(row) if is_shared else row
                left -= 1
                if not left:
                    caller.succeed({key: found[key] for key in keys if key in found})

            return read

        for reading, wanted in [*shares.items(), *new.items()]:
            reading.join(reader(wanted))
        for reading in new:
            self._order.enter(reading)
        if not keys:
            caller.succeed({})
        return caller.future

    def write(self, kind: Kind, key: Hashable, checked: CheckedWrite) -> asyncio.Future[Any]:
        """Make one put, upsert, update or delete: in a batch, unless the source must judge it alone."""
        caller = self._write_caller(kind, [(key, checked)])
        batcher = self._batcher
        if batcher is not None and checked.fits:
            batcher.add(kind, key, checked.payload, caller)
            return caller.future
        if kind == "update":
            update = cast("Update", checked.payload)
            self._work((key,), lambda: self._update_one(key, update), caller, fits=checked.fits)
        else:
            pairs = ((key, checked.payload),)
            self._work((key,), lambda: self._calls.write(kind, pairs), caller, fits=checked.fits)
        return caller.future

    async def _update_one(self, key: Hashable, update: Update) -> None:
        for error in (await self._calls.update(((key, update),))).values():
            raise error

    def call(self, key: Hashable, attempt: Callable[[], Awaitable[object]]) -> asyncio.Future[Any]:
        """Make one write of a key that is in no batch."""
        caller = self._write_caller("update", [(key, CheckedWrite(None, True))])
        self._work((key,), lambda: self._calls.alone(key, attempt), caller, fits=True)
        return caller.future

    def write_many(self, kind: Kind, pairs: Pairs, deleted: Iterable[Hashable] = ()) -> asyncio.Future[Any]:
        """Put, upsert or delete by one bulk call, and then delete by another one."""
        gone = list(deleted)
        caller = self._write_caller(kind, pairs, gone)
        if not pairs and not gone:
            caller.succeed()
            return caller.future

        async def run() -> None:
            if pairs:
                await self._calls.write(kind, [(key, checked.payload) for key, checked in pairs])
            if gone:
                await self._calls.write("delete", [(key, None) for key in gone])

        self._work(
            dict.fromkeys([*(key for key, _ in pairs), *gone]),
            run,
            caller,
            fits=all(checked.fits for _, checked in pairs),
        )
        return caller.future

    def update_many(self, pairs: Pairs) -> asyncio.Future[Any]:
        """Update by one bulk call, or by several if keys are repeated; the result is the list of missing keys."""
        caller = self._write_caller("update", pairs)
        if not pairs:
            caller.succeed([])
            return caller.future
        fits = all(checked.fits for _, checked in pairs)
        self._work(dict.fromkeys(key for key, _ in pairs), lambda: self._updated(pairs), caller, fits=fits)
        return caller.future

    async def _updated(self, pairs: Pairs) -> list[Hashable]:
        puts_defaults = self._source.puts_defaults
        missing: dict[Hashable, int] = {}
        failure: Exception | None = None
        for positions in _rounds([key for key, _ in pairs], repeats=self._source.repeats_keys):
            updates = [(pairs[number][0], cast("Update", pairs[number][1].payload)) for number in positions]
            failures = await self._calls.update(updates)
            for number, (key, update) in zip(positions, updates, strict=True):
                error = failures.pop(key, None)
                if error is None:
                    continue
                is_missing = caused_by(error, RecordNotFoundError)
                if is_missing and (puts_defaults or update.default is None):
                    missing[key] = min(number, missing.get(key, number))
                else:
                    failure = failure or error
        if failure is not None:
            raise failure
        return sorted(missing, key=missing.__getitem__)

    def _work(
        self, keys: Collection[Hashable], start: Callable[[], Awaitable[object]], caller: Caller, *, fits: bool
    ) -> None:
        def end(result: object, error: BaseException | None) -> None:
            if error is not None:
                caller.fail(error)
                return
            if not fits:
                self._source.look()
            caller.succeed(result)

        if self._batcher is not None:
            self._batcher.send_holding(keys)
        self._order.enter(AwaitedTurn(keys, self._order, start, end))

    def _write_caller(self, kind: Kind, pairs: Pairs, deleted: Iterable[Hashable] = ()) -> WriteCaller:
        future = asyncio.get_running_loop().create_future()
        cache = self._cache
        if cache is None:
            return WriteCaller(future, self._failures)
        write = cache.written([*(key for key, _ in pairs), *deleted])

        def ended(succeeded: bool) -> None:
            values = None
            if succeeded and kind == "put":
                values = {key: self._source.as_read(key, one.payload) for key, one in pairs if one.fits}
            cache.acknowledged(write, values)

        return WriteCaller(future, self._failures, ended)


async def _row(key: Hashable, reading: asyncio.Future[Any]) -> object:
    return (await reading).get(key)


async def _found(rows: dict[Hashable, asyncio.Future[Any]]) -> dict[Hashable, Any]:
    found = await asyncio.gather(*rows.values(), return_exceptions=True)
    for row in found:
        if isinstance(row, BaseException):
            raise row
    return {key: row for key, row in zip(rows, found, strict=True) if row is not None}


def _caller() -> Caller:
    return Caller(asyncio.get_running_loop().create_future())


def _rounds(keys: list[Hashable], *, repeats: bool) -> Iterable[list[int]]:
    """Return the positions of keys in rounds, in which each key is at most once unless it may be repeated."""
    if repeats:
        return [list(range(len(keys)))]
    rounds: list[list[int]] = []
    times: dict[Hashable, int] = {}
    for number, key in enumerate(keys):
        time = times[key] = times.get(key, -1) + 1
        if time == len(rounds):
            rounds.append([])
        rounds[time].append(number)
    return rounds
