"""`Calls`: the calls of a source with retries, rate limits and metrics around them, and updates with their defaults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from structable.spi import RecordNotFoundError

from .functions import all_of
from .limiting import Limiter
from .metrics import CallOutcome, Instruments
from .retrying import Retrier, caused_by
from .sources import Kind, Source, Update

Result = TypeVar("Result")
Pairs = Sequence[tuple[Hashable, object]]

_log = logging.getLogger("structable.access")


class Calls:
    """The layers below key order and batching.

    Parameters
    ----------
    source : Source
        The source that is called.
    instruments : Instruments
        The instruments that measure every attempt.
    limiter : Limiter, optional
        The rate limits; each attempt takes its credits from them.
    reading, writing : Retrier, optional
        Repeat failed reads, and failed writes.
    """

    def __init__(
        self,
        source: Source,
        instruments: Instruments,
        limiter: Limiter | None,
        reading: Retrier | None,
        writing: Retrier | None,
    ) -> None:
        self.source = source
        self.instruments = instruments
        self._limiter = limiter
        self._reading = reading
        self._writing = writing

    def reader(self) -> Callable[[Hashable], Awaitable[object]]:
        """Return the function that reads the value of a key, or None: the source's own, if no layer is before it."""
        is_bare = self._limiter is None and self._reading is None and not self.instruments.enabled
        return self.source.get if is_bare else self.get

    def get(self, key: Hashable) -> Awaitable[object]:
        """Return a value, or None."""
        return self._call("get", ((key, None),), lambda: self.source.get(key))

    def get_many(self, keys: list[Hashable]) -> Awaitable[Mapping[Hashable, object]]:
        """Return the values of the keys that have one; by the single function if there is one key."""
        if len(keys) == 1:
            return self._get_one(keys[0])
        return self._call("get", [(key, None) for key in keys], lambda: self.source.get_many(keys))

    async def _get_one(self, key: Hashable) -> Mapping[Hashable, object]:
        value = await self.get(key)
        return {} if value is None else {key: value}

    def write(self, kind: Kind, pairs: Pairs) -> Awaitable[object]:
        """Put, upsert or delete: by the single function for one key, else all or none if there is a bulk call."""
        source = self.source
        if len(pairs) > 1 and not source.has_bulk(kind):
            return all_of([self.write(kind, (pair,)) for pair in pairs])
        return self._call(kind, pairs, lambda: source.write(kind, pairs))

    def alone(self, key: Hashable, attempt: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        """Make a write of a kind that functions lack; it counts as an update."""
        return self._call("update", ((key, None),), attempt)

    async def update(self, pairs: Sequence[tuple[Hashable, Update]]) -> dict[Hashable, Exception]:
        """Update, putting defaults where there is no value; by the single function if there is one key.

        Returns
        -------
        dict
            The errors of the keys whose update failed alone: RecordNotFoundError, or one raised from it, for a key
            without a value and a default. An error of the whole call is raised.
        """
        if len(pairs) == 1:
            return await self._update_one(*pairs[0])
        source = self.source
        if not source.has_bulk("update"):
            return await self._each(self._update_one, pairs)
        try:
            missing = await self._call(
                "update", [(key, update.changes) for key, update in pairs], lambda: source.update_many(list(pairs))
            )
        except Exception as error:
            if source.puts_defaults or not caused_by(error, RecordNotFoundError):
                raise
            return await self._each(self._update_one, pairs)
        keys = set(missing)
        if source.puts_defaults:
            return {key: self._not_found(key) for key, _ in pairs if key in keys}
        failures = {key: self._not_found(key) for key, update in pairs if key in keys and update.default is None}
        late = [(key, update) for key, update in pairs if key in keys and update.default is not None]
        return {**failures, **await self._each(self._update_from_default, late)}

    async def _each(
        self,
        one: Callable[[Hashable, Update], Awaitable[dict[Hashable, Exception]]],
        pairs: Iterable[tuple[Hashable, Update]],
    ) -> dict[Hashable, Exception]:
        async def caught(key: Hashable, update: Update) -> dict[Hashable, Exception]:
            try:
                return await one(key, update)
            except Exception as error:
                return {key: error}

        failures: dict[Hashable, Exception] = {}
        for found in await asyncio.gather(*[caught(key, update) for key, update in pairs]):
            failures |= found
        return failures

    async def _update_one(self, key: Hashable, update: Update) -> dict[Hashable, Exception]:
        source = self.source
        try:
            await self._call("update", ((key, update.changes),), lambda: source.update(key, update))
        except Exception as error:
            if not caused_by(error, RecordNotFoundError):
                raise
            if source.puts_defaults or update.default is None:
                return {key: error}
        else:
            return {}
        return await self._update_from_default(key, update)

    async def _update_from_default(self, key: Hashable, update: Update) -> dict[Hashable, Exception]:
        """Put the default of a key that has no value, and update it once more."""
        source, name = self.source, self.source.name
        try:
            await self._call("put", ((key, update.default),), lambda: source.put_default(key, update.default))
        except Exception:
            # The second update shows whether it matters: another process may have put a value.
            self.instruments.default("lost")
            _log.warning("table %r: the default of key %r could not be put", name, key, exc_info=True)
        else:
            self.instruments.default("put")
        try:
            await self._call("update", ((key, update.changes),), lambda: source.update(key, update))
        except Exception as error:
            error.add_note(f"table {name!r}, key {key!r}: the update was made again after its default had been put")
            raise
        return {}

    def _not_found(self, key: Hashable) -> Exception:
        return RecordNotFoundError(self.source.name, key if isinstance(key, tuple) else (key,))

    def _call(self, kind: Kind, pairs: Pairs, attempt: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        retrier = self._reading if kind == "get" else self._writing
        measured = self.instruments.enabled
        if self._limiter is None and not measured:
            return attempt() if retrier is None else retrier.run(kind, attempt)

        async def limited() -> Result:
            if self._limiter is not None:
                await self._limiter.take(kind, pairs)
            return await (self._measured(kind, attempt) if measured else attempt())

        return limited() if retrier is None else retrier.run(kind, limited)

    async def _measured(self, kind: Kind, attempt: Callable[[], Awaitable[Result]]) -> Result:
        clock = asyncio.get_running_loop().time
        started = clock()
        outcome: CallOutcome = "error"
        try:
            result = await attempt()
            outcome = "ok"
            return result
        except Exception as error:
            if caused_by(error, RecordNotFoundError):
                outcome = "not_found"
            raise
        finally:
            self.instruments.called(kind, clock() - started, outcome)
