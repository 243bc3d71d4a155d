"""Workloads on leases, leaders and permits; their clock is a thousand times as fast, so that ttls pass."""

from __future__ import annotations

import random
import time

from structable.datasets import Leader, Lease, LeaseLostError, Permit, Session, SystemData

from .application_workloads import new_tag
from .ledger import LEDGER, Entry, entries, note

_LEASE = "job"
_POOL = "pool"
_SMALL_POOL = "small"
PERMITS_LIMIT = 3


def fast_monotonic() -> float:
    """Return milliseconds that never go back: a ttl of one "second" passes in one."""
    return time.monotonic() * 1_000


def _write_under(system: SystemData, held: Lease | Permit) -> None:
    """Keep that the owner wrote, with the number of writes that came before.

    Only `check` can keep two owners from giving their writes the same number.
    """
    name, owner = (held.name, held.owner) if isinstance(held, Lease) else (held.pool, held.holder)

    def write(s: Session) -> None:
        number = len(entries(s.tx, "leased", name))
        note(s.tx, "leased", name, token=held.token, owner=owner, number=number)
        held.check(s.tx)

    system.run(write)


def acquire_lease(system: SystemData, chance: random.Random) -> None:
    """Acquire the lease, write under it a few times, and release it or leave it to expire."""
    owner = new_tag()
    # The second look finds that the beat stands still.
    lease = system.leases.acquire(_LEASE, owner, ttl=1) or system.leases.acquire(_LEASE, owner, ttl=1)
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


def acquire_only_permit(system: SystemData, chance: random.Random) -> None:
    """Acquire the permit of a pool of one as `acquire_lease` the lease."""
    holder = new_tag()
    permit = system.permits.acquire(_SMALL_POOL, holder, 1, 1) or system.permits.acquire(_SMALL_POOL, holder, 1, 1)
    if permit is None:
        raise LeaseLostError(_SMALL_POOL)
    for _ in range(3):
        _write_under(system, permit)
        if chance.random() < 0.3:
            permit.renew()
    if chance.random() < 0.5:
        permit.release()


PERMITS = (hold_permit, acquire_only_permit)
