"""`SessionPool`: connections that are kept open, handed out one for each transaction, scan or plan.

It opens connections in the thread that asks, so that what is wrong is raised there and at once, and keeps no threads,
which a fork would lose. A connection that is lost between two calls, by the exception of a signal's handler, is closed
when it is collected, and no longer counts.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import ref

from structable.backends.base.slots import Slots
from structable.spi import StorageUnavailableError

from .session import Session

__all__ = ["SessionPool"]


class SessionPool:
    """At most so many connections, the one used last handed out first.

    Parameters
    ----------
    open_session : callable
        Opens a connection; raises `StorageUnavailableError`.
    size : int
        How many may be open at once.
    timeout : float
        Seconds to wait for one.
    most_idle : int, optional
        How many are kept that nobody uses; all, if not given.
    """

    def __init__(
        self, open_session: Callable[[], Session], size: int, timeout: float, *, most_idle: int | None = None
    ) -> None:
        self._open = open_session
        self._size = size
        self._timeout = timeout
        self._most_idle = size if most_idle is None else most_idle
        self._slots = Slots(size)
        self._idle: deque[Session] = deque()
        self._lent: dict[ref[Session], None] = {}
        self._process = os.getpid()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the one that made the pool."""
        return self._closed or os.getpid() != self._process

    def acquire(self) -> Session:
        """Return a connection that nobody else uses; give it back by `release`.

        Raises
        ------
        StorageUnavailableError
            If all are in use for too long, the server cannot be reached, or the pool is closed.
        """
        if self._closed or os.getpid() != self._process:
            raise self._refusal()
        session = self._take() or self._slots.wait(self._take, self._timeout)
        if session is None:
            raise StorageUnavailableError(
                f"all {self._size} connections (pool_size) were in use for {self._timeout:g} s (pool_timeout): "
                "end transactions, scans and plans that are no longer needed"
            )
        session.lent = True
        if self._closed:  # meanwhile
            self.release(session)
            raise self._refusal()
        return session

    def _take(self) -> Session | None:
        """Return a connection, or None if all are in use."""
        while True:
            if self._closed:
                raise self._refusal()
            try:
                session = self._idle.pop()
            except IndexError:
                return self._opened()
            # The server says good-bye to a connection that it ends: an idle one has nothing else to be read.
            if not session.closed and not session.readable:
                return session
            self._end(session)

    def _opened(self) -> Session | None:
        slot = self._slots.take()
        if slot is None:
            return None
        try:
            session = self._open()
            session.slot = slot
            self._lent[ref(session, self._lent.pop)] = None
        except BaseException:
            slot = None  # now, and not when the traceback goes
            self._slots.wake()
            raise
        return session

    def release(self, session: Session) -> None:
        """Take a connection back; one that broke, or is in a transaction still, is closed. Idempotent."""
        if os.getpid() != self._process or not session.lent:
            return
        session.lent = False
        if session.usable and not self._closed and len(self._idle) < self._most_idle:
            self._idle.append(session)
            if self._closed:  # meanwhile
                self._close_idle()
        else:
            self._end(session)
        self._slots.wake()

    def _end(self, session: Session) -> None:
        session.close()
        session.slot = None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a connection for the `with` block."""
        session = self.acquire()
        try:
            yield session
        finally:
            self.release(session)

    def _refusal(self) -> StorageUnavailableError:
        how = "was closed" if self._closed else "belongs to the process that forked this one; connect anew"
        return StorageUnavailableError(f"the storage {how}")

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._end(self._idle.pop())
            except IndexError:  # another thread was faster
                return

    def close(self) -> None:
        """Close all connections, those in use too; idempotent."""
        if self.closed:
            self._closed = True
            return
        self._closed = True
        self._close_idle()
        for reference in list(self._lent):  # at once, whatever other threads take and give back
            session = reference()
            if session is not None:
                session.close()
