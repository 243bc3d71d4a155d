"""Spaces: their allocation, and their state in the catalog."""

from __future__ import annotations

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, Spaces, Upkeep
from structable.spi import DataCorruptionError

from .catalog import CATALOG_SPACE, list_garbage, list_schemas
from .job_records import list_jobs

__all__ = ["allocate_space", "read_spaces"]

_NEXT_SPACE = CATALOG_SPACE + b"\x11"


def allocate_space(engine: Upkeep, snapshot: EngineSnapshot, writes: dict[bytes, bytes | None]) -> bytes:
    """Allocate a space never used before, and record it in `writes`: two concurrent allocations conflict."""
    number = _following(snapshot)
    if number >= 1 << (8 * SPACE_BYTES):
        raise DataCorruptionError(f"the catalog has given away all {number:,} spaces")
    writes[_NEXT_SPACE] = (number + 1).to_bytes(SPACE_BYTES)
    space = number.to_bytes(SPACE_BYTES)
    engine.create_space(space)
    return space


def _following(snapshot: EngineSnapshot) -> int:
    raw = snapshot.get(_NEXT_SPACE)
    return 1 if raw is None else int.from_bytes(raw)


def read_spaces(snapshot: EngineSnapshot) -> Spaces:
    """Return the spaces that the catalog knows."""
    return Spaces(
        frozenset(schema.space for schema in list_schemas(snapshot)),
        frozenset(record.loading for _, record in list_jobs(snapshot) if record.loading),
        frozenset(beginning for beginning in list_garbage(snapshot) if len(beginning) == SPACE_BYTES),
        min(_following(snapshot), (1 << 8 * SPACE_BYTES) - 1).to_bytes(SPACE_BYTES),
    )
