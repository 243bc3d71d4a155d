"""The write jobs of an application, which the coordinator begins and ends."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time

from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    RecordChangedError,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
    WriteJob,
)

from .stores import OpenStores

_log = logging.getLogger("structable.spark")

_COMMIT_SECONDS = 60.0


class OpenWriteJobs:
    """Begins and ends write jobs; safe to share between threads.

    A job that began here keeps its store open until it ends here: executors may be staging through this process's
    server.
    """

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._written: dict[tuple[StoreClient, str, str], tuple[str, int]] = {}

    def begin(self, store: StoreClient, job: WriteJob) -> WriteJob:
        """Begin a job that was requested, see `structable.spi.authors.requested_job`."""
        with self._stores.using(store) as storage:
            begun = begin_requested(storage, job)
        self._stores.retain(store)
        return begun

    def begin_in_run(self, store: StoreClient, job: WriteJob, run: str) -> WriteJob:
        """Begin a batch of a stream in one run of a query.

        Raises
        ------
        ValueError
            If it began before in this run and was not aborted: a second write would be taken for the first one.
        """
        assert job.stream is not None
        assert job.batch is not None
        target, moment = (store, job.table, job.stream), (run, job.batch)
        with self._lock:
            if self._written.get(target) == moment:
                name = job.stream.partition("/")[2]
                raise ValueError(
                    f"name is {name!r}, under which table {job.table!r} was written before in this micro-batch "
                    f"({job.batch}); give each write of one table a name of its own"
                )
            self._written[target] = moment
        try:
            return self.begin(store, job)
        except BaseException:
            self._forget(store, job)
            raise

    def commit(self, store: StoreClient, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        """Commit a job that began here; warn if it had been committed before."""
        with self._stores.using(store) as storage:
            result, tries = commit_with_retries(storage, job, staged)
        self._stores.release(store)
        if not result and tries == 1 and job.stream is None:
            _log.warning(
                "table %r: the job %r (option jobId) had been committed before; nothing was written",
                job.table,
                job.job_id,
            )
        elif not result and job.on_missing == "skip" and not job.committed:
            _log.warning(
                "table %r: the job %r was committed, but by a call whose answer was lost: the number of its keys "
                "without a row at the commit is unknown, and they are not counted",
                job.table,
                job.job_id,
            )
        return result

    def commit_batch(self, store: StoreClient, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        """Commit a batch of a stream that began in tasks."""
        with self._stores.using(store) as storage:
            return commit_with_retries(storage, job, staged)[0]

    def abort(self, store: StoreClient, job: WriteJob) -> None:
        """Abort a job that began here."""
        self._forget(store, job)
        try:
            with self._stores.using(store) as storage:
                _warn_if_committed(storage, job)
                storage.abort_write(job)
        finally:
            self._stores.release(store)

    def abort_batch(self, store: StoreClient, job: WriteJob) -> None:
        """Drop the staged rows of a batch of a stream that began in tasks, unless it is committed."""
        with self._stores.using(store) as storage:
            storage.abort_write(job)

    def leave(self, store: StoreClient, job: WriteJob) -> None:
        """End this application's part in a job that began here, neither committed nor aborted."""
        try:
            with self._stores.using(store) as storage:
                _warn_if_committed(storage, job)
        finally:
            self._stores.release(store)

    def _forget(self, store: StoreClient, job: WriteJob) -> None:
        if job.stream is not None:
            with self._lock:
                self._written.pop((store, job.table, job.stream), None)


def begin_requested(storage: Storage, job: WriteJob) -> WriteJob:
    """Begin a job, or find the one that was begun under its id, or under its stream and batch."""
    return storage.begin_write(
        job.table,
        mode=job.mode,
        job_id=job.job_id if job.stream is None else None,
        stream=job.stream,
        batch=job.batch,
        on_missing=job.on_missing,
    )


def commit_with_retries(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> tuple[CommitResult, int]:
    """Commit a job with retries; return the result and the number of tries."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    pause = 0.01
    for tries in itertools.count(1):
        try:
            return storage.commit_write(job, staged), tries
        except RecordChangedError:
            raise  # which another try would find again
        except (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError):
            # A committed job is never committed twice, so even an unknown outcome is safe to retry.
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(random.uniform(0.0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("itertools.count() has no end")


def _warn_if_committed(storage: Storage, job: WriteJob) -> None:
    """Log a committed job that Spark reports as failed: its process died before it reported the commit."""
    if job.stream is not None:
        return  # Spark repeats the batch, which is found
    try:
        committed = begin_requested(storage, job).committed
    except StructableError:
        return  # probably the cause of the job's end, and reported as such
    if committed and not job.committed:
        _log.warning(
            "table %r: the job %r was committed and its rows are visible, although Spark reports a failure",
            job.table,
            job.job_id,
        )
