"""The metrics of steps, in the driver: `structable.step.duration` and `structable.step.rows`."""

from __future__ import annotations

from structable.spi.metering import duration_histogram, recording_meter

__all__ = ["record"]


def record(pipeline: str, stage: str, step: str, seconds: float, rows: int | None) -> None:
    """Record a write of a micro-batch; rows that its job did not count are None."""
    meter = recording_meter()
    if meter is None:
        return
    attributes = {"pipeline": pipeline, "stage": stage, "step": step}
    duration_histogram(meter, "structable.step.duration", "Time of a step's write of a micro-batch").record(
        seconds, attributes
    )
    if rows is not None:
        description = "Rows that a step wrote; none if the micro-batch had been written before"
        meter.create_counter("structable.step.rows", unit="{row}", description=description).add(rows, attributes)
