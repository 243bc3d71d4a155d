"""The durations of the runs of workflows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Iterable

from structable.datasets.identifiers import ProgramRef, check_names, check_run_id
from structable.datasets.tables.runs import WORKFLOW_STATISTICS, WorkflowRun
from structable.spi import Range

from .context import Dataset


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Times of the runs of a workflow.

    Parameters
    ----------
    runs : int
        Their number.
    mean : float
        Their mean time, in seconds; 0.0 without runs.
    percentiles : dict of float to int
        The time in seconds that this percentage of the runs did not exceed, by nearest rank; empty without runs.
    """

    runs: int
    mean: float
    percentiles: dict[float, int]


class WorkflowStatistics(Dataset):
    """The dataset `workflow_statistics`: a row for each completed run of a version of a workflow."""

    def record(
        self,
        namespace: str,
        application: str,
        version: str,
        program: str,
        started: dt.datetime,
        run: str,
        *,
        seconds: int,
        programs: object = None,
    ) -> None:
        """Record the time of a run; a second call replaces it.

        Raises
        ------
        ValueError
            If the seconds are negative, the time naive, or a name invalid.
        """
        if seconds < 0:
            raise ValueError(f"a run took {seconds!r} seconds; it must be at least 0")
        check_names(namespace=namespace, application=application, version=version, program=program)
        self._context.records(WORKFLOW_STATISTICS).put(
            WorkflowRun(
                namespace=namespace,
                application=application,
                version=version,
                program=program,
                started=self._context.now(started),
                run=check_run_id(run),
                seconds=seconds,
                programs=programs,
            )
        )

    def between(
        self, ref: ProgramRef, begin: dt.datetime, end: dt.datetime, *, version: str | None = None
    ) -> list[WorkflowRun]:
        """Return the runs that started in `begin <= time < end`, of all versions or of one, oldest first."""
        begin, end = self._context.now(begin), self._context.now(end)
        records = self._context.records(WORKFLOW_STATISTICS)
        found: list[WorkflowRun] = []
        for one in self._versions(ref) if version is None else [version]:
            prefix = (ref.namespace, ref.application, one, ref.program)
            with records.scan(Range((*prefix, begin), (*prefix, end))) as rows:
                found += rows
        return sorted(found, key=lambda row: (row.started, row.run))

    def summary(
        self,
        ref: ProgramRef,
        begin: dt.datetime,
        end: dt.datetime,
        percentiles: Iterable[float] = (50, 90, 99),
        *,
        version: str | None = None,
    ) -> Statistics:
        """Return number, mean and percentiles of the runs that started in `begin <= time < end`.

        Raises
        ------
        ValueError
            If a percentile is not above 0 and at most 100.
        """
        wanted = list(percentiles)
        for one in wanted:
            if not 0 < one <= 100:
                raise ValueError(f"percentile {one!r}: it must be above 0 and at most 100")
        times = sorted(row.seconds for row in self.between(ref, begin, end, version=version))
        if not times:
            return Statistics(0, 0.0, {})
        ranks = {one: times[math.ceil(one * len(times) / 100) - 1] for one in wanted}
        return Statistics(len(times), sum(times) / len(times), ranks)

    def neighbours(self, ref: ProgramRef, run: str, count: int, *, version: str | None = None) -> list[WorkflowRun]:
        """Return the run, with at most `count` runs that started before it and as many after it, oldest first.

        Empty if the run was not recorded.
        """
        if count < 0:
            raise ValueError(f"count is {count!r}; it must be at least 0")
        check_run_id(run)
        records = self._context.records(WORKFLOW_STATISTICS)
        rows: list[WorkflowRun] = []
        for one in self._versions(ref) if version is None else [version]:
            with records.scan(Range.prefix((ref.namespace, ref.application, one, ref.program))) as found:
                rows += found
        rows.sort(key=lambda row: (row.started, row.run))
        place = next((number for number, row in enumerate(rows) if row.run == run), None)
        return [] if place is None else rows[max(0, place - count) : place + count + 1]

    def _versions(self, ref: ProgramRef) -> list[str]:
        """Return the versions with recorded runs, each found by a seek."""
        records = self._context.records(WORKFLOW_STATISTICS)
        prefix = (ref.namespace, ref.application)
        found: list[str] = []
        within = Range.prefix(prefix)
        while True:
            with records.scan(within, limit=1) as rows:
                row = next(iter(rows), None)
            if row is None:
                return found
            found.append(row.version)
            within = Range((*prefix, row.version), prefix, begin_inclusive=False, end_inclusive=True)
