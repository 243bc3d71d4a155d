"""The turns of calls that bypass batches: `AwaitedTurn`, and reads, which later gets of their keys join."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Any, TypeAlias

from .callers import Caller
from .copies import another, own_copy
from .ordering import KeyTurns, Turn
from .threads import attend

Rows: TypeAlias = Mapping[Hashable, object]
Reader: TypeAlias = Callable[[Rows, BaseException | None, bool], None]
"""Gets the rows that were found, or the error, and whether another reader gets them, too."""


class _Awaited(Turn):
    """A turn whose work `begin` starts, and `_ended` ends."""

    __slots__ = ("_order", "_working")

    _order: KeyTurns
    _end: Callable[[Any, BaseException | None], None]
    """Gets the result, or None and the error."""

    def abandon(self) -> None:
        self._end(None, asyncio.CancelledError())

    def _ended(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - what the work returned
        try:
            self._end(result, error)
        finally:
            self._order.leave(self, is_cancelled=isinstance(error, asyncio.CancelledError))


class AwaitedTurn(_Awaited):
    """A turn whose work is awaited.

    Parameters
    ----------
    keys : collection
        The keys.
    order : KeyTurns
        The order that the turn takes part in.
    start : callable
        Returns the awaitable work; must not raise.
    end : callable
        Gets the result and the error, before later turns of the keys begin.
    """

    __slots__ = ("_end", "_start")

    def __init__(
        self,
        keys: Collection[Hashable],
        order: KeyTurns,
        start: Callable[[], Awaitable[Any]],
        end: Callable[[Any, BaseException | None], None],
    ) -> None:
        super().__init__(keys)
        self._order = order
        self._start = start
        self._end = end
        self._working: Awaitable[Any] | None = None

    def begin(self) -> None:
        self._working = attend(self._start(), self._ended)


class Joinable(_Awaited):
    """A read of some keys, which gets of these keys join until it has ended."""

    __slots__ = ()

    @abstractmethod
    def join(self, reader: Reader) -> None:
        """Add a reader of several rows, in the order of the calls."""

    @abstractmethod
    def join_row(self, key: Hashable, caller: Caller) -> None:
        """Add a caller of one row."""


class RowReading(Joinable):
    """The read of one row.

    Parameters
    ----------
    key : hashable
        The key.
    order : KeyTurns
        The order that the turn takes part in.
    read : callable
        Returns the awaitable row, or None.
    """

    # Written with care: without options, this turn is most of what a table adds to a call.
    __slots__ = ("_callers", "_read", "_readers")

    def __init__(self, key: Hashable, order: KeyTurns, read: Callable[[Hashable], Awaitable[Any]]) -> None:
        super().__init__((key,))
        self._order = order
        self._read = read
        self._callers: list[Caller] = []
        self._readers: list[Reader] = []

    def join(self, reader: Reader) -> None:
        self._readers.append(reader)

    def join_row(self, key: Hashable, caller: Caller) -> None:
        self._callers.append(caller)

    def begin(self) -> None:
        (key,) = self.keys
        self._working = attend(self._read(key), self._ended)

    def _end(self, row: object, error: BaseException | None) -> None:
        is_shared = False
        for caller in self._callers:
            _give(caller, row, error, is_shared=is_shared)
            is_shared = True
        for reader in self._readers:
            reader(dict.fromkeys(self.keys, row), error, is_shared)
            is_shared = True


class ReadTurn(Joinable):
    """The read of some rows.

    Parameters
    ----------
    keys : list
        The keys.
    order : KeyTurns
        The order that the turn takes part in.
    read : callable
        Returns the awaitable rows of the keys that have one.
    """

    __slots__ = ("_read", "_readers")

    def __init__(
        self, keys: list[Hashable], order: KeyTurns, read: Callable[[list[Hashable]], Awaitable[Rows]]
    ) -> None:
        super().__init__(keys)
        self._order = order
        self._read = read
        self._readers: list[Reader] = []

    def join(self, reader: Reader) -> None:
        self._readers.append(reader)

    def join_row(self, key: Hashable, caller: Caller) -> None:
        self._readers.append(lambda rows, error, is_shared: _give(caller, rows.get(key), error, is_shared=is_shared))

    def begin(self) -> None:
        self._working = attend(self._read(list(self.keys)), self._ended)

    def _end(self, rows: Rows | None, error: BaseException | None) -> None:
        for number, reader in enumerate(self._readers):
            reader(rows or {}, error, number > 0)


def _give(caller: Caller, row: object, error: BaseException | None, *, is_shared: bool) -> None:
    if error is not None:
        caller.fail(another(error) if is_shared else error)
    else:
        caller.succeed(own_copy(row) if is_shared else row)
