"""Tables of several sizes side by side, each with programs in processes of their own, which take turns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.measuring import Measurement, Scale, measured
from benchmarks.workloads.clients import Fleet, fleet
from benchmarks.workloads.programs import Opening

from .programs import OPERATIONS

AREA = "growth"
_OURS, _FLOOR = "structable", "floor"
_MEBIBYTE = 1 << 20
_FASTER = 1.1
"""By how much more than its driver structable may slow down as its table grows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table of one size.

    Parameters
    ----------
    ours, floor : Opening
        Open a `GrowthProgram` on it, and on the same rows by hand.
    bytes : int
        The size on disk.
    """

    ours: Opening
    floor: Opening
    bytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """A store whose tables grow.

    Parameters
    ----------
    name : str
        Its name.
    floors : mapping
        What the floor does, for each operation that it has.
    place : callable
        Makes a table of the given number of rows, for as long as the context lasts.
    sizes : sequence of int
        The sizes, ascending.
    goals : mapping
        For operations, the most that they may slow down from the first size to `goals_at`.
    goals_at : int
        One of the sizes.
    """

    name: str
    floors: Mapping[str, str]
    place: Callable[[int], AbstractContextManager[Place]]
    sizes: Sequence[int]
    goals: Mapping[str, float]
    goals_at: int = 0


_Times = dict[tuple[str, int, str], list[list[float]]]
"""The seconds of each step, of each round, by operation, size and program."""


def compete(store: Store, scale: Scale) -> Iterator[Measurement]:
    """Measure a store."""
    with ExitStack() as stack:
        places = {size: stack.enter_context(store.place(size)) for size in store.sizes}
        fleets: dict[tuple[int, str], Fleet] = {}
        for size, place in places.items():
            for name, opening in ((_OURS, place.ours), (_FLOOR, place.floor)):
                client = fleets[size, name] = stack.enter_context(fleet(1))
                stack.enter_context(client.opened(name, opening))
        times = _run(store, scale, fleets)
        memory = {size: fleets[size, _OURS].call(_OURS, "memory") for size in store.sizes}
    for operation in OPERATIONS:
        yield from _compared(store, operation, times)
    for size, place in places.items():
        yield _plain(f"{store.name}: memory of the process, {size:,} rows", memory[size] / 1024, "MiB")
        yield _plain(f"{store.name}: size on disk, {size:,} rows", place.bytes / _MEBIBYTE, "MiB")


def _run(store: Store, scale: Scale, fleets: Mapping[tuple[int, str], Fleet]) -> _Times:
    times: _Times = defaultdict(list)
    for turn in range(-1, scale.rounds):
        for number, (key, operation) in enumerate(OPERATIONS.items()):
            amount = max(scale.samples // operation.share, 5)
            for (size, name), client in fleets.items():
                if name == _OURS or key in store.floors:
                    found = client.call(name, "timed", key, turn * len(OPERATIONS) + number, amount)
                    if turn >= 0:
                        times[key, size, name].append(found)
    return times


def _compared(store: Store, operation: str, times: _Times) -> Iterator[Measurement]:
    label, against = f"{store.name}: {OPERATIONS[operation].name}", store.floors.get(operation, "")

    def middles(size: int, name: str) -> list[float]:
        return [median(one) * 1e6 for one in times[operation, size, name]]

    def growths(name: str) -> list[float]:
        return [large / small for small, large in zip(middles(least, name), middles(most, name), strict=True)]

    for size in store.sizes:
        floors = middles(size, _FLOOR) if against else None
        tails = [_tail(times[operation, size, name]) for name in (_OURS, *([_FLOOR] if against else []))]
        note = "p99 " + ", ".join(f"{tail:,.0f}" for tail in tails)
        yield measured(AREA, f"{label}, {size:,} rows", against, floors, middles(size, _OURS), None, note)
    least, most = store.sizes[0], store.sizes[-1]
    if operation in store.goals:
        large, goal = store.goals_at, store.goals[operation]
        name, floor = f"{label}, {large:,} rows", f"the same, {least:,} rows"
        yield measured(AREA, name, floor, middles(least, _OURS), middles(large, _OURS), goal)
    if against:
        name, floor = f"{label}, times slower with {most:,} rows", f"{against}, likewise"
        yield measured(AREA, name, floor, growths(_FLOOR), growths(_OURS), _FASTER)


def _tail(rounds: list[list[float]]) -> float:
    return quantiles([step for one in rounds for step in one], n=100)[-1] * 1e6


def _plain(name: str, figure: float, unit: str) -> Measurement:
    return Measurement(AREA, name, math.nan, figure, figure, None, 0, "", unit)
