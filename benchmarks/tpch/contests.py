"""A contest: each query alternately on a floor and on structable, and the geometric mean of the queries' ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from time import perf_counter

from pyspark.sql import SparkSession

from benchmarks.measuring import Measurement, measured
from tests.spark.tpch.queries import query

AREA = "tpch"


def timed(session: SparkSession, text: str) -> tuple[float, int]:
    """Return the microseconds that a query takes, planning included, and how many rows it has."""
    begin = perf_counter()
    rows = session.sql(text).collect()
    return (perf_counter() - begin) * 1e6, len(rows)


@dataclass(frozen=True, slots=True)
class Contest:
    """Queries, on rows of one scale, and how many turns of each count; one more before them does not."""

    numbers: Sequence[int]
    scale: float
    rounds: int

    def held(
        self,
        store: str,
        against: str,
        floor: SparkSession,
        ours: SparkSession,
        *,
        goal: float | None = None,
        mean_goal: float | None = None,
    ) -> Iterator[Measurement]:
        """Measure each query with a goal of its own, and at last the geometric mean of all."""
        turns: list[tuple[list[float], list[float]]] = []
        found: list[Measurement] = []
        for number in self.numbers:
            floors, times = self._turns(query(number, self.scale), floor, ours)
            turns.append((floors, times))
            found.append(measured(AREA, f"query {number}, {store}", against, floors, times, goal))
            yield found[-1]
        ratio = geometric_mean(one.ratio for one in found)
        of_turns = [
            geometric_mean(times[turn] / floors[turn] for floors, times in turns) for turn in range(self.rounds)
        ]
        yield Measurement(
            AREA,
            f"geometric mean of the queries, {store}",
            floor=geometric_mean(one.floor for one in found),
            ours=geometric_mean(one.ours for one in found),
            ratio=ratio,
            goal=mean_goal,
            spread=(max(of_turns) - min(of_turns)) / median(of_turns),
            against=against,
        )

    def _turns(self, text: str, floor: SparkSession, ours: SparkSession) -> tuple[list[float], list[float]]:
        floors, times = [], []
        for _ in range(1 + self.rounds):
            base, wanted = timed(floor, text)
            mine, rows = timed(ours, text)
            assert rows == wanted
            floors.append(base)
            times.append(mine)
        return floors[1:], times[1:]
