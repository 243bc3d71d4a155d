"""The catalog: tables and garbage recorded in an engine's map, the cache of bound tables, and small changes of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
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
from structable.backends.ordered.table_schema import TableSchema, folded_name
from structable.spi import TableNotFoundError, TransactionConflictError

from .binding import TableBinding
from .stuck_jobs import require_whole, stuck_key

Result = TypeVar("Result")

CATALOG_SPACE = b"\0" * SPACE_BYTES
_TABLES = CATALOG_SPACE + b"\x10"
_GARBAGE = CATALOG_SPACE + b"\x12"
_ATTEMPTS = 20
_PAUSE = 0.002


def schema_key(table: str) -> bytes:
    """Return the key of a table's catalog entry."""
    return _TABLES + folded_name(table)


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
        if known and isinstance(name, str) and (binding := tables.get(name)) is not None:
            return binding
        found = self.find(snapshot, name)
        if found is None:
            raise TableNotFoundError(name)
        require_unretired(found.spec)
        if known:
            tables[name] = found
        elif snapshot.epoch > epoch:
            self._current = (snapshot.epoch, {name: found})
        return found

    def find(self, snapshot: EngineSnapshot, name: object) -> TableBinding | None:
        """Read a table from a snapshot, past the cache of its epoch; rejects a stuck write job."""
        if not isinstance(name, str):
            return None
        raw, stuck = snapshot.get_many([schema_key(name), stuck_key(name)])
        binding = None if raw is None else self.bind(raw)
        if binding is None or binding.spec.name != name:
            return None
        require_whole(stuck, binding.schema)
        return binding

    def may_have_feed(self, table: str) -> bool:
        """Return whether a table may have a change feed, by the cache alone."""
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
            try:
                return catalog_change(self._engine, body)
            except (TransactionConflictError, SchemaChangedError):
                if attempt == _ATTEMPTS:
                    raise
            time.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")


def catalog_change(engine: OrderedMap, body: Callable[[EngineSnapshot, WriteSet], Result]) -> Result:
    """Return the result of a function of the newest state; commit any changes that it adds to a write set."""
    with closing(engine.begin(False)) as snapshot:
        changes = WriteSet()
        result = body(snapshot, changes)
        if changes.writes or changes.derived:
            engine.commit(snapshot, changes)
        return result
