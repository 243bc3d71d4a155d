"""`RunnerLease`: one runner of a store at a time, judged by beats that were watched, never by wall clocks."""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from structable.spi import Transaction

from .errors import MigrationError, MigrationLockedError
from .history import History

Clock: TypeAlias = Callable[[], dt.datetime]
Monotonic: TypeAlias = Callable[[], float]

TTL = 15
"""Seconds without a beat after which another runner takes over."""
ENDING = 5.0
"""Seconds for which a runner tries to record its end; if it cannot, others notice that its beats have stopped."""

_log = logging.getLogger("structable.migrations")
_RUNNER = ("runner",)
_BEAT = ("beat",)
_LOOKS = 0.25
_CLOCK_LOOKS = 0.1
"""Seconds between two looks at a given clock, which may run faster than real time."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Two clocks.

    Parameters
    ----------
    clock : callable
        Returns the time, an aware datetime.
    monotonic : callable
        Returns seconds that never go back.
    """

    clock: Clock
    monotonic: Monotonic = time.monotonic

    @classmethod
    def given(cls, clock: Clock | None, monotonic: Monotonic) -> Clocks:
        """Return clocks; None is UTC now."""
        return cls(clock or _utc_now, monotonic)

    def wait(self, seconds: float, ended: threading.Event) -> bool:
        """Wait until the seconds have passed or the event is set; return whether it is set."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            if ended.wait(left if self.monotonic is time.monotonic else min(left, _CLOCK_LOOKS)):
                return True
        return ended.is_set()


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class _Holder(NamedTuple):
    owner: str | None
    epoch: int
    beat: int
    ttl: int
    since: dt.datetime | None


def owner_name() -> str:
    """Return the name of this process: host:process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def check_epoch(tx: Transaction, history: History, epoch: int) -> None:
    """Check that the runner of an epoch still holds the lease; a read, which conflicts with nothing.

    Raises
    ------
    MigrationLockedError
        If another runner holds it.
    MigrationError
        If an operator's pause revoked it, or another runner held it and has ended.
    """
    held = history.lease(tx).read(_RUNNER)
    if held is None or held.owner is None:
        raise MigrationError("this runner was paused or replaced; 'structable migrate resume' continues the revision")
    if held.epoch != epoch:
        raise MigrationLockedError(held.owner, held.since)


def running_since(tx: Transaction, history: History) -> dt.datetime | None:
    """Return when the last runner began; None if there was none."""
    held = history.lease(tx).read(_RUNNER)
    return None if held is None else held.since


def _holder(tx: Transaction, history: History) -> _Holder:
    table = history.lease(tx)
    runner, beat = table.read(_RUNNER), table.read(_BEAT)
    if runner is None:
        return _Holder(None, 0, 0, TTL, None)
    return _Holder(runner.owner, runner.epoch, 0 if beat is None else beat.beat, runner.ttl, runner.since)


class RunnerLease:
    """The right to run; a context manager that acquires and releases it.

    Parameters
    ----------
    history : History
        The store, which has the state tables.
    clocks : Clocks
        The clocks.

    Attributes
    ----------
    owner : str
        The name of this process.
    epoch : int
        A number that grows with each runner, once it is acquired.
    """

    def __init__(self, history: History, clocks: Clocks) -> None:
        self.owner = owner_name()
        self.epoch = 0
        self._history = history
        self._storage = history.storage
        self._clocks = clocks
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease if it is free, or was not renewed while this process watched it for its ttl.

        Raises
        ------
        MigrationLockedError
            If its owner is alive.
        """
        history = self._history
        seen: tuple[int, int] | None = None
        watched = 0.0
        while True:
            before = self._clocks.monotonic()
            held = self._storage.run(lambda tx: _holder(tx, history), read_only=True)
            if held.owner is None or held.since is None:
                expired = True
            elif seen is None:
                # Count from now: the owner may have renewed it until the read ended.
                seen, watched, expired = (held.epoch, held.beat), self._clocks.monotonic(), False
            elif seen != (held.epoch, held.beat):
                raise MigrationLockedError(held.owner, held.since)
            else:
                expired = before - watched >= held.ttl
            if expired and self._take(held):
                break
            self._clocks.wait(_LOOKS, self._ended)
        self._beating = threading.Thread(target=self._beat, name="structable migrations", daemon=True)
        self._beating.start()

    def _take(self, expected: _Holder) -> bool:
        history = self._history

        def take(tx: Transaction) -> int:
            if _holder(tx, history) != expected:
                return 0
            epoch = expected.epoch + 1
            table = history.lease(tx)
            since = self._clocks.clock()
            table.upsert({"lease": "runner", "owner": self.owner, "epoch": epoch, "ttl": TTL, "since": since})
            table.upsert({"lease": "beat", "epoch": epoch, "beat": 0})
            return epoch

        self.epoch = self._storage.run(take)
        return self.epoch > 0

    def hold(self, tx: Transaction) -> None:
        """Let the transaction commit only if the lease is held at the commit: it conflicts with a takeover and a pause.

        Raises
        ------
        MigrationError
            As `check_epoch` does.
        """
        check_epoch(tx, self._history, self.epoch)
        self._history.lease(tx).update({"lease": "runner", "epoch": self.epoch})

    def release(self) -> None:
        """Let others acquire it at once; does nothing if it was lost."""
        self._ended.set()
        history = self._history

        def free(tx: Transaction) -> None:
            if _holder(tx, history).epoch == self.epoch:
                history.lease(tx).update({"lease": "runner", "owner": None, "epoch": self.epoch})

        self._storage.run(free, deadline=ENDING)

    def _beat(self) -> None:
        history = self._history

        def renew(tx: Transaction) -> bool:
            table = history.lease(tx)
            row = table.read(_BEAT)
            # A beat that waited for the store must not come after its runner has ended.
            if row is None or row.epoch != self.epoch or self._ended.is_set():
                return False
            table.update({"lease": "beat", "beat": row.beat + 1})
            return True

        while not self._clocks.wait(TTL / 3, self._ended):
            try:
                if not self._storage.run(renew):
                    return
            except Exception:
                # The next beat may succeed; if none does, another runner takes over, and transactions of this one fail.
                if self._ended.is_set() or self._storage.closed:
                    return
                _log.warning("the lease of the runner %s could not be renewed", self.owner, exc_info=True)

    def __enter__(self) -> RunnerLease:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            self.release()
        except Exception:
            if error is None:
                raise
            _log.warning("the lease of the runner %s could not be released", self.owner, exc_info=True)


def take_away(tx: Transaction, history: History) -> None:
    """Revoke the lease of the present runner, whose next transaction fails; for an operator's pause."""
    held = _holder(tx, history)
    history.lease(tx).upsert({"lease": "runner", "owner": None, "epoch": held.epoch + 1, "ttl": TTL})
