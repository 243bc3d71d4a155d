"""`SharedTraffic`: the connections of a process to the owner of a folder, counted by one engine at a time."""

from __future__ import annotations

import threading
from typing import NamedTuple
from weakref import WeakKeyDictionary

from structable.backends.base.traffic import Tallies
from structable.spi import Traffic

NO_TRAFFIC = Traffic(0, 0, 0)


class _Share(NamedTuple):
    engines: tuple[object, ...]
    """The engines that share the connections; the first one counts the traffic."""
    before: Traffic
    """The traffic counted by engines that have left."""


class SharedTraffic:
    """The traffic of the engines of a process on one folder, which share connections.

    The first engine counts all traffic until it leaves, then the next one, so that their sum is right. As with
    `Tallies`, reading takes no lock.
    """

    def __init__(self) -> None:
        self.tallies = Tallies()
        self._lock = threading.Lock()
        self._share = _Share((), NO_TRAFFIC)
        self._left: WeakKeyDictionary[object, Traffic] = WeakKeyDictionary()

    def join(self, engine: object) -> None:
        with self._lock:
            engines, before = self._share
            self._share = _Share((*engines, engine), before)

    def leave(self, engine: object) -> None:
        """End an engine's share. The last engine need not leave: it then also counts the traffic of closing."""
        with self._lock:
            engines, before = self._share
            if engine not in engines:
                return
            rest = tuple(other for other in engines if other is not engine)
            if engines[0] is engine:
                now = self.tallies.traffic()
                self._left[engine] = _difference(now, before)
                self._share = _Share(rest, now)
            else:
                self._left[engine] = NO_TRAFFIC
                self._share = _Share(rest, before)

    def of(self, engine: object) -> Traffic:
        engines, before = self._share
        left = self._left.get(engine)
        if left is not None:
            return left
        return _difference(self.tallies.traffic(), before) if engines[:1] == (engine,) else NO_TRAFFIC


def _difference(now: Traffic, before: Traffic) -> Traffic:
    pairs = zip(_numbers(now), _numbers(before), strict=True)
    return Traffic(*(number - earlier for number, earlier in pairs))


def _numbers(traffic: Traffic) -> tuple[int, int, int]:
    return traffic.round_trips or 0, traffic.sent or 0, traffic.received or 0
