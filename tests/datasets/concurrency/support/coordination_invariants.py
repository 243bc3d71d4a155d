"""Invariants of leases and permits."""

from __future__ import annotations

from collections import Counter
from typing import Final

from structable.datasets.tables.coordination import LEASES, PERMITS

from .coordination_workloads import PERMITS_LIMIT
from .rows import Rows


def owners_of_a_lease_write_one_after_the_other(rows: Rows) -> list[str]:
    """Check that each write under a lease saw all that came before, and that no earlier owner wrote after a later."""
    problems = []
    for lease, facts in rows.noted("leased").items():
        writes = sorted((int(str(one["number"])), int(str(one["token"])), str(one["owner"])) for one in facts)
        if [number for number, _, _ in writes] != list(range(len(writes))):
            problems.append(f"{lease}: writes with the numbers {[number for number, _, _ in writes]}")
        tokens = [token for _, token, _ in writes]
        if tokens != sorted(tokens):
            problems.append(f"{lease}: tokens {tokens}")
        owners = {(token, owner) for _, token, owner in writes}
        shared = [token for token, count in Counter(token for token, _ in owners).items() if count > 1]
        problems += [f"{lease}: token {token} has several owners" for token in shared]
    return problems


def tokens_of_a_lease_grow(rows: Rows) -> list[str]:
    last = {one.pool: one.token for one in rows.of(PERMITS) if one.slot == 0}
    last |= {one.lease: one.token for one in rows.of(LEASES)}
    return [
        f"{lease}: the token {one['token']} is above the stored {last.get(lease)}"
        for lease, facts in rows.noted("leased").items()
        for one in facts
        if int(str(one["token"])) > last.get(lease, 0)
    ]


def permits_are_held_up_to_their_limit(rows: Rows) -> list[str]:
    held = [int(str(one["number"])) for facts in rows.noted("held").values() for one in facts]
    inside = [len(facts) for facts in rows.noted("inside").values()]
    return [f"{number} permits were held at a time" for number in (*held, *inside) if number > PERMITS_LIMIT]


INVARIANTS: Final = (
    owners_of_a_lease_write_one_after_the_other,
    tokens_of_a_lease_grow,
    permits_are_held_up_to_their_limit,
)
