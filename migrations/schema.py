"""`Schema`: the revision that a program announces at its start, and its view of the store's revisions.

Announced programs count as alive while their beats move.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from typing import NamedTuple, Self

from structable.spi import Storage, TableNotFoundError, Transaction, Value

from .errors import LiveClientsError, NotReadyError, SchemaAheadError, SchemaBehindError
from .history import MINIMUM, History, RevisionRow
from .lease import Clock, Clocks, Monotonic, owner_name
from .states import State
from .status import status_of

_log = logging.getLogger("structable.migrations")
BEAT = 10
"""Seconds between two beats of a program."""
WATCHED = 30
"""Seconds without a new beat after which a program counts as ended."""
_LOOKS = 1.0


class Schema:
    """The revision of a running program: checked as it starts, and announced by a beat, until it is closed.

    Parameters
    ----------
    storage : Storage
        The store.
    revision : int
        The newest revision that the program knows; 0 for none.
    application : str
        The program's name.
    instance : str, optional
        A name of this process that is unique in the application; by default host, process and a random part.
    clock : callable, optional
        Returns the time, an aware datetime; UTC now, if not given.
    monotonic : callable
        Returns seconds that never go back; the clock of its beats.

    Raises
    ------
    SchemaBehindError
        If the revision is not expanded in the store.
    SchemaAheadError
        If a later one was contracted.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        revision: int,
        application: str,
        instance: str | None = None,
        clock: Clock | None = None,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
            raise ValueError(f"revision is {revision!r}; it must be a whole number, 0 or more")
        if not application or not isinstance(application, str):
            raise ValueError(f"application is {application!r}; it must be a name")
        self.revision = revision
        self.application = application
        self.instance = instance or f"{owner_name()}:{uuid.uuid4().hex[:8]}"
        self._storage = storage
        self._history = History(storage)
        self._clocks = Clocks.given(clock, monotonic)
        self._ended = threading.Event()
        if not revision and not self._history.exists:
            self._history.create()  # the program precedes the first revision
        try:
            storage.run(self._announce)
        except TableNotFoundError:
            raise SchemaBehindError(revision, State.PENDING) from None
        threading.Thread(target=self._beat, name=f"schema of {application}", daemon=True).start()

    def _announce(self, tx: Transaction) -> None:
        minimum = self._history.minimum(tx)
        if minimum > self.revision:
            raise SchemaAheadError(self.revision, minimum)
        if self.revision:
            row = self._history.revisions(tx).read((self.revision,))
            state = State.PENDING if row is None else RevisionRow.of(row).resumes
            if not state.expanded:
                raise SchemaBehindError(self.revision, state)
        # This and a concurrent contract that raises the minimum conflict.
        self._history.set_minimum(tx, minimum)
        self._put(tx, 0)

    def _put(self, tx: Transaction, beat: int) -> None:
        key: dict[str, Value] = {"application": self.application, "instance": self.instance}
        self._history.clients(tx).upsert({**key, "revision": self.revision, "beat": beat, "host": socket.gethostname()})

    def ready(self, revision: int) -> bool:
        """Return whether all rows have the form of a revision, as searches and orders by it need."""
        row = self._history.all().get(revision)
        return row is not None and row.state.ready

    def require(self, revision: int) -> None:
        """Check that a revision is ready.

        Raises
        ------
        NotReadyError
            If it is not; the error has the progress.
        """
        row = self._history.all().get(revision)
        if row is None or not row.state.ready:
            raise NotReadyError(revision, State.PENDING if row is None else status_of(self._history, row).progress)

    def close(self) -> None:
        """Record that the program has ended; idempotent."""
        if not self._ended.is_set():
            self._ended.set()
            self._storage.run(lambda tx: self._history.clients(tx).delete((self.application, self.instance)))

    def _beat(self) -> None:
        def beat(tx: Transaction) -> None:
            row = self._history.clients(tx).read((self.application, self.instance))
            if self._ended.is_set():
                return  # `close` removes the row, and a beat that conflicted with that must not bring it back
            # A contract forgets a process whose beats have stopped; the program then meets the removed fields.
            self._put(tx, 1 if row is None else row.beat + 1)

        while not self._clocks.wait(BEAT, self._ended):
            try:
                self._storage.run(beat)
            except Exception:
                if self._ended.is_set() or self._storage.closed:
                    return
                _log.warning("the beat of %s %s failed", self.application, self.instance, exc_info=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class _LiveProgram(NamedTuple):
    application: str
    instance: str
    revision: int
    host: str | None

    def __str__(self) -> str:
        return f"{self.application} {self.instance} on {self.host} (revision {self.revision})"


def _older(tx: Transaction, history: History, revision: int) -> dict[_LiveProgram, int]:
    with history.clients(tx).scan() as rows:
        return {
            _LiveProgram(row.application, row.instance, row.revision, row.host): int(row.beat or 0)
            for row in rows
            if row.key != MINIMUM and row.revision < revision
        }


def require_no_older(history: History, revision: int, clocks: Clocks) -> None:
    """Check that no announced program of an older revision is alive; forget programs that have ended.

    Raises
    ------
    LiveClientsError
        If a beat moves while they are watched, or another program appears.
    """
    storage = history.storage

    def older(tx: Transaction) -> dict[_LiveProgram, int]:
        return _older(tx, history, revision)

    def forget(tx: Transaction) -> None:
        ended = [client for client, beat in older(tx).items() if first.get(client) == beat]
        history.clients(tx).delete_many([(one.application, one.instance) for one in ended])

    first = storage.run(older, read_only=True)
    begun = clocks.monotonic()
    never = threading.Event()
    while first:
        before = clocks.monotonic()
        now = storage.run(older, read_only=True)
        living = [client for client, beat in now.items() if first.get(client) != beat]
        if living:
            raise LiveClientsError(revision, map(str, living))
        if not now:
            return
        if before - begun >= WATCHED:
            storage.run(forget)
            return
        clocks.wait(_LOOKS, never)
