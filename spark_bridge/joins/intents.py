"""`Intents`: the record of a join, changed by one worker at a time.

Before a large step commits its job, it records the job as the join's intent, but only if the record has not changed
since the step began. While the intent stands, no other worker steps. Once its lease has expired, any worker aborts the
job, which is final unless the job was committed, looks up the outcome, and clears the intent. So clocks decide when
this happens, but never the result. After some days the store has forgotten the job: then everything is joined.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from structable.spi import (
    InvalidSpecificationError,
    Isolation,
    Storage,
    StructableError,
    TableNotFoundError,
    Transaction,
    WriteMode,
)

from .progress import LEASE_SECONDS, PROGRESS, Intent, ProgressRecord, intent_channel, read_record, write_record
from .recording import Definition, rivals

_log = logging.getLogger("structable.joins")


class Intents:
    """The record of one join.

    Parameters
    ----------
    storage : Storage
        The result's store, where the table of records exists.
    result : str
        The result's name.
    """

    def __init__(self, storage: Storage, result: str) -> None:
        self._storage = storage
        self._result = result

    def replace(self, expected: ProgressRecord | None, record: ProgressRecord) -> bool:
        """Write a record in place of another one; return false, and write nothing, if that is not the current one.

        Raises
        ------
        InvalidSpecificationError
            If the join is new, and another join has the same result.
        """
        name = record.consumer

        def body(tx: Transaction) -> bool:
            table = tx.table(PROGRESS.name)
            if read_record(table, name) != expected:
                return False
            if expected is None:
                faults = rivals(table, name, self._result, Definition.parse(record.definition).feed)
                if faults:
                    raise InvalidSpecificationError(f"join {name!r}: {'; '.join(faults)}")
            write_record(table, record)
            return True

        # Each of two new joins with one result would read that there is no other.
        return self._storage.run(body, isolation=Isolation.SERIALIZABLE if expected is None else Isolation.SNAPSHOT)

    def take_over(self, record: ProgressRecord) -> None:
        """End the intent of a stopped worker: abort its job unless it is committed, and clear the intent."""
        intent = record.intent
        assert intent is not None
        committed: bool | None = self.outcome(intent)
        if not committed and intent.forgotten:
            committed = None
        _log.warning(
            "join %r: took over the step of another worker, whose lease ran out; its job %s was %s",
            record.consumer,
            intent.job_id,
            {True: "committed", False: "aborted", None: "forgotten, and everything is joined"}[committed],
        )
        self.end(record.consumer, intent.job_id, committed=committed)

    def outcome(self, intent: Intent) -> bool:
        """Abort the job of an intent unless it is committed, and return whether it is."""
        try:
            job = self._storage.begin_write(self._result, mode=WriteMode.CHANGES, job_id=intent.job_id)
            if not job.committed:
                self._storage.abort_write(job)
                # It may have been committed just before.
                job = self._storage.begin_write(self._result, mode=WriteMode.CHANGES, job_id=intent.job_id)
        except TableNotFoundError:
            return False
        return job.committed

    def end(self, consumer: str, job_id: str, *, committed: bool | None) -> None:
        """Clear the intent of a job if it still stands; if the job was committed, record its positions.

        None: the outcome is unknown, and so are the positions of the result.
        """

        def body(tx: Transaction) -> None:
            table = tx.table(PROGRESS.name)
            current = read_record(table, consumer)
            if current is None or current.intent is None or current.intent.job_id != job_id:
                return
            intent = current.intent
            if committed:
                after = current.at(intent.positions, intent.definition)
            else:
                after = replace(current, intent=None, positions=None if committed is None else current.positions)
            write_record(table, after)
            tx.signal(intent_channel(consumer))

        self._storage.run(body)

    @contextmanager
    def renewing(self, record: ProgressRecord) -> Iterator[None]:
        """Renew the lease of the record's intent while the block runs."""
        ended = threading.Event()

        def renew() -> None:
            current = record
            while not ended.wait(LEASE_SECONDS / 3):
                assert current.intent is not None
                later = replace(current, intent=current.intent.renewed())
                try:
                    if not self.replace(current, later):
                        return  # another worker has taken over
                    current = later
                except StructableError as error:
                    _log.warning("join %r: its lease could not be renewed: %s", record.consumer, error)

        thread = threading.Thread(target=renew, name=f"structable-join-lease-{record.consumer}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
