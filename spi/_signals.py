"""`Listener`: waits for the signals that transactions send when they commit."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import ClassVar, Self
from weakref import WeakValueDictionary, ref

from ._capabilities import Capabilities
from ._rules.signals import check_channels, check_timeout

_LOOK = 0.1
"""Seconds after which a wait for one of several listeners looks at the others."""


class Listener(ABC):
    """Waits for the signals of some channels. Threads may share it; a forked process must connect again.

    A signal is a hint that something was committed, never the thing itself: it may come twice, or without a cause, or
    be lost, as one that is sent while a connection to the store is down. So look at the store after each wait, even
    after one that timed out.
    """

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it or its storage was closed, or this process was forked from the one that listens."""

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Wait for a signal that was sent since the listener was made, or since `wait` returned true.

        Parameters
        ----------
        timeout : float
            The seconds to wait at most; with 0 the call only looks.

        Returns
        -------
        bool
            True if there was one, of any of the channels. False after the timeout, and at once when the listener is
            `closed`.

        Raises
        ------
        ValueError
            If the timeout is not a number of seconds from 0.
        """

    @abstractmethod
    def close(self) -> None:
        """End all calls of `wait`; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Signalling(ABC):
    """A store whose commits wake listeners."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The optional abilities of the store."""

    @property
    def wakes(self) -> bool:
        """Whether commits of every process wake a listener (capability `wakes`), or only those of its own process."""
        return self.capabilities.wakes

    def listen(self, channels: Iterable[str]) -> Listener:
        """Return a listener, which is woken by each commit from now on that signals one of the channels.

        Commits and write jobs of any process signal the channel `feed/TABLE` by themselves when they add to the change
        feed of that table; all other channels are signalled by `Transaction.signal`. A channel needs no preparation.

        Parameters
        ----------
        channels : iterable of str
            The names of the channels, at least one: 1 to 200 characters without NULs and lone surrogates.

        Raises
        ------
        ValueError
            If there is no channel, or the name of one is not allowed.
        TableNotFoundError, UnsupportedOperationError
            If there is no table of a channel `feed/TABLE`, or the table has no feed.
        StorageUnavailableError
            If the store cannot be reached.
        """
        # No commit wakes it: `connect` adds the signals of this process.
        return LocalSignals().listen(check_channels(channels))


def wait_for_any(listeners: Sequence[Listener], stop: threading.Event, timeout: float) -> bool:
    """Wait for a signal of any of some listeners, or until an event is set; return false after the timeout.

    It also returns true once all listeners are closed.
    """
    end = time.monotonic() + timeout
    while not stop.is_set():
        left = [one for one in listeners if not one.closed]
        if not left:
            return True
        seconds = end - time.monotonic()
        if seconds <= 0:
            return False
        for listener in left:
            if listener.wait(min(seconds, _LOOK) / len(left)):
                return True
    return True


class LocalListener(Listener):
    """A listener that another thread of this process wakes."""

    __slots__ = ("_closed", "_news", "_process", "channels")

    def __init__(self, channels: Iterable[str]) -> None:
        self.channels = frozenset(channels)
        self._process = os.getpid()
        self._closed = False
        # Written in C: no signal handler that raises can leave it locked.
        self._news: SimpleQueue[bool] = SimpleQueue()

    @property
    def closed(self) -> bool:
        return self._closed or os.getpid() != self._process

    def wake(self) -> None:
        """Let `wait` return true, now or when it is called next."""
        if self._news.empty():
            self._news.put(True)

    def wait(self, timeout: float) -> bool:
        seconds = check_timeout(timeout)
        if self.closed:
            return False
        try:
            self._news.get(timeout=seconds)
        except Empty:
            return False
        if self._closed:
            self._news.put(True)  # for other threads that wait
            return False
        return True

    def close(self) -> None:
        self._closed = True
        if os.getpid() == self._process:  # else a thread of the parent may have held a lock during the fork
            self._news.put(True)


class LocalSignals:
    """The listeners of this process by channel. Threads may share them.

    References to them are weak: a listener that the program has dropped is no longer woken.
    """

    _shared: ClassVar[WeakValueDictionary[str, LocalSignals]] = WeakValueDictionary()
    _sharing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced as a whole, so that `send` needs no lock.
        self._listeners: tuple[ref[LocalListener], ...] = ()

    @classmethod
    def of(cls, store: str) -> LocalSignals:
        """Return the listeners that all storages of a store share in this process."""
        with cls._sharing:
            found = cls._shared.get(store)
            if found is None:
                found = cls._shared[store] = cls()
            return found

    def listen(self, channels: Iterable[str]) -> LocalListener:
        """Return a listener that `send` wakes."""
        listener = LocalListener(channels)
        with self._lock:
            self._listeners = (*(one for one in self._listeners if _is_open(one)), ref(listener))
        return listener

    def send(self, channels: Iterable[str]) -> None:
        """Wake the listeners of some channels."""
        if not self._listeners:
            return
        names = frozenset(channels)
        for reference in self._listeners:
            listener = reference()
            if listener is not None and not names.isdisjoint(listener.channels):
                listener.wake()

    def wake_all(self) -> None:
        """Wake every listener."""
        for reference in self._listeners:
            listener = reference()
            if listener is not None:
                listener.wake()

    @property
    def channels(self) -> frozenset[str]:
        """The channels of all open listeners."""
        found = (reference() for reference in self._listeners if _is_open(reference))
        return frozenset(channel for listener in found if listener is not None for channel in listener.channels)


def _is_open(reference: ref[LocalListener]) -> bool:
    listener = reference()
    return listener is not None and not listener.closed


def _forget() -> None:
    LocalSignals._shared, LocalSignals._sharing = WeakValueDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget)
