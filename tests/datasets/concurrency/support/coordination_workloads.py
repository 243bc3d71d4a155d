"""Workloads on leases, leaders and permits; their clock is a thousand times as fast, so that ttls pass."""

from __future__ import annotations

import random
import time

from structable.datasets import Leader, Lease, LeaseLostError, Session, SystemData

from .application_workloads import new_tag
from .ledger import LEDGER, Entry, entries, note

__all__ = ["LEASES", "PERMITS", "PERMITS_LIMIT", "fast_monotonic"]

_LEASE = "job"
_POOL = "pool"
PERMITS_LIMIT = 3


def fast_monotonic() -> float:
    """Return milliseconds that never go back: a ttl of one "second" passes in one."""
    return time.monotonic() * 1_000


def _write_under(system: SystemData, lease: Lease) -> None:
    """Keep that the lease's owner wrote, with the number of writes that came before.

    Only `lease.check` can keep two owners from giving their writes the same number.
    """

    def write(s: Session) -> None:
        number = len(entries(s.tx, "leased", lease.name))
        note(s.tx, "leased", lease.name, token=lease.token, owner=lease.owner, number=number)
        lease.check(s.tx)

    system.run(write)


def acquire_lease(system: SystemData, chance: random.Random) -> None:
    """Acquire the lease, write under it a few times, and release it or leave it to expire."""
    lease = system.leases.acquire(_LEASE, new_tag(), ttl=1)
    if lease is None:
        raise LeaseLostError(_LEASE)
    for _ in range(3):
        _write_under(system, lease)
        if chance.random() < 0.3:
            lease.renew()
    if chance.random() < 0.5:
        lease.release()


def lead(system: SystemData, chance: random.Random) -> None:
    Leader(system, _LEASE, ttl=1).run(lambda lease: _write_under(system, lease))


LEASES = (*(acquire_lease,) * 15, lead)


def hold_permit(system: SystemData, chance: random.Random) -> None:
    """Acquire a permit, and look how many others are held meanwhile, as of rows that are there only then."""
    limit = chance.randrange(1, PERMITS_LIMIT + 1)
    permit = system.permits.acquire(_POOL, new_tag(), limit, ttl=10**9)
    if permit is None:
        raise LeaseLostError(_POOL)

    def enter(s: Session) -> Entry:
        permit.check(s.tx)
        return note(s.tx, "inside", _POOL)

    entered = system.run(enter)
    inside = system.run(lambda s: len(entries(s.tx, "inside", _POOL)), read_only=True)

    def leave(s: Session) -> None:
        LEDGER(s.tx).delete(entered.kind, entered.subject, entered.entry)
        note(s.tx, "held", _POOL, number=inside, slot=permit.slot)

    system.run(leave)
    permit.release()


PERMITS = (hold_permit,)
