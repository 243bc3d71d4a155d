"""The catalog: where tables, garbage and write jobs are recorded in an engine's map, and the cache of bound tables."""

from __future__ import annotations

import json
from collections.abc import Iterator

from structable.spi import DataCorruptionError, TableNotFoundError

from .binding import TableBinding
from .engine import SPACE_BYTES, Engine, EngineSnapshot, Spaces, successor
from .schema import TableSchema

__all__ = [
    "CATALOG_SPACE",
    "Catalog",
    "allocate_space",
    "garbage_key",
    "job_key",
    "list_garbage",
    "list_jobs",
    "list_schemas",
    "read_schema",
    "read_spaces",
    "schema_key",
]

CATALOG_SPACE = b"\0" * SPACE_BYTES
_TABLES = CATALOG_SPACE + b"\x10"
_NEXT_SPACE = CATALOG_SPACE + b"\x11"
_GARBAGE = CATALOG_SPACE + b"\x12"
_JOBS = CATALOG_SPACE + b"\x13"


def schema_key(table: str) -> bytes:
    """Return the key of a table's catalog entry: by lower case, since no two tables may differ by case alone."""
    return _TABLES + table.lower().encode(errors="surrogatepass")  # no table's name, but it may be asked for


def read_schema(snapshot: EngineSnapshot, table: str) -> TableSchema | None:
    """Return the table whose name equals `table` but for its case."""
    raw = snapshot.get(schema_key(table))
    return None if raw is None else TableSchema.decode(raw)


def list_schemas(snapshot: EngineSnapshot) -> Iterator[TableSchema]:
    """Yield all tables, in no order that users know."""
    for _, raw in snapshot.scan(_TABLES, successor(_TABLES)):
        yield TableSchema.decode(raw)


def allocate_space(engine: Engine, snapshot: EngineSnapshot, writes: dict[bytes, bytes | None]) -> bytes:
    """Make a space never used before, and record that in `writes`: two that allocate at once conflict."""
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
    """Return what the catalog says of spaces."""
    loading = (record.get("loading") for _, record in list_jobs(snapshot))
    return Spaces(
        frozenset(schema.space for schema in list_schemas(snapshot)),
        frozenset(bytes.fromhex(space) for space in loading if isinstance(space, str)),
        frozenset(beginning for beginning in list_garbage(snapshot) if len(beginning) == SPACE_BYTES),
        min(_following(snapshot), (1 << 8 * SPACE_BYTES) - 1).to_bytes(SPACE_BYTES),
    )


def garbage_key(begin: bytes) -> bytes:
    """Return the key that records an interval, all keys that start with `begin`, as no longer needed."""
    return _GARBAGE + begin


def list_garbage(snapshot: EngineSnapshot) -> list[bytes]:
    """Return the beginnings of all keys that are no longer needed."""
    return [key[len(_GARBAGE) :] for key, _ in snapshot.scan(_GARBAGE, successor(_GARBAGE))]


def job_key(job_id: str) -> bytes:
    """Return the key of a write job's record."""
    return _JOBS + job_id.encode()


def list_jobs(snapshot: EngineSnapshot) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield ids and records of all write jobs."""
    for key, raw in snapshot.scan(_JOBS, successor(_JOBS)):
        yield key[len(_JOBS) :].decode(), json.loads(raw)


class Catalog:
    """Bound tables by name, valid for one schema epoch, and bound only once for each state of a table.

    Parameters
    ----------
    engine : Engine
        Where the catalog is kept.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # One tuple, replaced as a whole: threads see an epoch with its own tables or not at all.
        self._current: tuple[int, dict[str, TableBinding]] = (-1, {})
        self._bound: dict[bytes, TableBinding] = {}

    def table(self, snapshot: EngineSnapshot, name: str) -> TableBinding:
        """Return a table as it is in a snapshot.

        Raises
        ------
        TableNotFoundError
            If there is no table of exactly this name.
        """
        epoch, tables = self._current
        known = epoch == snapshot.epoch
        if not isinstance(name, str):
            raise TableNotFoundError(name)
        if known and (binding := tables.get(name)) is not None:
            return binding
        raw = snapshot.get(schema_key(name))
        if raw is None:
            raise TableNotFoundError(name)
        binding = self.bind(raw)
        if binding.spec.name != name:
            raise TableNotFoundError(name)
        if known:
            tables[name] = binding
        elif snapshot.epoch > epoch:
            self._current = (snapshot.epoch, {name: binding})
        return binding

    def bind(self, raw: bytes) -> TableBinding:
        """Return the binding of an encoded `TableSchema`."""
        binding = self._bound.get(raw)
        if binding is None:
            binding = TableBinding(TableSchema.decode(raw), raw)
            if len(self._bound) >= _MOST_BOUND:
                self._bound.clear()
            self._bound[raw] = binding
        return binding


_MOST_BOUND = 1_000
