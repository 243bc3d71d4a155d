"""How planning workers and executors talk to the keeper in the driver's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from typing import cast

from structable.spi import (
    Filter,
    ScanSplit,
    StagedWrite,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
)

from .channel import Address, open_channel
from .options import ReadOptions, StoreAddress, WriteOptions

__all__ = ["HELD", "KeeperClient", "PlannedScan"]

HELD = b"held"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A plan that the keeper holds.

    Parameters
    ----------
    plan_id : str
        The keeper's name for it.
    splits : tuple of ScanSplit
        What executors read.
    """

    plan_id: str
    splits: tuple[ScanSplit, ...]


@dataclass(frozen=True, slots=True)
class KeeperClient:
    """Asks the keeper; picklable, and good in any process of the application.

    Parameters
    ----------
    planners : (str, int)
        Where the keeper listens for processes of the driver's machine.
    readers : (str, int)
        Where it listens for executors.
    secret : bytes
        The application's secret.
    """

    planners: Address
    readers: Address
    secret: bytes = field(repr=False)

    def describe(self, store: StoreAddress, table: str) -> TableSpecification:
        """Return a table's specification.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """
        return cast(TableSpecification, self._ask("describe", store, table))

    def plan(self, options: ReadOptions, columns: Sequence[str], where: Filter | None) -> PlannedScan:
        """Take a snapshot, which the keeper holds until nobody has read it for `options.lease` seconds.

        Raises
        ------
        StructableError
            As `Storage.plan_scan` does.
        """
        return cast(PlannedScan, self._ask("plan", options, tuple(columns), where))

    def begin_write(self, options: WriteOptions, job_id: str) -> WriteJob:
        """Begin a write job, as `Storage.begin_write` does."""
        return cast(WriteJob, self._ask("begin_write", options, job_id))

    def commit_write(self, store: StoreAddress, job: WriteJob, staged: Sequence[StagedWrite]) -> None:
        """Commit a write job, again where that may help."""
        self._ask("commit_write", store, job, list(staged))

    def abort_write(self, store: StoreAddress, job: WriteJob) -> None:
        """Abort a write job, as `Storage.abort_write` does."""
        self._ask("abort_write", store, job)

    def leave_write(self, store: StoreAddress) -> None:
        """Tell that a write job is over here, neither committed nor aborted."""
        self._ask("leave_write", store)

    @contextmanager
    def holding(self, plan_id: str, table: str, lease: float) -> Iterator[None]:
        """Keep a plan's snapshot for the time of a `with` block, however long it takes.

        Raises
        ------
        TransactionClosedError
            If the keeper has given the plan up.
        """
        try:
            channel = open_channel(self.readers, self.secret)
        except (OSError, EOFError, AuthenticationError) as error:
            # Without the keeper the snapshot lasts as long as its lease at least, and the store knows when it is gone.
            _log.warning(
                "table %r: the lease of a snapshot cannot be renewed at %s:%s: %r", table, *self.readers, error
            )
            yield
            return
        with channel:
            channel.send_bytes(plan_id.encode())
            try:
                held = channel.recv_bytes() == HELD
            except (OSError, EOFError):
                held = False
            if not held:
                raise TransactionClosedError(
                    f"table {table!r}: the snapshot that this query was planned on is no longer kept; one that nobody "
                    f"reads for {lease:g} seconds (option leaseSeconds) is given up, and the oldest if many are kept. "
                    "Run the query anew, from load() or another transformation, to plan it on a new snapshot"
                )
            yield

    def _ask(self, operation: str, *arguments: object) -> object:
        try:
            with open_channel(self.planners, self.secret) as channel:
                channel.send((operation, arguments))
                done, answer = cast(tuple[bool, object], channel.recv())
        except (OSError, EOFError, AuthenticationError) as error:
            raise StorageUnavailableError(
                f"the driver's keeper of snapshots does not answer ({error!r}); it ends with the application, "
                "and register(spark) starts it anew"
            ) from None
        if done:
            return answer
        raise cast(Exception, answer)
