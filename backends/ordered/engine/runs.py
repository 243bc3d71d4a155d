"""`RunStore`: the staged rows of write jobs, stored outside the map until the job is committed or aborted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from structable.spi import StorageUnavailableError

from .ordered_map import Pair


class RunLostError(StorageUnavailableError):
    """The run does not exist: its job has ended, or its files were lost."""


@dataclass(frozen=True, slots=True)
class StagedRun:
    """A run that was found."""

    owner: str
    state: bytes  # the argument of `RunStore.read_run`, if it is whole
    time: float  # when it was written or begun, in seconds since the epoch
    whole: bool  # otherwise a living process may still be writing it


class RunStore(ABC):
    """Sorted runs of pairs, grouped by job; any process writes, reads and drops them."""

    @abstractmethod
    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        """Store pairs durably, and return the state that `read_run` needs to find them.

        Runs of the same owner may be dropped at the same time. This call must not fail then, nor lose its run.

        Parameters
        ----------
        owner : str
            The result of `runs_owner`: 32 hexadecimal digits, unique to the job for all time.
        pairs : iterator of Pair
            In the order in which `read_run` yields them; nearly always the key order.
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
    def find_runs(self, owner: str = "") -> list[StagedRun]:
        """Return the runs of a job, or of all jobs, including runs that are not whole."""

    @abstractmethod
    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        """Remove runs that `find_runs` returned, and nothing else; idempotent.

        Leaves a run that a living process may still be writing.
        """
