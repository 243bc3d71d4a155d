"""`ServerSignals`: signals between the processes that use a schema, by LISTEN and NOTIFY.

NOTIFY is sent after the commit, on another connection: inside a transaction it takes a lock at the commit for which all
transactions of the database wait. Each channel is a name of the server's, which are shared by all of a database.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Iterable
from functools import lru_cache
from weakref import WeakSet

from structable.backends.base.uninterrupted import uninterrupted
from structable.spi import Listener, StorageUnavailableError, UnsupportedOperationError
from structable.spi.authors import LocalListener, LocalSignals

from .connection_factory import ConnectionFactory
from .errors import PostgreSQLError, translated
from .notifications import Notifications
from .notifier import Notifier, notify
from .pool import ServerPool

_log = logging.getLogger("structable.postgresql")

_PROBED = 2.0
"""Seconds within which the notification of a probe must arrive."""


class ServerSignals:
    """The signals of a storage. Thread-safe.

    Parameters
    ----------
    factory : ConnectionFactory
        Opens the connection that listens.
    pool : ServerPool
        Lends connections to notify.
    schema : str
        The schema.
    pooled : bool
        Whether a pooler is between this process and the server: it may lose notifications to an idle client.
    """

    def __init__(self, factory: ConnectionFactory, pool: ServerPool, schema: str, *, pooled: bool) -> None:
        self._pool = pool
        self._schema = schema
        self._token = secrets.token_hex(8)
        self._probe = f"structable_{self._token}"
        self._local = LocalSignals()
        self._listeners: WeakSet[LocalListener] = WeakSet()
        self._channels: dict[str, str] = {}
        """Channels by name."""
        self._notifier = Notifier(pool, self._token)
        self._notifications = Notifications(factory, self._wanted, self._heard, self._local.wake_all)
        self._lock = threading.Lock()
        self._probing = False
        self._arrived = threading.Event()
        self._process = os.getpid()
        self._works: bool | None = None if pooled else True
        """Whether notifications arrive; None until that was tested."""
        self._tried = False

    @property
    def wakes(self) -> bool:
        """Whether notifications of other processes arrive. Behind a pooler, the first call tests that."""
        if self._works is None and os.getpid() == self._process:
            try:
                self._try()
            except StorageUnavailableError:
                return False  # for now
        return bool(self._works)

    def listen(self, channels: Iterable[str]) -> Listener:
        """Return a listener, which other processes wake if `wakes`.

        Raises
        ------
        StorageUnavailableError
            If the server cannot be reached.
        """
        listener = self._local.listen(channels)
        self._listeners.add(listener)
        try:
            self._try()
        except BaseException:
            listener.close()
            raise
        return listener

    def send(self, channels: Iterable[str]) -> None:
        """Wake the listeners of channels, this storage's at once; never fails."""
        names = list(channels)
        if names:
            self._local.send(names)
            self._notifier.send([_name(self._schema, channel) for channel in names])

    def close(self) -> None:
        """End all listeners, and send the notifications that are due; idempotent."""
        uninterrupted(self._close)

    def _close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        self._notifier.close()
        self._notifications.close()

    def _wanted(self) -> frozenset[str]:
        self._channels = {_name(self._schema, channel): channel for channel in self._local.channels}
        return frozenset(self._channels) | ({self._probe} if self._probing else frozenset())

    def _heard(self, name: str, payload: str) -> None:
        if name == self._probe:
            self._arrived.set()
        elif payload != self._token and name in self._channels:  # own commits have woken the listener
            self._local.send((self._channels[name],))

    def _try(self) -> None:
        """Listen to all channels, and test the first time whether that works."""
        # An interruption may leave an event locked, or a thread that starts.
        uninterrupted(self._listen_to_all)

    def _listen_to_all(self) -> None:
        with self._lock:
            if self._works is False:
                return
            try:
                if self._tried:
                    self._notifications.refresh()
                else:
                    self._works = self._works_now()
                    self._tried = True
            except (UnsupportedOperationError, StorageUnavailableError) as error:
                if isinstance(error, StorageUnavailableError) and not error.lasting:
                    raise
                self._works = False
                self._notifications.close()
                _log.warning("commits of other processes wake no listener: %s", error)

    def _works_now(self) -> bool:
        self._probing = True
        try:
            self._notifications.refresh()
            notify(self._pool, (self._probe,), "")
            if self._arrived.wait(_PROBED):
                return True
        except PostgreSQLError as error:
            raise translated(error, "listening") from error
        finally:
            self._probing = False
        self._notifications.close()
        _log.warning(
            "commits of other processes wake no listener: a notification did not arrive in %g s, most likely because "
            "of a pooler that does not pool sessions",
            _PROBED,
        )
        return False


@lru_cache(1024)
def _name(schema: str, channel: str) -> str:
    digest = hashlib.blake2b(f"{schema}\0{channel}".encode(), digest_size=16)
    return f"structable_{digest.hexdigest()}"
