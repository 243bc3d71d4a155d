"""`DatabaseHandle`: opens a database, reopens it after a failed write and settles the write's outcome, and closes it.

A database is in one of these conditions. *Sound*: reads and writes go to LevelDB. *Frozen*: a bulk commit is being
applied, and reads go to the snapshot taken before it. *Ailing*: a write has failed; reads work as before, and each
write tries to reopen the database first. *Down*: reopening failed half-way, and each operation tries it again. While a
database is being opened and recovered, every other thread waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.native.database import (
    CLOSED,
    Database,
    DatabaseOptions,
    KeyChanges,
    RawSnapshot,
    WriteFailedError,
    record_compression,
    recorded_compression,
)
from structable.backends.leveldb.native.disk import probe_disk
from structable.backends.leveldb.native.format import prepare
from structable.backends.leveldb.native.logs import log_files, roll_back, sync_logs
from structable.backends.leveldb.native.reads import READERS_LEAVE, ReadSwitch
from structable.backends.leveldb.native.recovery import all_synced, note_unsynced, repair_after_crash
from structable.spi import CommitOutcomeUnknownError, DataCorruptionError, StorageUnavailableError, StructableError

from .committer import CommitQueue

_HEAL_PAUSE = 0.2
_log = logging.getLogger("structable.leveldb")


class DatabaseHandle:
    """A database in any of these conditions.

    `recover` is called with the schema epoch of a database that was opened, before it is served: it completes the bulk
    commits that were decided and not completed.
    """

    def __init__(
        self, path: Path, options: DatabaseOptions, committer: CommitQueue, recover: Callable[[int], None]
    ) -> None:
        self.path = path
        self._options = options
        self._committer = committer
        self._recover = recover
        self.database: Database | None = None
        self.ailing: StructableError | None = None
        """The reason why nothing can be written until the database is reopened."""
        self.noted_unsynced = False
        """Whether a crash may leave gaps among the newest commits; also recorded on disk."""
        self.unsynced = False
        """Whether commits were written without a sync, perhaps to an earlier log."""
        self._heal_after = 0.0
        self._closed = False
        self.frozen = False
        """Whether reads go to an earlier state than the newest."""
        self._recovering = False
        self.reads = ReadSwitch(self._wait_for_database)

    @property
    def syncs(self) -> bool:
        """Whether every commit since the database was opened was synced."""
        return not self.noted_unsynced

    @property
    def busy_with_bulk(self) -> bool:
        """Whether a bulk commit is being applied, which blocks writers."""
        return self.frozen and self.ailing is None

    def _wait_for_database(self) -> Database:
        return uninterrupted(self._database_alone)

    def _database_alone(self) -> Database:
        with self._committer.exclusive():
            return self.sound_database()

    def sound_database(self) -> Database:
        """Return the database; the calling thread holds the right to write."""
        if self._closed:
            raise StorageUnavailableError(CLOSED)
        if self.database is None:
            self.heal()
        assert self.database is not None
        return self.database

    def open(self, *, create: bool, checked: bool = False) -> None:
        """Open the database, complete decided bulk commits, and serve; the calling thread holds the right to write.

        With `checked`, the logs are known to be whole. Raises `DataCorruptionError` if the database is damaged, newer,
        or not structable's.
        """
        database = self._open_repaired(create, checked)
        try:
            epoch = prepare(database)
            self.database = database
            self.frozen = False
            self.ailing = None
            self._recovering = True
            self._recover(epoch)
        except BaseException:
            self.database = None
            database.close(READERS_LEAVE)
            raise
        finally:
            self._recovering = False
        self.thaw()

    def _open_repaired(self, create: bool, checked: bool) -> Database:
        try:
            if not checked and repair_after_crash(self.path, verify=False):
                _log.warning("cut unacknowledged records off the logs in %s after a crash", self.path)
            try:
                database = Database(self.path, self._options, create=create)
            except DataCorruptionError as error:
                if not repair_after_crash(self.path, verify=True):
                    raise
                _log.warning("cut damaged, unacknowledged records off the logs in %s: %s", self.path, error)
                database = Database(self.path, self._options, create=create)
        except StructableError:
            raise
        except OSError as error:
            raise StorageUnavailableError(f"the logs in {self.path} cannot be repaired: {error}") from error
        try:
            all_synced(self.path)  # LevelDB has moved the rows of the logs to table files by now
        except OSError as error:
            database.close(READERS_LEAVE)
            raise StorageUnavailableError(f"the database in {self.path} cannot be written: {error}") from error
        self.noted_unsynced = False
        return database

    def healthy_database(self) -> Database:
        """Return the database, reopened if a write has failed; the calling thread holds the right to write."""
        if self.is_ailing():
            self.heal()
        return self.sound_database()

    def freeze(self, raw: RawSnapshot) -> None:
        """Let reads go to a snapshot until `thaw`."""
        if self._recovering:
            return  # nothing is read yet
        self.frozen = True
        try:
            self.reads.freeze(raw)
        except BaseException:
            self.thaw()
            raise

    def note_unsynced(self) -> None:
        """Record that commits from here on are not synced one by one; the calling thread holds the right to write."""
        self.sound_database()
        if self.noted_unsynced:
            return
        try:
            note_unsynced(self.path)
        except OSError as error:
            raise StorageUnavailableError(
                f"nothing was committed: the database could not be written: {error}"
            ) from error
        self.noted_unsynced = True

    def sync_earlier(self) -> None:
        """Sync earlier commits: LevelDB syncs the newest log alone, and a gap in one log ends all later ones."""
        try:
            sync_logs(self.path)
        except OSError as error:
            raise StorageUnavailableError(
                f"nothing was committed: earlier commits could not be synced: {error}"
            ) from error
        self.unsynced = False

    def note_all_synced(self) -> None:
        """Record that each commit is synced again; if this fails, a damaged log may pass for a torn one."""
        with suppress(OSError):
            all_synced(self.path)
            self.noted_unsynced = False

    def failed(self, failure: WriteFailedError, batch: Iterable[KeyChanges]) -> StructableError:
        """Roll a failed write back, reject writes from now on, and return the error with the outcome of the write."""
        database = self.database
        assert database is not None
        self.ailing = StorageUnavailableError(f"the database cannot be written: {failure.reason}")
        self._heal_after = 0.0
        parts = list(batch)
        final = {key: value for part in parts for key, value in part.items()}
        try:
            roll_back(self.path, parts, is_state=all(database.get(key) == value for key, value in final.items()))
        except (OSError, ValueError, IndexError, StructableError) as error:
            _log.error("a write to %s failed (%s) and cannot be rolled back: %s", self.path, failure.reason, error)
            return CommitOutcomeUnknownError(
                f"the commit failed ({failure.reason}) and could not be rolled back: {error}"
            )
        _log.error("a write to %s failed and was rolled back: %s", self.path, failure.reason)
        return StorageUnavailableError(f"nothing was committed: the database could not be written: {failure.reason}")

    def heal(self) -> None:
        """Reopen the database. The calling thread holds the right to write."""
        if self._closed:
            raise StorageUnavailableError(CLOSED)
        now = time.monotonic()
        if now < self._heal_after:
            raise self.ailing or StorageUnavailableError("the database cannot be opened")
        with self._committer.held_for_long():
            database = self.database
            try:
                if database is not None:
                    # Reopening turns the logs into table files.
                    probe_disk(self.path, sum(path.stat().st_size for path in log_files(self.path)))
                    self.reads.withhold()
                    if not database.close(READERS_LEAVE):
                        raise StorageUnavailableError("a reader did not return from LevelDB")
                    self.database = None
                self.open(create=False)
                _log.info("reopened the database in %s", self.path)
            except OSError as error:  # StorageUnavailableError is also one
                self._heal_after = time.monotonic() + _HEAL_PAUSE
                _log.warning("cannot reopen the database in %s: %s", self.path, error)
                raise StorageUnavailableError(
                    f"{self.ailing or 'the database is closed'}; reopening it failed: {error}"
                ) from error

    def _write_tables(self, compression: str) -> bool:
        """Record a compression, and use it for new table files. The calling thread holds the right to write.

        Returns whether the compression has changed; the database was then reopened, which ends its snapshots.
        """
        database = self.healthy_database()
        try:
            if recorded_compression(self.path) != compression:
                record_compression(self.path, compression)
        except OSError as error:
            raise StorageUnavailableError(f"the compression of {self.path} cannot be recorded: {error}") from error
        if database.compression == compression:
            return False
        self._options = replace(self._options, compression=compression)
        self.ailing = StorageUnavailableError("the database must be reopened for another compression")
        self.heal()
        return True

    def compact(self, compression: str | None, keys: Sequence[bytes]) -> bool:
        """Rewrite table files, as `Route.compact` does; never in the main thread.

        LevelDB leaves files of the deepest level alone if no file above overlaps them. So each key is written again
        with its present value: on its way down it is merged with every file whose interval holds it.
        """
        with self._committer.exclusive():
            changed = compression is not None and self._write_tables(compression)
            database = self.healthy_database()
            if self.unsynced:
                self.sync_earlier()
            same = {key: database.get(key) for key in keys}
            try:
                database.write((same,), True)
            except WriteFailedError as failure:
                raise self.failed(failure, (same,)) from failure
        database.compact(keys[0], keys[-1])
        return changed

    def is_ailing(self) -> bool:
        """Return whether a write has failed, even if an interruption kept its caller from recording that."""
        database = self.database
        if self.ailing is None and database is not None and database.write_failed:
            self._heal_after = 0.0
            self.ailing = StorageUnavailableError("the database cannot be written: an interrupted write has failed")
        return self.ailing is not None

    def thaw(self) -> None:
        assert self.database is not None
        self.frozen = False
        if not self._recovering:
            self.reads.serve(self.database)

    def close(self) -> bool:
        """Close the database; idempotent. The calling thread holds the right to write.

        Returns whether the files hold everything that was committed, durably.
        """
        self._closed = True
        sound = not self.is_ailing()
        database, self.database = self.database, None
        self.reads.withhold()
        if database is None or not database.close(READERS_LEAVE):
            return False
        try:
            sync_logs(self.path)
        except OSError:
            return False
        return sound

    def abandon(self, committer: CommitQueue) -> None:
        """Leave everything unchanged in a forked process, where the threads of the current committer do not exist."""
        self._closed = True
        if self.database is not None:
            self.database.abandon()
        self._committer = committer
        self.reads.withhold()
