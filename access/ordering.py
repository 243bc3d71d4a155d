"""`KeyTurns`: calls with a key in common run one after the other, in the order in which they were made."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable


class Turn(ABC):
    """The place of one call, or of a batch of them, among the calls of its keys."""

    __slots__ = ("_earlier", "_ends", "_later", "keys")

    def __init__(self, keys: Collection[Hashable]) -> None:
        self.keys = keys
        self._earlier = 0
        """The number of turns, once for each common key, that must end before this one begins."""
        self._later: list[Turn] | None = None
        self._ends: list[asyncio.Future[None]] | None = None

    @abstractmethod
    def begin(self) -> None:
        """Start the work, at whose end `KeyOrder.leave` is called; must not raise."""

    @abstractmethod
    def abandon(self) -> None:
        """Cancel the callers, as the work will not begin."""


class KeyTurns:
    """The turns that have not ended. A turn begins once every earlier one with a key in common has ended.

    As each takes its place for all its keys at once, none waits in a circle.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, Turn] = {}

    def last(self, key: Hashable) -> Turn | None:
        """Return the newest turn of a key that has not ended."""
        return self._last.get(key)

    def enter(self, turn: Turn) -> None:
        """Give a turn its place, and begin it if nothing precedes it."""
        last = self._last
        for key in turn.keys:
            earlier = last.get(key)
            if earlier is not None:
                if earlier._later is None:
                    earlier._later = []
                earlier._later.append(turn)
                turn._earlier += 1
            last[key] = turn
        if not turn._earlier:
            turn.begin()

    def leave(self, turn: Turn, *, is_cancelled: bool = False) -> None:
        """End a turn, and begin the turns that waited for it alone.

        If it was cancelled, the event loop is being shut down: later turns are abandoned, as a task that begins now
        would never end.
        """
        ended = [turn]
        while ended:  # no recursion: thousands may wait one behind the other
            turn = ended.pop()
            self._remove(turn)
            for later in turn._later or ():
                later._earlier -= 1
                if later._earlier:
                    continue
                if is_cancelled:
                    later.abandon()
                    ended.append(later)
                else:
                    later.begin()

    def _remove(self, turn: Turn) -> None:
        last = self._last
        for key in turn.keys:
            if last.get(key) is turn:
                del last[key]
        for end in turn._ends or ():
            if not end.done():
                end.set_result(None)

    def ends(self) -> list[asyncio.Future[None]]:
        """Return futures that are all done once every turn that has been given a place has ended."""
        loop = asyncio.get_running_loop()
        ends = []
        for turn in set(self._last.values()):
            end: asyncio.Future[None] = loop.create_future()
            turn._ends = [*(turn._ends or ()), end]
            ends.append(end)
        return ends
