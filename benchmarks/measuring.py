"""Measuring a promise: the raw floor and ours by turns in one process, and the ratio of the medians."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

__all__ = ["Contender", "Measurement", "Scale", "compare"]

Round = Callable[[], float]
"""Does one round of work and returns the seconds that one operation took."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Parameters
    ----------
    rows : int
        Rows of the tables that single operations and scans are measured on.
    many_rows : int
        Rows of the tables of the Spark and the memory benchmarks.
    samples : int
        Single operations in one round.
    rounds : int
        Rounds of floor and ours, after one that is not counted.
    """

    rows: int = 200_000
    many_rows: int = 2_000_000
    samples: int = 20_000
    rounds: int = 7


QUICK = Scale(rows=2_000, many_rows=10_000, samples=200, rounds=2)
"""Proves that the benchmarks run; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What is compared with a floor.

    Parameters
    ----------
    name : str
        What is done.
    work : callable
        One round.
    goal : float or None
        The highest ratio to the floor that was promised; None is for information.
    """

    name: str
    work: Round
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came out.

    Parameters
    ----------
    area, name : str
        The benchmark, and what was done.
    floor, ours : float
        Medians, in `unit`; the floor is NaN where ours is held against the goal itself.
    ratio : float
        Ours to the floor, or ours itself where there is none.
    goal : float or None
        The highest ratio promised.
    spread : float
        How far the rounds' ratios lie apart: the largest minus the smallest, over the median of them.
    against : str
        What the floor is.
    unit : str
        Of floor and ours.
    """

    area: str
    name: str
    floor: float
    ours: float
    ratio: float
    goal: float | None
    spread: float
    against: str
    unit: str = "us"

    @property
    def verdict(self) -> str:
        """Whether the goal was met, or by how much it was missed."""
        if self.goal is None:
            return ""
        return "met" if self.ratio <= self.goal else f"missed by {self.ratio / self.goal - 1:.0%}"


def compare(
    area: str, against: str, floor: Round, contenders: list[Contender], rounds: int, *, warm_up: bool = True
) -> list[Measurement]:
    """Run floor and contenders by turns and return one measurement for each contender, in microseconds.

    Parameters
    ----------
    area : str
        The benchmark.
    against : str
        What the floor is.
    floor : callable
        One round of the floor; it opens every turn.
    contenders : list of Contender
        What is compared with it.
    rounds : int
        How many turns count.
    warm_up : bool
        Whether a turn that does not count comes first.
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
    middle = median(floors)
    measurements = []
    for contender in contenders:
        ours = times[contender.name]
        ratios = [mine / base for mine, base in zip(ours, floors, strict=True)]
        spread = (max(ratios) - min(ratios)) / median(ratios)
        measurements.append(
            Measurement(
                area,
                contender.name,
                middle,
                median(ours),
                median(ours) / middle,
                contender.goal,
                spread,
                against,
            )
        )
    return measurements
