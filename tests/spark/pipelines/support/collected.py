"""A sink that keeps what each micro-batch gives it."""

from __future__ import annotations

from pyspark.sql import DataFrame


class Collected:
    """The rows of each micro-batch, sorted; of one that came again only the last time."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[object, ...]]] = {}
        self.calls = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = sorted(map(tuple, frame.collect()), key=str)
        self.calls += 1

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """All rows, in the order of their micro-batches."""
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]
