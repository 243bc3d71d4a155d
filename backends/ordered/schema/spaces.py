"""Spaces: their allocation, and their state in the catalog."""

from __future__ import annotations

from contextlib import suppress

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, Spaces, SpaceTakenError, Upkeep
from structable.spi import DataCorruptionError

from .catalog import CATALOG_SPACE, list_garbage, list_schemas
from .job_records import list_jobs

__all__ = ["allocate_space", "read_spaces"]

_NEXT_SPACE = CATALOG_SPACE + b"\x11"


def allocate_space(
    engine: Upkeep, snapshot: EngineSnapshot, writes: dict[bytes, bytes | None], *, feed: bool = False
) -> bytes:
    """Allocate a space never used before, and record it in `writes`: two concurrent allocations conflict."""
    taken = writes.get(_NEXT_SPACE)
    number = _following(snapshot) if taken is None else int.from_bytes(taken)
    while True:
        if number >= 1 << (8 * SPACE_BYTES):
            raise DataCorruptionError(f"the catalog has given away all {number:,} spaces")
        space = number.to_bytes(SPACE_BYTES)
        number += 1
        writes[_NEXT_SPACE] = number.to_bytes(SPACE_BYTES)
        # Skipped or not, another allocation of the same number conflicts with this one.
        with suppress(SpaceTakenError):
            if feed:
                engine.create_space(space, feed=True)
            else:
                engine.create_space(space)
            return space


def _following(snapshot: EngineSnapshot) -> int:
    raw = snapshot.get(_NEXT_SPACE)
    return 1 if raw is None else int.from_bytes(raw)


def read_spaces(snapshot: EngineSnapshot) -> Spaces:
    """Return the spaces that the catalog knows."""
    return Spaces(
        frozenset(space for schema in list_schemas(snapshot) for space in schema.spaces),
        frozenset(space for _, record in list_jobs(snapshot) for space in record.loading),
        frozenset(beginning for beginning in list_garbage(snapshot) if len(beginning) == SPACE_BYTES),
        min(_following(snapshot), (1 << 8 * SPACE_BYTES) - 1).to_bytes(SPACE_BYTES),
    )
