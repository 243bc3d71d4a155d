"""What the coordinator is asked to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spi import Aggregation, Filter


class Planned(NamedTuple):
    """What a scan gives, its filter, and the execution in which it was planned."""

    columns: tuple[str, ...] | Aggregation
    where: Filter | None
    execution: int | None


@contextmanager
def planned_scans(session: SparkSession, then: Callable[[], object] | None = None) -> Iterator[list[Planned]]:
    """Note each plan of a scan, and act after it."""
    coordinator = coordinator_of(session)
    planned: list[Planned] = []
    plan = coordinator.operations["plan"]

    def planning(*arguments: Any) -> object:  # noqa: ANN401 - passed on
        found = plan(*arguments)
        planned.append(Planned(*arguments[1:4]))
        if then is not None:
            then()
        return found

    coordinator.operations["plan"] = planning
    try:
        yield planned
    finally:
        coordinator.operations["plan"] = plan
