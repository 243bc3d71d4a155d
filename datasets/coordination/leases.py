"""Leases: one owner of a name at a time, judged by beats that were watched, never by wall clocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from structable.datasets.identifiers import check_names
from structable.datasets.records.record_table import PrefixedTables
from structable.datasets.tables.coordination import FENCES, LEASES, LeaseRow
from structable.spi import Listener, Storage, Transaction

from . import fences
from .beats import Beating, Watch, check_ttl
from .held import Held


class Lease(Held):
    """A lease that was acquired; `Leases.acquire` makes it. Safe to share between threads.

    Attributes
    ----------
    token : int
        A number that grows with each owner of the lease.
    """

    def __init__(self, storage: Storage, tables: PrefixedTables, name: str, owner: str, token: int) -> None:
        super().__init__(
            storage,
            tables[LEASES].name,
            tables[FENCES].name,
            key={"lease": name},
            field="owner",
            owner=owner,
            token=token,
            scope=_scope(name),
        )
        self._beating = Beating(f"lease {name!r} of {owner!r}", self.renew)

    @property
    def name(self) -> str:
        """The lease's name."""
        return self._name

    @property
    def owner(self) -> str:
        """The owner."""
        return self._owner

    def release(self) -> None:
        """Let others acquire it at once; a transaction of its own. Does nothing if it was lost or released."""
        self.stop_keeping()
        super().release()

    def _freed(self, tx: Transaction) -> None:
        tx.signal(_channel(self._table, self.name))

    def keep(self, every: float) -> None:
        """Renew it in a daemon thread, until it is released or lost, or the datasets are closed."""
        self._beating.start(every)

    def stop_keeping(self) -> None:
        """End the thread that renews it, if there is one."""
        self._beating.stop()


class Leases:
    """The leases of a store: `system.leases`. Safe to share between threads; each call is a transaction of its own."""

    def __init__(self, storage: Storage, tables: PrefixedTables, monotonic: Callable[[], float]) -> None:
        self._storage = storage
        self._tables = tables
        self._watch = Watch(monotonic)
        self._kept: weakref.WeakSet[Lease] = weakref.WeakSet()

    def acquire(self, name: str, owner: str, ttl: int = 15, *, keep: bool = False, info: object = None) -> Lease | None:
        """Return the lease if it is free, else None.

        It is free if it never had an owner, was released, or was not renewed while this process watched it for its ttl:
        call it repeatedly.

        Parameters
        ----------
        ttl : int
            Seconds without renewal, after which others may take it.
        keep : bool
            Renew it every third of the ttl, in a daemon thread.
        info : object
            A document for people who inspect the lease.

        Raises
        ------
        ValueError
            If a name or the ttl is out of its range.
        """
        check_names(lease=name, owner=owner)
        check_ttl(ttl)
        now = self._watch.monotonic()

        def take(tx: Transaction) -> int | None:
            rows = self._tables[LEASES](tx)
            row = rows.get(name)
            if row is not None and row.owner is not None and not self._expired(row, now):
                return None
            token = 1 if row is None else row.token + 1
            fences.exclude(tx, self._tables[FENCES].name, _scope(name))
            rows.put(LeaseRow(lease=name, owner=owner, token=token, ttl=ttl, info=info))
            return token

        token = self._storage.run(take)
        if token is None:
            return None
        self._watch.forget((name,))
        lease = Lease(self._storage, self._tables, name, owner, token)
        if keep:
            self.keep(lease, ttl)
        return lease

    def keep(self, lease: Lease, ttl: int) -> None:
        """Renew a lease every third of its ttl, in a daemon thread; an interrupted call does not."""
        self._kept.add(lease)
        try:
            lease.keep(ttl / 3)
        except BaseException:
            lease.stop_keeping()
            raise

    def listen(self, name: str) -> Listener:
        """Return a listener that each release of the lease wakes; the end of a lease by its ttl does not wake it."""
        return self._storage.listen([_channel(self._tables[LEASES].name, name)])

    def _expired(self, row: LeaseRow, now: float) -> bool:
        return self._watch.expired((row.lease,), row.token, row.beat, row.ttl, now)

    def close(self) -> None:
        """End the threads that keep leases; the leases are not released."""
        for lease in list(self._kept):
            lease.stop_keeping()


def _scope(name: str) -> str:
    return f"lease/{name}"


def _channel(table: str, name: str) -> str:
    """Return the channel of a lease; names that begin with the same 128 characters share one."""
    return f"{table}/{name[:128]}"
