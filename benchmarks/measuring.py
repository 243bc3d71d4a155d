"""Measures a promise: the raw floor and structable take turns in one process; the figure is the ratio of medians."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

Round = Callable[[], float]
"""Does one round of work and returns the seconds per operation."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of work measured."""

    rows: int = 200_000  # of the tables for single operations and scans
    many_rows: int = 2_000_000  # of the tables of the Spark and the memory benchmarks
    samples: int = 20_000  # single operations in one round
    rounds: int = 7  # that count, after one that does not
    records: int = 100_000  # rows of the tables of whole programs
    seconds: float = 0.4  # the time of a round of such a program


QUICK = Scale(rows=2_000, many_rows=10_000, samples=200, rounds=2, records=1_000, seconds=0.05)
"""Proves that the benchmarks run; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Work compared with a floor; `goal` is the highest promised ratio to it, None without a promise."""

    name: str
    work: Round
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of a measurement."""

    area: str
    name: str
    floor: float  # a median in `unit`; NaN if the figure is compared with the goal itself
    ours: float
    ratio: float  # ours divided by the floor, or ours itself without a floor
    goal: float | None  # the highest promised ratio
    spread: float  # of the rounds' ratios: the largest minus the smallest, divided by their median
    against: str  # describes the floor
    unit: str = "us"
    note: str = ""  # other observations

    @property
    def verdict(self) -> str:
        """Whether the goal was met, or by how much it was missed."""
        if self.goal is None:
            return ""
        return "met" if self.ratio <= self.goal else f"missed by {self.ratio / self.goal - 1:.0%}"


def compare(
    area: str, against: str, floor: Round, contenders: list[Contender], rounds: int, *, warm_up: bool = True
) -> list[Measurement]:
    """Run floor and contenders alternately and return one measurement for each contender, in microseconds.

    The floor opens every turn. A warm-up is one more turn, before the `rounds` that count.
    """
    works: Mapping[str, Round] = {contender.name: contender.work for contender in contenders}
    floors: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(-warm_up, rounds):
        base = floor() * 1e6
        found = {name: work() * 1e6 for name, work in works.items()}
        if turn >= 0:
            floors.append(base)
            for name, seconds in found.items():
                times[name].append(seconds)
    return [measured(area, one.name, against, floors, times[one.name], one.goal) for one in contenders]


def measured(
    area: str,
    name: str,
    against: str,
    floors: list[float] | None,
    ours: list[float],
    goal: float | None,
    note: str = "",
) -> Measurement:
    """Return the measurement of alternating rounds, in microseconds; without a floor there is no ratio."""
    ratios = ours if floors is None else [mine / base for mine, base in zip(ours, floors, strict=True)]
    spread = (max(ratios) - min(ratios)) / median(ratios)
    middle = math.nan if floors is None else median(floors)
    ratio = median(ours) if floors is None else median(ours) / middle
    return Measurement(area, name, middle, median(ours), ratio, goal, spread, against, note=note)
