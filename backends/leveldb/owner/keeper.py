"""`DatabaseKeeper`: opens a database, makes the outcome of failed writes certain, reopens it after them, and closes it.

The database goes through these conditions. *Sound*: reads and writes go to LevelDB. *Frozen*: a bulk commit is being
applied, and reads go to the snapshot taken before it. *Ailing*: a write has failed; reads go on as before, writes are
refused until the database could be reopened, which each write tries. *Down*: reopening failed half-way; each operation
tries it again. While a database is being opened and recovered, every thread but the one at it waits.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.native.database import CLOSED, Database, DatabaseOptions, WriteFailedError
from structable.backends.leveldb.native.format import prepare
from structable.backends.leveldb.native.log import probe_space, retract, sync_logs
from structable.backends.leveldb.native.reads import READERS_LEAVE, Access
from structable.backends.leveldb.native.recovery import all_synced, note_unsynced, repair_after_crash
from structable.backends.ordered.engine import Increment
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    DataCorruptionError,
    StorageUnavailableError,
    StructableError,
)

from .committer import Committer, Pending

__all__ = ["Changes", "DatabaseKeeper", "StoreHooks"]

_HEAL_PAUSE = 0.2

Changes = Mapping[bytes, bytes | None]


class StoreHooks(Protocol):
    """What the store needs from above."""

    @property
    def shared(self) -> memoryview[int]:
        """The cells of `open_shared`."""

    def merge(self, value: bytes | None, increments: Sequence[Increment]) -> bytes:
        """Apply increments to a row."""

    def recover(self) -> None:
        """Complete the bulk commits that were decided and not completed."""

    def epoch_changed(self, epoch: int) -> None:
        """Take note of a schema change that was committed."""


class DatabaseKeeper(ABC):
    """A database that may be sound or not, and whoever commits to it.

    Parameters
    ----------
    path : pathlib.Path
        The folder of the LevelDB files.
    options : DatabaseOptions
        How LevelDB works.
    hooks : StoreHooks
        What it needs from above.
    """

    def __init__(self, path: Path, options: DatabaseOptions, hooks: StoreHooks) -> None:
        self.path = path
        self._options = options
        self._hooks = hooks
        self._committer = Committer(self._write_group)
        self._epoch: int | None = 0
        self._database: Database | None = None
        self._ailing: StructableError | None = None
        self._heal_after = 0.0
        self._closed = False
        self._frozen = False
        self._recovering = False
        self._noted_unsynced = False
        self._access = Access(self._wait_for_database)

    @abstractmethod
    def _write_group(self, group: list[Pending]) -> None:
        """Commit a group; the calling thread holds the right to write."""

    @abstractmethod
    def _settle(self) -> None:
        """Put commits into the history that may have been written although they failed, or were interrupted.

        Not while reads go to a state before them: a transaction that began in it would miss a conflict.
        """

    @property
    def epoch(self) -> int:
        """The number of the newest schema change."""
        epoch = self._epoch
        if epoch is None:
            epoch = uninterrupted(self._settled_epoch)
        assert epoch is not None
        return epoch

    @property
    def syncs(self) -> bool:
        """Whether every commit since the database was opened was synced, which one that is not would end."""
        return not self._noted_unsynced

    @property
    def busy_with_bulk(self) -> bool:
        """Whether a bulk commit is being applied, which writers wait for."""
        return self._frozen and self._ailing is None

    def _settled_epoch(self) -> int | None:
        with self._committer.exclusive():
            return self._epoch

    def _wait_for_database(self) -> Database:
        return uninterrupted(self._database_alone)

    def _database_alone(self) -> Database:
        with self._committer.exclusive():
            return self._sound_database()

    def _sound_database(self) -> Database:
        """Return the database, to a thread that holds the right to write."""
        if self._closed:
            raise StorageUnavailableError(CLOSED)
        if self._database is None:
            self._heal()
        assert self._database is not None
        return self._database

    def open(self, *, create: bool, checked: bool = False) -> None:
        """Open the database, complete what was decided, and serve.

        Parameters
        ----------
        create : bool
            Whether to make it.
        checked : bool
            Whether its logs are known to be whole.

        Raises
        ------
        DataCorruptionError
            If it is damaged, newer, or not structable's.
        StorageUnavailableError
            If it cannot be opened.
        """
        with self._committer.exclusive():
            self._open(create, checked)

    def _open(self, create: bool, checked: bool = False) -> None:
        database = self._open_repaired(create, checked)
        try:
            self._epoch = prepare(database)
            self._hooks.epoch_changed(self._epoch)
            self._database = database
            self._frozen = False
            self._ailing = None
            self._recovering = True
            self._hooks.recover()
            self._settle()
        except BaseException:
            self._database = None
            database.close(READERS_LEAVE)
            raise
        finally:
            self._recovering = False
        self._thaw()

    def _open_repaired(self, create: bool, checked: bool) -> Database:
        try:
            if not checked:
                repair_after_crash(self.path, verify=False)
            try:
                database = Database(self.path, self._options, create=create)
            except DataCorruptionError:
                if not repair_after_crash(self.path, verify=True):
                    raise
                database = Database(self.path, self._options, create=create)
        except StructableError:
            raise
        except OSError as error:
            raise StorageUnavailableError(f"the logs in {self.path} cannot be repaired: {error}") from error
        try:
            all_synced(self.path)  # LevelDB has moved the rows of the logs to table files
        except OSError as error:
            database.close(READERS_LEAVE)
            raise StorageUnavailableError(f"the database in {self.path} cannot be written: {error}") from error
        self._noted_unsynced = False
        return database

    def _note_unsynced(self) -> None:
        """Record that what is written from here on is not synced with each commit."""
        with self._committer.exclusive():
            self._sound_database()
            if self._noted_unsynced:
                return
            try:
                note_unsynced(self.path)
            except OSError as error:
                raise StorageUnavailableError(
                    f"nothing was committed, for the database could not be written: {error}"
                ) from error
            self._noted_unsynced = True

    def _all_synced(self) -> None:
        """Record that each commit is synced again; where that fails, a damaged log may pass for a torn one."""
        with suppress(OSError):
            all_synced(self.path)
            self._noted_unsynced = False

    def _failed(self, failure: WriteFailedError, batch: Iterable[Changes]) -> StructableError:
        """Make the outcome of a failed write certain, and refuse writes from now on."""
        database = self._database
        assert database is not None
        self._ailing = StorageUnavailableError(f"the database cannot be written: {failure.reason}")
        self._heal_after = 0.0
        parts = list(batch)
        final = {key: value for part in parts for key, value in part.items()}
        try:
            retract(self.path, parts, is_state=all(database.get(key) == value for key, value in final.items()))
        except (OSError, ValueError, IndexError, StructableError) as error:
            return CommitOutcomeUnknownError(
                f"the commit failed ({failure.reason}) and could not be taken back: {error}"
            )
        return StorageUnavailableError(
            f"nothing was committed, for the database could not be written: {failure.reason}"
        )

    def _heal(self) -> None:
        """Reopen the database. The calling thread holds the right to write."""
        if self._closed:
            raise StorageUnavailableError(CLOSED)
        now = time.monotonic()
        if now < self._heal_after:
            raise self._ailing or StorageUnavailableError("the database cannot be opened")
        with self._committer.held_for_long():
            database = self._database
            try:
                if database is not None:
                    probe_space(self.path)
                    self._access.withhold()
                    if not database.close(READERS_LEAVE):
                        raise StorageUnavailableError("a reader did not come back from LevelDB")
                    self._database = None
                self._open(create=False)
            except OSError as error:  # StorageUnavailableError is one, too
                self._heal_after = time.monotonic() + _HEAL_PAUSE
                raise StorageUnavailableError(
                    f"{self._ailing or 'the database is closed'}; and still: {error}"
                ) from error

    def _is_ailing(self) -> bool:
        """Tell whether a write has failed, also one whose caller was interrupted before that was noted."""
        database = self._database
        if self._ailing is None and database is not None and database.write_failed:
            self._heal_after = 0.0
            self._ailing = StorageUnavailableError("the database cannot be written: an interrupted write has failed")
        return self._ailing is not None

    def _thaw(self) -> None:
        assert self._database is not None
        self._frozen = False
        if not self._recovering:
            self._access.serve(self._database)

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold off commits and all that waits for the database, except for what this thread does."""
        return self._committer.exclusive()

    @contextmanager
    def commits_held(self) -> Iterator[None]:
        """Hold commits off while the files are copied: they hold the newest committed state, and stay as they are.

        Raises
        ------
        StorageUnavailableError
            If a write has failed, and the database cannot be reopened.
        """
        with self._committer.exclusive():
            if self._is_ailing():
                self._heal()
            self._sound_database()
            yield

    def close(self) -> bool:
        """Close the database; idempotent.

        Returns
        -------
        bool
            Whether all that was committed is in its files, for sure and durably.
        """
        with self._committer.exclusive():
            self._closed = True
            sound = not self._is_ailing()
            database, self._database = self._database, None
            self._access.withhold()
            if database is None or not database.close(READERS_LEAVE):
                return False
            try:
                sync_logs(self.path)
            except OSError:
                return False
            return sound

    def abandon(self) -> None:
        """Leave everything as it is, in a forked process."""
        self._closed = True
        if self._database is not None:
            self._database.abandon()
        self._committer = Committer(self._write_group)
        self._access.withhold()
