"""`Numbered`: under which names the writes of a micro-batch, or of a batch run, are found again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from structable.spark_bridge.pipelines.planned import Step
from structable.spi import WriteJob, WriteMode
from structable.spi.rules.jobs import requested_job

__all__ = ["Numbered"]


@dataclass(frozen=True, slots=True)
class Numbered:
    """What makes the writes of a micro-batch, or of a batch run, the same ones when they are repeated.

    Parameters
    ----------
    pipeline : str
        The pipeline.
    number : int
        The micro-batch; 0 of a batch run.
    query : str or None
        The query's id; None of a batch run.
    run : str
        The run of the query; of a batch run its id.
    again : bool
        Whether the caller may submit it again: a batch run with an id of its own.
    """

    pipeline: str
    number: int
    query: str | None
    run: str
    again: bool = False

    def job(self, step: Step, table: str, mode: WriteMode, on_missing: Literal["fail", "skip"]) -> WriteJob:
        """Return the job of a step, as it is requested."""
        if self.query is None:
            return requested_job(table, mode, step.job(self.pipeline, self.run), on_missing=on_missing)
        stream = step.job(self.pipeline, self.query)
        return requested_job(table, mode, stream=stream, batch=self.number, on_missing=on_missing)
