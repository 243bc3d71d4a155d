"""The catalog: tables and garbage recorded in an engine's map, the cache of bound tables, and small changes of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.bounded import Bounded
from structable.backends.ordered.engine import (
    SPACE_BYTES,
    EngineSnapshot,
    OrderedMap,
    SchemaChangedError,
    WriteSet,
    successor,
)
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import TableNotFoundError, TransactionConflictError

from .binding import TableBinding
from .stuck_jobs import require_whole, stuck_key

__all__ = [
    "CATALOG_SPACE",
    "Catalog",
    "CatalogChanges",
    "garbage_key",
    "list_garbage",
    "list_schemas",
    "named_schema",
    "put_schema",
    "read_schema",
    "schema_key",
]

Result = TypeVar("Result")

CATALOG_SPACE = b"\0" * SPACE_BYTES
_TABLES = CATALOG_SPACE + b"\x10"
_GARBAGE = CATALOG_SPACE + b"\x12"
_ATTEMPTS = 20
_PAUSE = 0.002


def schema_key(table: str) -> bytes:
    """Return the key of a table's catalog entry: by lower case, since no two tables may differ by case alone."""
    return _TABLES + table.lower().encode(errors="surrogatepass")  # never a table's name, but callers may pass it


def read_schema(snapshot: EngineSnapshot, table: str) -> TableSchema | None:
    """Return the table whose name equals `table` up to case."""
    raw = snapshot.get(schema_key(table))
    return None if raw is None else TableSchema.decode(raw)


def named_schema(snapshot: EngineSnapshot, table: object) -> TableSchema | None:
    """Return the table of exactly this name."""
    schema = read_schema(snapshot, table) if isinstance(table, str) else None
    return schema if schema is not None and schema.spec.name == table else None


def list_schemas(snapshot: EngineSnapshot) -> Iterator[TableSchema]:
    """Yield all tables, in an unspecified order."""
    for _, raw in snapshot.scan(_TABLES, successor(_TABLES)):
        yield TableSchema.decode(raw)


def put_schema(changes: WriteSet, schema: TableSchema) -> None:
    """Add a table's new schema to a write set."""
    changes.writes[schema_key(schema.spec.name)] = schema.encode()
    changes.changed_spaces.add(schema.space)


def garbage_key(begin: bytes) -> bytes:
    """Return the key that records an interval, all keys that start with `begin`, as garbage."""
    return _GARBAGE + begin


def list_garbage(snapshot: EngineSnapshot) -> list[bytes]:
    """Return the common prefixes of all garbage keys."""
    return [key[len(_GARBAGE) :] for key, _ in snapshot.scan(_GARBAGE, successor(_GARBAGE))]


class Catalog:
    """Bound tables by name, valid for one schema epoch; each state of a table is bound only once."""

    def __init__(self, engine: OrderedMap) -> None:
        self._engine = engine
        # One tuple, replaced as a whole: threads see an epoch together with its own tables or not at all.
        self._current: tuple[int, dict[str, TableBinding]] = (-1, {})
        self._bound: Bounded[bytes, TableBinding] = Bounded(1_000)

    def table(self, snapshot: EngineSnapshot, name: str) -> TableBinding:
        """Return the table of exactly this name in a snapshot; rejects one that is retired or has a stuck write job."""
        epoch, tables = self._current
        known = epoch == snapshot.epoch
        if not isinstance(name, str):
            raise TableNotFoundError(name)
        if known and (binding := tables.get(name)) is not None:
            return binding
        raw, stuck = snapshot.get_many([schema_key(name), stuck_key(name)])
        if raw is None:
            raise TableNotFoundError(name)
        binding = self.bind(raw)
        if binding.spec.name != name:
            raise TableNotFoundError(name)
        require_whole(stuck, binding.schema)
        require_unretired(binding.spec)
        if known:
            tables[name] = binding
        elif snapshot.epoch > epoch:
            self._current = (snapshot.epoch, {name: binding})
        return binding

    def may_have_feed(self, table: str) -> bool:
        """Return whether a table may have a change feed, by what is known of it without a read."""
        binding = self._current[1].get(table)
        return binding is None or binding.schema.feed is not None

    def bind(self, raw: bytes) -> TableBinding:
        binding = self._bound.get(raw)
        if binding is None:
            binding = TableBinding(TableSchema.decode(raw), raw, describes_merges=self._engine.traits.describes_merges)
            self._bound[raw] = binding
        return binding


class CatalogChanges:
    """Runs a transaction on the catalog of an engine, when called."""

    def __init__(self, engine: OrderedMap) -> None:
        self._engine = engine

    def __call__(self, body: Callable[[EngineSnapshot, WriteSet], Result]) -> Result:
        for attempt in range(1, _ATTEMPTS + 1):
            snapshot = self._engine.begin(False)
            try:
                changes = WriteSet()
                result = body(snapshot, changes)
                if changes.writes:
                    self._engine.commit(snapshot, changes)
                return result
            except (TransactionConflictError, SchemaChangedError):
                if attempt == _ATTEMPTS:
                    raise
            finally:
                snapshot.close()
            time.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")
