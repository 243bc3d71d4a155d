"""How planning processes and executors reach the coordinator in the driver's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from typing import cast

from structable.spi import (
    CommitResult,
    Filter,
    ScanSplit,
    StagedWrite,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
)

from .channel import Address, open_channel, receive, send
from .held_plans import Reader
from .options import ReadOptions, WriteOptions
from .store_client import StoreClient

__all__ = ["HELD", "CoordinatorClient", "PlannedScan"]

HELD = b"held"

_log = logging.getLogger("structable.spark")


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A plan that the coordinator holds under an id."""

    plan_id: str
    splits: tuple[ScanSplit, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorClient:
    """Reaches the coordinator from any process of the application; picklable.

    Processes on the driver's machine plan at one address, executors read at another.
    """

    planners: Address
    readers: Address
    secret: bytes = field(repr=False)

    def describe(self, store: StoreClient, table: str) -> TableSpecification:
        return cast(TableSpecification, self._ask("describe", store, table))

    def plan(
        self, options: ReadOptions, columns: Sequence[str], where: Filter | None, execution: int | None = None
    ) -> PlannedScan:
        """Take a snapshot, which the coordinator holds until it has not been read for `options.lease` seconds.

        Once the execution has ended, and all others whose tasks read the snapshot, it is held for another
        `options.grace` seconds, renewed by reading.
        """
        return cast(PlannedScan, self._ask("plan", options, tuple(columns), where, execution))

    def begin_write(self, options: WriteOptions, job_id: str) -> WriteJob:
        return cast(WriteJob, self._ask("begin_write", options, job_id))

    def commit_write(self, store: StoreClient, job: WriteJob, staged: Sequence[StagedWrite]) -> CommitResult:
        """Commit a write job, with retries. The driver logs a warning if the job had been committed before."""
        return cast(CommitResult, self._ask("commit_write", store, job, list(staged)))

    def abort_write(self, store: StoreClient, job: WriteJob) -> None:
        self._ask("abort_write", store, job)

    def leave_write(self, store: StoreClient, job: WriteJob) -> None:
        """End this application's part in a write job, neither committed nor aborted."""
        self._ask("leave_write", store, job)

    @contextmanager
    def holding(self, plan_id: str, options: ReadOptions, reader: Reader) -> Iterator[None]:
        """Keep a plan's snapshot open for a `with` block, however long it takes.

        Raises `TransactionClosedError` if the coordinator has closed the plan.
        """
        try:
            channel = open_channel(self.readers, self.secret)
        except (OSError, EOFError, AuthenticationError) as error:
            # Without the coordinator the snapshot lasts at least for its lease, and the store rejects later reads.
            _log.warning(
                "table %r: the lease of a snapshot cannot be renewed at %s:%s: %r", options.table, *self.readers, error
            )
            yield
            return
        with channel:
            channel.send_bytes(f"{plan_id} {reader.to_text()}".encode())
            try:
                held = channel.recv_bytes() == HELD
            except (OSError, EOFError):
                held = False
            if not held:
                raise TransactionClosedError(
                    f"table {options.table!r}: the snapshot of this query is closed: its "
                    f"query ended more than {options.grace:g} seconds ago (option graceSeconds), no task read it for "
                    f"{options.lease:g} seconds (option leaseSeconds), or too many others are open. To read the table "
                    'as it is now, plan the query again by any transformation, as in df.select("*").collect(); to '
                    "execute one plan again later, give load() a longer graceSeconds, or persist() the DataFrame"
                )
            yield

    def _ask(self, operation: str, *arguments: object) -> object:
        try:
            with open_channel(self.planners, self.secret) as channel:
                send(channel, (operation, arguments))
                done, answer = cast(tuple[bool, object], receive(channel))
        except (OSError, EOFError, AuthenticationError) as error:
            raise StorageUnavailableError(
                f"the coordinator in the driver does not answer ({error!r}); it ends with the application, "
                "and register(spark) starts a new one"
            ) from None
        if done:
            return answer
        raise cast(Exception, answer)
