"""What must hold in the final rows of any workload: a function of the rows by name, which returns the violations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from structable.datasets import SystemData

from . import (
    application_invariants,
    content_invariants,
    coordination_invariants,
    job_invariants,
    message_invariants,
    platform_invariants,
)
from .rows import Rows, rows_of

Invariant = Callable[[Rows], list[str]]

INVARIANTS: Final[dict[str, Invariant]] = {
    invariant.__name__: invariant
    for module in (
        application_invariants,
        platform_invariants,
        content_invariants,
        coordination_invariants,
        job_invariants,
        message_invariants,
    )
    for invariant in module.INVARIANTS
}


def violations(system: SystemData) -> list[str]:
    """Return how the rows of a store violate the invariants."""
    rows = rows_of(system)
    return [f"{name}: {problem}" for name, invariant in INVARIANTS.items() for problem in invariant(rows)]
