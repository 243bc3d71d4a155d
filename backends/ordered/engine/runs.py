"""`RunStore`: the staged rows of write jobs, stored outside the map until the job is committed or aborted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from structable.spi import StorageUnavailableError

from .ordered_map import Pair

__all__ = ["RunLostError", "RunStore"]


class RunLostError(StorageUnavailableError):
    """The run does not exist: its job has ended, or its files were lost."""


class RunStore(ABC):
    """Sorted runs of pairs, grouped by job; any process writes, reads and drops them."""

    @abstractmethod
    def write_run(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        """Store pairs durably, and return the state that `read_run` needs to find them.

        Parameters
        ----------
        job_id : str
            A name unique to the job for all time: its id, and a part that distinguishes it from jobs of the same id.
        pairs : iterator of Pair
            In the order in which `read_run` yields them; nearly always that of the keys.
        """

    @abstractmethod
    def read_run(self, state: bytes) -> Iterator[Pair]:
        """Yield the pairs of a run, in the order written; a generator, to be closed early.

        Raises
        ------
        RunLostError
            If the run does not exist.
        DataCorruptionError
            If the run is damaged.
        """

    def check_run(self, state: bytes) -> None:
        """Raise as `read_run` would; an engine that can check without reading the run overrides this."""
        return None

    @abstractmethod
    def drop_runs(self, job_id: str) -> None:
        """Remove all runs of a job; idempotent."""

    @abstractmethod
    def jobs_with_runs(self) -> dict[str, float]:
        """Return the names of jobs that have runs, with the time of the youngest run in seconds since the epoch."""
