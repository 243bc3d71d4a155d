"""`Leader`: elects one of several processes by a lease."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from structable.datasets.system_data import SystemData
from structable.spi import Storage, StorageUnavailableError, TransactionError

from .beats import check_ttl, member_name
from .leases import Lease

Result = TypeVar("Result")

_log = logging.getLogger("structable.datasets")


class Leader:
    """A candidate for the leadership of a name.

    Parameters
    ----------
    store : SystemData or Storage
        The datasets; or a store that has them under the default prefix.
    name : str
        The lease's name.
    owner : str, optional
        The name of the candidate; host, process and a random number, if not given.
    ttl : int
        Seconds without renewal, after which another candidate may be elected.

    Raises
    ------
    ValueError
        If the ttl is out of its range.
    """

    def __init__(self, store: SystemData | Storage, name: str, *, owner: str | None = None, ttl: int = 15) -> None:
        self._store = store
        self._name = name
        self._owner = owner or member_name()
        self._ttl = check_ttl(ttl)

    def run(self, body: Callable[[Lease], Result]) -> Result:
        """Wait until elected, call `body(lease)`, release the lease, and return the body's result.

        The lease is renewed while the body runs. A body that writes must call `lease.check(tx)` in each transaction. It
        raises `LeaseLostError` once another one may lead, so a leader that was stopped for too long commits nothing.

        Raises
        ------
        StorageUnavailableError
            If the storage is closed before the candidate is elected. While the store is unreachable, it waits.
        """
        if isinstance(self._store, Storage):
            # Closing the datasets ends the renewal; the storage stays open.
            with SystemData(self._store) as system:
                return self._lead(system, body)
        return self._lead(self._store, body)

    def _lead(self, system: SystemData, body: Callable[[Lease], Result]) -> Result:
        # Renewed only here: an interruption before `try` leaves a lease that ends by its ttl.
        lease = self._elected(system)
        try:
            system.leases.keep(lease, self._ttl)
            return body(lease)
        finally:
            lease._beating.ended.put(None)  # first, before another interruption
            try:
                lease.release()
            except (StorageUnavailableError, TransactionError):
                _log.warning("the lease %r could not be released; it ends by its ttl", self._name, exc_info=True)

    def _elected(self, system: SystemData) -> Lease:
        pause = min(1.0, self._ttl / 10)
        with ExitStack() as listening:
            wait: Callable[[float], object] = time.sleep
            while True:
                try:
                    lease = system.leases.acquire(self._name, self._owner, self._ttl)
                    if lease is not None:
                        return lease
                    if wait is time.sleep:
                        wait = listening.enter_context(system.leases.listen(self._name)).wait
                        continue  # the listener misses an earlier release: look again
                except (StorageUnavailableError, TransactionError):
                    if system.storage.closed:
                        raise
                    _log.warning("the lease %r could not be read; trying again", self._name, exc_info=True)
                wait(pause)
