"""`OrderedAdmin`: creates, changes and drops tables by transactions on the catalog."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import TypeVar

from structable.backends.base.admin_rules import (
    require_fillable,
    require_index,
    require_same_case,
    require_specification,
)
from structable.backends.ordered.engine import EngineSnapshot, ReadSet, SchemaChangedError, Upkeep, WriteSet
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import (
    FieldRule,
    Progress,
    StorageUnavailableError,
    StructableError,
    TableAdmin,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
)
from structable.spi.authors import (
    TAKEN_TABLE,
    SchemaChange,
    check_index_sizes,
    plan_schema_change,
    retired_since,
    taken_field,
    taken_index,
    value_size,
    with_rules,
    without_field,
)

from .binding import INDEX_MARK
from .catalog import (
    Catalog,
    catalog_change,
    garbage_key,
    list_schemas,
    named_schema,
    put_schema,
    read_schema,
    schema_key,
)
from .garbage import GarbageCollector
from .spaces import admit_types, allocate_space, begin_feed, renew_feed
from .stream_records import stream_keys
from .stuck_jobs import require_whole, stuck_key

Result = TypeVar("Result")

_BACKFILL_ROWS = 500
_PAUSE = 0.005


class _IndexGoneError(Exception):
    """The index under construction was dropped, or its table was."""


class OrderedAdmin(TableAdmin):
    """Administration of the tables in an engine's catalog.

    A new index is first published as under construction: from then on every write maintains it. Existing rows are then
    added in small transactions. Last, the index is opened for scans, together with all other changes of the call; until
    then no reader sees any of them. An index of a new field follows separately, since its values cannot
    make it fail. Repeating an interrupted call completes it.
    """

    def __init__(self, engine: Upkeep, catalog: Catalog, garbage: GarbageCollector, ddl_timeout: float) -> None:
        self._engine = engine
        self._catalog = catalog
        self._garbage = garbage
        self._ddl_timeout = ddl_timeout

    def create(self, spec: TableSpecification) -> None:
        require_specification(spec, has_feeds=self._engine.traits.keeps_versions)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            if _existing(snapshot, spec) is not None:
                raise TableAlreadyExistsError(spec.name)
            _add_table(self._engine, snapshot, changes, spec)

        self._change(body)

    def create_or_update(
        self, spec: TableSpecification, *, progress: Progress | None = None, revision: int | None = None
    ) -> None:
        require_specification(spec, has_feeds=self._engine.traits.keeps_versions)
        begun: dict[str, tuple[bytes, int]] = {}
        built: dict[str, tuple[bytes, int]] = {}
        ended: set[bytes] = set()

        def step(snapshot: EngineSnapshot, changes: WriteSet) -> TableSchema | None:
            existing = _existing(snapshot, spec)
            if existing is None:
                _add_table(self._engine, snapshot, changes, spec)
                return None
            change = plan_schema_change(existing.spec, spec, taken=existing.taken, revision=revision)
            if change.empty:
                return None
            if change.added_indexes:
                require_whole(snapshot.get(stuck_key(spec.name)), existing)
            unbuilt = [name for name in _unbuilt(existing, change.added_indexes, built) if name in existing.spec]
            # Steps that may fail come first, unseen: a call that raises has changed nothing.
            changed = _with_building(existing, unbuilt) if unbuilt else _changed(existing, change)
            if not unbuilt:
                changed = self._with_feed(snapshot, changes, existing, changed)
                if existing.feed is not None and existing.feed != changed.feed:
                    ended.add(existing.feed.space)
            if changed != existing:
                put_schema(changes, changed)
            return changed

        try:
            while (schema := self._change(step)) is not None:
                if ended:
                    self._garbage.notify()
                unbuilt = [name for name in _unbuilt(schema, spec.indexes, built) if name in schema.building]
                if not unbuilt:
                    return
                begun.update((name, (schema.space, schema.building[name])) for name in unbuilt)
                for name in unbuilt:
                    if not self._build_index(schema, name, progress):
                        break  # another call has changed the table: read it again
                    built[name] = begun[name]
        except StructableError:
            if begun:
                self._give_up_indexes(spec.name, begun)
            raise

    def _with_feed(
        self, snapshot: EngineSnapshot, changes: WriteSet, existing: TableSchema, changed: TableSchema
    ) -> TableSchema:
        """Return the changed table with its feed, which is a new one if the producer has changed."""
        if changed.spec.table_options.changelog_producer is existing.spec.table_options.changelog_producer:
            return changed
        if not existing.spec.has_type and changed.spec.has_type:
            admit_types(self._engine)
        return renew_feed(self._engine, snapshot, changes, changed)

    def exists(self, table: str) -> bool:
        schema = self._schema(table)
        return schema is not None and retired_since(schema.spec.rules) is None

    def get_specification(self, table: str) -> TableSpecification:
        schema = self._schema(table)
        if schema is None:
            raise TableNotFoundError(table)
        return schema.spec

    def list(self) -> builtins.list[str]:
        def names(snapshot: EngineSnapshot) -> builtins.list[str]:
            specs = (schema.spec for schema in list_schemas(snapshot))
            return sorted(spec.name for spec in specs if retired_since(spec.rules) is None)

        return self._look(names)

    def drop(self, table: str) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = named_schema(snapshot, table)
            if schema is not None:
                changes.writes[schema_key(table)] = None
                changes.writes.update({garbage_key(space): b"\x01" for space in schema.spaces})
                changes.writes.update(dict.fromkeys(stream_keys(snapshot, table)))
                changes.changed_spaces.add(schema.space)

        self._change(body)
        self._garbage.notify()

    def drop_index(self, table: str, field: str, *, revision: int | None = None) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = _required(snapshot, table)
            require_index(table, field, schema.maintained, schema.spec.indexes)
            self._remove_index(changes, schema.taking(taken_index(field), revision), field)

        self._change(body)
        self._garbage.notify()

    def set_rules(
        self,
        table: str,
        rules: Iterable[FieldRule],
        *,
        expected: Iterable[FieldRule] | None = None,
        revision: int | None = None,
    ) -> None:
        given, wanted = tuple(rules), None if expected is None else tuple(expected)

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = _required(snapshot, table)
            spec = with_rules(schema.spec, given, wanted)
            retires = retired_since(spec.rules) is not None
            left = schema.taken if retires else {what: one for what, one in schema.taken.items() if what != TAKEN_TABLE}
            changed = replace(schema, spec=spec, taken=left).taking(TAKEN_TABLE, revision if retires else None)
            if changed != schema:
                require_whole(snapshot.get(stuck_key(table)), schema)
                put_schema(changes, changed)

        self._change(body)

    def drop_field(self, table: str, field: str, *, revision: int | None = None) -> None:
        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            schema = _required(snapshot, table)
            spec = without_field(schema.spec, field, schema.building)
            put_schema(changes, schema.without(field, spec).taking(taken_field(field), revision))

        self._change(body)

    def _remove_index(self, changes: WriteSet, schema: TableSchema, field: str) -> TableSchema:
        binding = self._catalog.bind(schema.encode())
        changes.writes[garbage_key(binding.keys.index_begin(schema.maintained[field]))] = b"\x01"
        changed = replace(
            schema,
            spec=schema.spec.evolve(indexes=[name for name in schema.spec.indexes if name != field]),
            indexes={name: number for name, number in schema.indexes.items() if name != field},
            building={name: number for name, number in schema.building.items() if name != field},
        )
        put_schema(changes, changed)
        return changed

    def _build_index(self, schema: TableSchema, name: str, progress: Progress | None) -> bool:
        """Add the rows that existed before the index to it; False if another call has dropped the index."""
        try:
            position: bytes | None = self._catalog.bind(schema.encode()).keys.rows_begin
            limit, done = _BACKFILL_ROWS, 0
            while position is not None:
                position, used, rows = self._backfill(schema, name, position, limit)
                limit, done = min(2 * used, _BACKFILL_ROWS), done + rows
                if progress is not None:
                    progress(done, None)
        except _IndexGoneError:
            return False
        return True

    def _backfill(self, schema: TableSchema, name: str, position: bytes, most: int) -> tuple[bytes | None, int, int]:
        """Add the index entries of some rows from `position` on.

        Returns the position of the next rows, None at the end, the number of rows to add without a conflict, and the
        number of rows that were added.
        """
        attempts = count()

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> tuple[bytes | None, int, int]:
            current = named_schema(snapshot, schema.spec.name)
            if not _is_building(current, schema, name):
                raise _IndexGoneError
            assert current is not None
            binding = self._catalog.bind(current.encode())
            index = next(one for one in binding.maintained if one.field.name == name)
            # The fewer rows, the rarer a conflict with their writers.
            limit = max(1, most >> next(attempts))
            raw_keys: builtins.list[bytes] = []
            for raw_key, raw in islice(snapshot.scan(position, binding.keys.rows_end), limit):
                raw_keys.append(raw_key)
                value = index.indexed_value(raw_key, raw)[0]
                key = zip(binding.spec.key_fields, binding.key_of(raw_key), strict=True)
                key_size = sum(value_size(field, part) for field, part in key)
                check_index_sizes(binding.write_spec, key_size, {name: value_size(index.field, value)})
                changes.derived[index.entry(value, raw_key)] = INDEX_MARK
            # A row that changes concurrently must be read again.
            changes.reads = ReadSet(keys=set(raw_keys))
            changes.spaces.add(schema.space)
            return raw_keys[-1] + b"\0" if len(raw_keys) == limit else None, limit, len(raw_keys)

        return self._change(body)

    def _give_up_indexes(self, table: str, begun: Mapping[str, tuple[bytes, int]]) -> None:
        """Remove the indexes that are still under construction."""

        def body(snapshot: EngineSnapshot, changes: WriteSet) -> None:
            current = named_schema(snapshot, table)
            for name, number in begun.items():
                if current is not None and (current.space, current.building.get(name)) == number:
                    current = self._remove_index(changes, current, name)

        self._change(body)
        self._garbage.notify()

    def _schema(self, table: str) -> TableSchema | None:
        return self._look(lambda snapshot: named_schema(snapshot, table))

    def _look(self, look: Callable[[EngineSnapshot], Result]) -> Result:
        return self._change(lambda snapshot, _: look(snapshot))

    def _change(self, body: Callable[[EngineSnapshot, WriteSet], Result]) -> Result:
        """Run a transaction on the catalog until it commits, for `ddl_timeout` seconds."""
        end = time.monotonic() + self._ddl_timeout
        for attempt in count():
            try:
                return catalog_change(self._engine, body)
            except (TransactionConflictError, SchemaChangedError) as conflict:
                if time.monotonic() > end:
                    raise StorageUnavailableError(
                        f"the admin call was overtaken {attempt + 1} times in {self._ddl_timeout:g} s (ddl_timeout), "
                        f"the last time because {conflict}"
                    ) from conflict
            time.sleep(_PAUSE)
        raise AssertionError("unreachable: the count is endless")


def _required(snapshot: EngineSnapshot, table: str) -> TableSchema:
    schema = named_schema(snapshot, table)
    if schema is None:
        raise TableNotFoundError(table)
    return schema


def _existing(snapshot: EngineSnapshot, spec: TableSpecification) -> TableSchema | None:
    schema = read_schema(snapshot, spec.name)
    if schema is not None:
        require_same_case(spec.name, schema.spec.name)
    return schema


def _add_table(engine: Upkeep, snapshot: EngineSnapshot, changes: WriteSet, spec: TableSpecification) -> None:
    require_fillable(spec)
    if spec.has_type:
        admit_types(engine)
    space = allocate_space(engine, snapshot, changes.writes)
    indexes = {name: number for number, name in enumerate(spec.indexes)}
    feed = begin_feed(engine, snapshot, changes, spec)
    put_schema(changes, TableSchema(spec, space, 0, {0: spec.value_fields}, indexes, {}, len(indexes), space, feed))


def _unbuilt(schema: TableSchema, names: Iterable[str], built: Mapping[str, tuple[bytes, int]]) -> builtins.list[str]:
    """Return the indexes among `names` that scans may not use yet, without those that this call has filled."""
    missing = (name for name in names if name not in schema.indexes)
    return [name for name in missing if built.get(name) != (schema.space, schema.building.get(name))]


def _is_building(current: TableSchema | None, schema: TableSchema, name: str) -> bool:
    """Return whether an index is still the one that `schema` has under construction."""
    return current is not None and (current.space, current.building.get(name)) == (schema.space, schema.building[name])


def _with_building(schema: TableSchema, names: Iterable[str]) -> TableSchema:
    """Return the table with new indexes under construction, which scans do not see."""
    building, following = dict(schema.building), schema.next_index
    for name in names:
        if name not in building:
            building[name] = following
            following += 1
    return replace(schema, building=building, next_index=following)


def _changed(schema: TableSchema, change: SchemaChange) -> TableSchema:
    """Return the table with its new fields and types; its new indexes are open, except indexes of new fields."""
    version, layouts = schema.version, schema.layouts
    if change.added_fields or change.widened_fields:
        widened = {field.name: field for field in change.widened_fields}
        fields = tuple(widened.get(field.name, field) for field in schema.value_fields) + change.added_fields
        version += 1
        layouts = {**layouts, version: fields}
    opened = {name: schema.building[name] for name in change.added_indexes if name in schema.spec}
    indexes = {**schema.indexes, **opened}
    changed = replace(
        schema,
        spec=change.after.evolve(indexes=[name for name in change.after.indexes if name in indexes]),
        version=version,
        layouts=layouts,
        indexes=indexes,
        building={name: number for name, number in schema.building.items() if name not in opened},
        taken=change.taken,
    )
    return _with_building(changed, [name for name in change.added_indexes if name not in schema.spec])
