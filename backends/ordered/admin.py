"""`OrderedAdmin`: tables are created, changed and dropped by transactions on the catalog."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import TypeVar

from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    InvalidSpecificationError,
    StorageUnavailableError,
    TableAdmin,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
)
from structable.spi.schema_change import SchemaChange, plan_schema_change
from structable.spi.values import check_index_sizes, value_size

from .binding import INDEX_MARK, TableBinding
from .catalog import Catalog, allocate_space, garbage_key, list_schemas, read_schema, schema_key
from .engine import Engine, EngineSnapshot, ReadSet, SchemaChangedError, WriteSet
from .garbage import GarbageCollector
from .schema import TableSchema

__all__ = ["OrderedAdmin"]

Result = TypeVar("Result")

_BACKFILL_ROWS = 500
_PAUSE = 0.005


class OrderedAdmin(TableAdmin):
    """Administration of the tables in an engine's catalog.

    A new index is first published as being built, so that every write keeps it from then on; then the rows that were
    there before are added in small transactions, and at last it is published for scans. A call that was interrupted
    in between is completed by calling it again.

    Parameters
    ----------
    engine : Engine
        The store.
    catalog : Catalog
        Its tables.
    garbage : GarbageCollector
        Told when something was dropped.
    ddl_timeout : float
        Seconds to contend for the catalog with others.
    """

    def __init__(self, engine: Engine, catalog: Catalog, garbage: GarbageCollector, ddl_timeout: float) -> None:
        self._engine = engine
        self._catalog = catalog
        self._garbage = garbage
        self._ddl_timeout = ddl_timeout

    def create(self, spec: TableSpecification) -> None:
        """Create an empty table; see `TableAdmin.create`."""
        _require_specification(spec)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            if _existing(snapshot, spec) is not None:
                raise TableAlreadyExistsError(spec.name)
            _add_table(snapshot, changes, spec)

        self._change(body)

    def create_or_update(self, spec: TableSpecification) -> None:
        """Create or change a table; see `TableAdmin.create_or_update`."""
        _require_specification(spec)

        def publish(snapshot: EngineSnapshot, changes: WriteSet) -> TableSchema | None:
            existing = _existing(snapshot, spec)
            if existing is None:
                _add_table(snapshot, changes, spec)
                return None
            change = plan_schema_change(existing.spec, spec)
            if change.empty:
                return None
            changed = _changed(existing, change)
            if changed != existing:
                _put_schema(changes, changed)
            return changed

        while (schema := self._change(publish)) is not None:
            for name in schema.building:
                if name in spec.indexes:
                    self._build_index(schema, name, spec)
            if not schema.building:
                return

    def exists(self, table: str) -> bool:
        """Tell whether there is a table of exactly this name."""
        return self._schema(table) is not None

    def get_specification(self, table: str) -> TableSpecification:
        """Return a table's specification; see `TableAdmin.get_specification`."""
        schema = self._schema(table)
        if schema is None:
            raise TableNotFoundError(table)
        return schema.spec

    def list(self) -> list[str]:
        """Return the names of all tables, in code point order."""
        return self._look(lambda snapshot: sorted(schema.spec.name for schema in list_schemas(snapshot)))

    def drop(self, table: str) -> None:
        """Remove a table; see `TableAdmin.drop`."""

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = _named(snapshot, table)
            if schema is not None:
                changes.writes[schema_key(table)] = None
                changes.writes[garbage_key(schema.space)] = b"\x01"
                changes.changed_spaces.add(schema.space)

        self._change(body)
        self._garbage.notify()

    def drop_index(self, table: str, field: str) -> None:
        """Take an index away; see `TableAdmin.drop_index`."""

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = _named(snapshot, table)
            if schema is None:
                raise TableNotFoundError(table)
            if field not in schema.maintained:
                indexed = ", ".join(schema.spec.indexes) or "none"
                raise InvalidFieldError(table, str(field), f"has no index; indexed are: {indexed}")
            self._remove_index(changes, schema, field)

        self._change(body)
        self._garbage.notify()

    def _remove_index(self, changes: WriteSet, schema: TableSchema, field: str) -> None:
        binding = self._catalog.bind(schema.encode())
        changes.writes[garbage_key(binding.keys.index_begin(schema.maintained[field]))] = b"\x01"
        _put_schema(
            changes,
            replace(
                schema,
                spec=_with_indexes(schema.spec, [name for name in schema.spec.indexes if name != field]),
                indexes={name: number for name, number in schema.indexes.items() if name != field},
                building={name: number for name, number in schema.building.items() if name != field},
            ),
        )

    def _build_index(self, schema: TableSchema, name: str, spec: TableSpecification) -> None:
        """Add the rows that were there before the index to it, and publish it for scans."""
        binding = self._catalog.bind(schema.encode())
        try:
            position: bytes | None = binding.keys.rows_begin
            while position is not None:
                position = self._backfill(binding, name, position)
        except FieldSizeLimitError:
            self._give_up_index(schema, name)
            raise

        def publish(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            current = _named(snapshot, schema.spec.name)
            if current is None or current.space != schema.space or name not in current.building:
                return  # changed by somebody else meanwhile; the caller looks again
            finished = (*current.spec.indexes, name)
            wanted = [index for index in spec.indexes if index in finished]
            rest = [index for index in finished if index not in wanted]
            _put_schema(
                changes,
                replace(
                    current,
                    spec=_with_indexes(current.spec, wanted + rest),
                    indexes={**current.indexes, name: current.building[name]},
                    building={other: number for other, number in current.building.items() if other != name},
                ),
            )

        self._change(publish)

    def _backfill(self, binding: TableBinding, name: str, position: bytes) -> bytes | None:
        """Add the entries of some rows from `position` on, and return where the next ones begin; None at the end."""
        index = next(one for one in binding.maintained if one.field.name == name)
        key_fields, spec = binding.spec.key_fields, binding.write_spec

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> bytes | None:
            rows = list(islice(snapshot.scan(position, binding.keys.rows_end), _BACKFILL_ROWS))
            for raw_key, raw in rows:
                value = index.indexed_value(raw_key, raw)[0]
                key = binding.keys.decode(raw_key)
                key_size = sum(value_size(field, part) for field, part in zip(key_fields, key, strict=True))
                check_index_sizes(spec, key_size, {name: value_size(index.field, value)})
                changes.derived[index.entry(value, raw_key)] = INDEX_MARK
            # A row that somebody changes at the same time has to be looked at again.
            changes.reads = ReadSet(keys={raw_key for raw_key, _ in rows})
            changes.spaces.add(binding.schema.space)
            return rows[-1][0] + b"\0" if len(rows) == _BACKFILL_ROWS else None

        return self._change(body)

    def _give_up_index(self, schema: TableSchema, name: str) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            current = _named(snapshot, schema.spec.name)
            if current is not None and current.space == schema.space and name in current.building:
                self._remove_index(changes, current, name)

        self._change(body)
        self._garbage.notify()

    def _schema(self, table: str) -> TableSchema | None:
        return self._look(lambda snapshot: _named(snapshot, table))

    def _look(self, look: Callable[[EngineSnapshot], Result]) -> Result:
        return self._change(lambda snapshot, _: look(snapshot))

    def _change(self, body: Callable[[EngineSnapshot, WriteSet], Result]) -> Result:
        """Run a transaction on the catalog until it commits, for `ddl_timeout` seconds."""
        end = time.monotonic() + self._ddl_timeout
        for attempt in count():
            snapshot: EngineSnapshot | None = None
            try:
                snapshot = self._engine.begin(False)
                changes = WriteSet()
                result = body(snapshot, changes)
                if changes.writes or changes.derived:
                    self._engine.commit(snapshot, changes)
                return result
            except (TransactionConflictError, SchemaChangedError) as conflict:
                if time.monotonic() > end:
                    raise StorageUnavailableError(
                        f"the admin call was overtaken {attempt + 1} times in {self._ddl_timeout:g} s (ddl_timeout)"
                    ) from conflict
            finally:
                if snapshot is not None:
                    snapshot.close()
            time.sleep(_PAUSE)
        raise AssertionError("unreachable: the count is endless")


def _require_specification(spec: object) -> None:
    if not isinstance(spec, TableSpecification):
        raise InvalidSpecificationError(f"{spec!r} is not a TableSpecification")


def _named(snapshot: EngineSnapshot, table: object) -> TableSchema | None:
    schema = read_schema(snapshot, table) if isinstance(table, str) else None
    return schema if schema is not None and schema.spec.name == table else None


def _existing(snapshot: EngineSnapshot, spec: TableSpecification) -> TableSchema | None:
    schema = read_schema(snapshot, spec.name)
    if schema is not None and schema.spec.name != spec.name:
        raise InvalidSpecificationError(
            f"table {spec.name!r} differs from the table {schema.spec.name!r} by case alone"
        )
    return schema


def _add_table(snapshot: EngineSnapshot, changes: WriteSet, spec: TableSpecification) -> None:
    space = allocate_space(snapshot, changes.writes)
    indexes = {name: number for number, name in enumerate(spec.indexes)}
    _put_schema(changes, TableSchema(spec, space, 0, {0: spec.value_fields}, indexes, {}, len(indexes)))


def _put_schema(changes: WriteSet, schema: TableSchema) -> None:
    changes.writes[schema_key(schema.spec.name)] = schema.encode()
    changes.changed_spaces.add(schema.space)


def _changed(schema: TableSchema, change: SchemaChange) -> TableSchema:
    """Return the table with its new fields and types, and its new indexes as being built."""
    version, layouts = schema.version, schema.layouts
    if change.added_fields or change.widened_fields:
        widened = {field.name: field for field in change.widened_fields}
        fields = tuple(widened.get(field.name, field) for field in schema.value_fields) + change.added_fields
        version += 1
        layouts = {**layouts, version: fields}
    building, following = dict(schema.building), schema.next_index
    for name in change.added_indexes:
        if name not in building:
            building[name] = following
            following += 1
    spec = _with_indexes(change.after, schema.spec.indexes)
    return replace(schema, spec=spec, version=version, layouts=layouts, building=building, next_index=following)


def _with_indexes(spec: TableSpecification, indexes: builtins.list[str] | tuple[str, ...]) -> TableSpecification:
    return TableSpecification(spec.name, spec.fields, spec.primary_key, indexes, spec.options)
