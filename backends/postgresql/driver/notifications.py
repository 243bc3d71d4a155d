"""`Notifications`: a connection that listens to channels of the server, and the thread that reads from it."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable

import psycopg

from structable.spi import StorageUnavailableError, UnsupportedOperationError

from .connection_factory import ConnectionFactory

_log = logging.getLogger("structable.postgresql")

_LOOK = 0.5
"""The interval, in seconds, at which the thread checks whether it has to end."""
_TRY = 20
"""The number of checks without news after which the connection is tested, and unused channels are left."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PATIENCE = 1.0
"""Seconds that closing waits for a connection that is being opened."""


class Notifications:
    """Listens to wanted names. Thread-safe.

    A thread with a connection runs while any name is wanted. A lost connection is opened again.

    Parameters
    ----------
    factory : ConnectionFactory
        Opens the connection.
    wanted : callable
        Returns the names to listen to; called from any thread.
    heard : callable
        Called in the thread, or in the thread that calls `refresh`, with the name and the payload of each notification.
    restarted : callable
        Called once the connection was opened again, as notifications may be lost.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        wanted: Callable[[], frozenset[str]],
        heard: Callable[[str, str], None],
        restarted: Callable[[], None],
    ) -> None:
        self._factory = factory
        self._wanted = wanted
        self._heard = heard
        self._restarted = restarted
        self._process = os.getpid()
        self._lock = threading.RLock()
        """Held by the thread that uses the connection, but not while it waits for news."""
        self._connection: psycopg.Connection | None = None
        self._names: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._has_lost = False
        self._quiet = 0

    def refresh(self) -> None:
        """Listen to all names that are wanted now, from the end of this call on.

        Raises
        ------
        StorageUnavailableError
            If the server cannot be reached.
        UnsupportedOperationError
            If it refuses to listen, as a standby does.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._agree_or_open()
            if self._thread is None or not self._thread.is_alive():  # one that could not start is not alive
                self._thread = threading.Thread(target=self._run, name="structable notifications", daemon=True)
                self._thread.start()

    def _agree_or_open(self) -> None:
        if self._connection is not None:
            try:
                self._agree(self._connection)
                return
            except psycopg.OperationalError:
                self._has_lost = True
        self._open()

    def _open(self) -> None:
        """Open the connection, in place of a lost one."""
        self._drop()
        try:
            connection = psycopg.connect(**self._factory.parameters, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise StorageUnavailableError(f"cannot connect to {self._factory.shown} to listen: {reason}") from error
        connection.add_notify_handler(lambda one: self._heard(one.channel, one.payload))
        self._connection = connection
        try:
            self._agree(connection)
        except psycopg.OperationalError as error:
            raise StorageUnavailableError(f"lost the connection that listens: {error}") from error
        if self._has_lost:
            self._has_lost = False
            self._restarted()

    def _agree(self, connection: psycopg.Connection) -> None:
        """Listen to the names that are wanted and to no others."""
        names = self._wanted()
        commands = [f'listen "{name}"' for name in names - self._names]
        commands += [f'unlisten "{name}"' for name in self._names - names]
        try:
            connection.execute("; ".join(commands or ["select 1"]).encode())
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            self._drop()
            reason = " ".join(str(error).split())
            raise UnsupportedOperationError(f"{self._factory.shown} cannot listen: {reason}") from error
        self._names = names

    def _drop(self) -> None:
        connection, self._connection, self._names = self._connection, None, frozenset()
        if connection is not None:
            connection.close()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            connection = self._connection
            try:
                if connection is None:
                    self._reopen()
                elif self._read(connection):
                    return
                pause = _FIRST_PAUSE
            except (psycopg.Error, OSError, UnsupportedOperationError) as error:
                _log.info("lost the connection that listens; opening another: %s", " ".join(str(error).split()))
                with self._lock:
                    if connection is not None and connection is self._connection:
                        self._drop()
                        self._has_lost = True
                self._closed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        with self._lock:
            self._drop()

    def _reopen(self) -> None:
        with self._lock:
            if self._closed.is_set() or self._connection is not None:
                return
            self._open()

    def _read(self, connection: psycopg.Connection) -> bool:
        """Wait for notifications and pass them on; return whether the thread has ended, as no name is wanted."""
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        readable = poll.poll(_LOOK * 1_000)
        with self._lock:
            if self._closed.is_set() or connection is not self._connection:
                return False
            self._quiet = 0 if readable else self._quiet + 1
            if readable:
                pg = connection.pgconn
                pg.consume_input()
                while one := pg.notifies():
                    self._heard(one.relname.decode(), one.extra.decode())
            elif self._quiet >= _TRY:
                self._quiet = 0
                if not self._wanted():
                    self._drop()
                    self._thread = None
                    return True
                self._agree(connection)
        return False

    def close(self) -> None:
        """Close the connection and end the thread; idempotent."""
        if os.getpid() != self._process:
            return  # a fork shares the connection, and its copies of the locks may be held for ever
        self._closed.set()
        if self._lock.acquire(timeout=_PATIENCE):  # else the thread closes the connection that it is opening
            try:
                self._drop()
            finally:
                self._lock.release()
