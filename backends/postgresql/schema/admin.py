"""`PostgreSQLAdmin`: creation, change and removal of tables; each takes effect at once and as a whole."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from structable.backends.base.admin_rules import (
    require_fillable,
    require_index,
    require_same_case,
    require_specification,
)
from structable.backends.postgresql.driver.errors import (
    DUPLICATE_OBJECT,
    DUPLICATE_TABLE,
    TOO_MANY_COLUMNS,
    StatementRefusedError,
    translating,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import TEXT, Ask, Call, Statement, command
from structable.backends.postgresql.feeds.feed_objects import feed_end
from structable.backends.postgresql.sql.binding import TableVersion
from structable.backends.postgresql.sql.names import CATALOG, qualified, token_name
from structable.spi import (
    DataCorruptionError,
    FieldRule,
    InvalidSpecificationError,
    Progress,
    TableAdmin,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
)
from structable.spi.authors import (
    TAKEN_TABLE,
    SchemaChange,
    plan_schema_change,
    retired_since,
    taken_field,
    taken_index,
    with_rules,
    without_field,
)

from .alter_table import begin_signals, change_rules, change_table, remove_field, remove_index, token_definition
from .catalog import Catalog, encode_specification, format_for, is_name
from .ddl_lock import AdminWork, TableLock, alone
from .feed_changes import changes_producer, define_feed, new_feed
from .feed_sweep import FeedSweeper
from .indexes import index_definition
from .inspection import inspect

Result = TypeVar("Result")


class PostgreSQLAdmin(TableAdmin):
    """The tables of a schema; a change waits `ddl_timeout` seconds for open transactions."""

    def __init__(self, pool: ServerPool, catalog: Catalog, ddl_timeout: float) -> None:
        self._pool = pool
        self._catalog = catalog
        self._ddl_timeout = ddl_timeout
        self._table = qualified(catalog.schema, CATALOG)
        self._feeds = FeedSweeper(pool, catalog.schema)

    def stop(self) -> None:
        """Stop the work in the background."""
        self._feeds.stop()

    def create(self, spec: TableSpecification) -> None:
        require_specification(spec, has_feeds=True)
        with self._alone(spec.name) as work:
            if self._existing(work.ask, spec) is not None:
                raise TableAlreadyExistsError(spec.name)
            self._create(work, spec)

    def _existing(self, ask: Ask, spec: TableSpecification) -> TableVersion | None:
        found = self._catalog.find(ask, spec.name, any_case=True)
        if found is not None:
            require_same_case(spec.name, found.spec.name)
        return found

    def _create(self, work: AdminWork, spec: TableSpecification) -> None:
        require_fillable(spec)
        try:
            work.change(lambda: self._make(work, spec))
        except StatementRefusedError as error:
            if error.state in _THERE_ALREADY:
                raise DataCorruptionError(
                    f"the schema {self._catalog.schema!r} holds something named {spec.name!r} that is not in "
                    f"structable's catalog {CATALOG}: {error.message}"
                ) from error
            if error.state == TOO_MANY_COLUMNS:
                raise InvalidSpecificationError(
                    f"table {spec.name!r} has {len(spec.fields):,} fields: {error.message} on PostgreSQL"
                ) from error
            raise

    def _make(self, work: AdminWork, spec: TableSpecification) -> None:
        from .table_definition import table_definition  # only creation needs SQLAlchemy

        feed = new_feed(work.connection, self._catalog.schema, spec)
        # A log is made to be listened to, so that its first listener need not change the table under open transactions.
        new = TableVersion(0, 1, spec, feed=feed, signals=spec.table_options.log)
        specification, building = encode_specification(new)
        insert = Statement(
            f"insert into {self._table} (name, folded, version, specification, building) "
            'values ($1, lower($1 collate "C"), 1, $2, $3) returning id',
            (TEXT, TEXT, TEXT),
        )
        made = work.ask(Call(insert, (spec.name.encode(), specification.encode(), building.encode())))
        table = replace(new, id=int(str(made[0][0])))
        schema = self._catalog.schema
        work.connection.pipeline(
            [
                command(table_definition(schema, table)),
                command(token_definition(schema, table)),
                *format_for(schema, spec),
                *(
                    command(index_definition(schema, spec.name, table.id, field, table.stored_key))
                    for field in spec.indexes
                ),
                *define_feed(schema, table),
            ]
        )

    def create_or_update(
        self, spec: TableSpecification, *, progress: Progress | None = None, revision: int | None = None
    ) -> None:
        require_specification(spec, has_feeds=True)
        # An older program has nothing to change, and must not wait while a newer one changes the table.
        found = self._read(lambda ask: self._existing(ask, spec))
        if found is not None and _planned(found, spec, revision).empty:
            return
        with self._alone(spec.name) as work:
            found = self._existing(work.ask, spec)
            if found is None:
                self._create(work, spec)
                return
            change = _planned(found, spec, revision)
            if not change.empty:
                change_table(work, self._catalog.schema, found, change, progress)
                if found.feed is not None and changes_producer(change):
                    self._feeds.notify()

    def exists(self, table: str) -> bool:
        found = self._read(lambda ask: self._catalog.find(ask, table))
        return found is not None and retired_since(found.spec.rules) is None

    def get_specification(self, table: str) -> TableSpecification:
        found = self._read(lambda ask: self._catalog.find(ask, table))
        if found is None:
            raise TableNotFoundError(table)
        return found.spec

    def list(self) -> builtins.list[str]:
        return self._read(self._catalog.names)

    def drop(self, table: str) -> None:
        if not is_name(table):
            return
        with self._alone(table) as work:
            found = self._catalog.find(work.ask, table)
            if found is None:
                return
            schema = self._catalog.schema
            there = inspect(work.ask, schema, found).exists
            name = qualified(schema, table)
            token = qualified(schema, token_name(found.id, found.version))
            delete = Statement(f"delete from {self._table} where name = $1", (TEXT,))
            calls = [
                *([command(f"drop table {name}")] if there else []),
                command(f"drop function if exists {token}()"),
                Call(delete, (table.encode(),)),
                *map(
                    command, [] if found.feed is None else feed_end(schema, found.spec, found.feed, keeps_table=False)
                ),
            ]
            lock = TableLock(name, "access exclusive") if there else None
            work.change(lambda: work.connection.pipeline(calls), lock=lock)
            if found.feed is not None:
                self._feeds.notify()

    def drop_index(self, table: str, field: str, *, revision: int | None = None) -> None:
        with self._changing(table) as (work, found):
            require_index(table, field, (*found.spec.indexes, *found.building), found.spec.indexes)
            remove_index(work, self._catalog.schema, _taking(found, taken_index(field), revision), field)

    def set_rules(
        self,
        table: str,
        rules: Iterable[FieldRule],
        *,
        expected: Iterable[FieldRule] | None = None,
        revision: int | None = None,
    ) -> None:
        given, wanted = tuple(rules), None if expected is None else tuple(expected)
        with self._changing(table) as (work, found):
            spec = with_rules(found.spec, given, wanted)
            retires = retired_since(spec.rules) is not None
            left = found.taken if retires else {what: one for what, one in found.taken.items() if what != TAKEN_TABLE}
            changed = _taking(replace(found, taken=left), TAKEN_TABLE, revision if retires else None)
            if (spec, changed.taken) != (found.spec, found.taken):
                change_rules(work, self._catalog.schema, changed, spec)

    def drop_field(self, table: str, field: str, *, revision: int | None = None) -> None:
        with self._changing(table) as (work, found):
            spec = without_field(found.spec, field, found.building)
            changed = _taking(found, taken_field(field), revision)
            remove_field(work, self._catalog.schema, changed, spec, found.spec.field(field))

    def signal(self, table: str) -> None:
        """Make commits to a table with a feed signal from now on, in every process."""
        found = self._read(lambda ask: self._catalog.find(ask, table))
        if found is None or found.feed is None or found.signals:
            return
        with self._changing(table) as (work, current):
            if current.feed is not None and not current.signals:
                begin_signals(work, self._catalog.schema, current)

    def _read(self, body: Callable[[Ask], Result]) -> Result:
        with self._pool.connection() as connection, translating("reading the catalog"):
            return body(connection.ask)

    @contextmanager
    def _changing(self, table: str) -> Iterator[tuple[AdminWork, TableVersion]]:
        """Work on a table that must exist."""
        if not is_name(table):
            raise TableNotFoundError(table)
        with self._alone(table) as work:
            found = self._catalog.find(work.ask, table)
            if found is None:
                raise TableNotFoundError(table)
            yield work, found

    @contextmanager
    def _alone(self, table: str) -> Iterator[AdminWork]:
        self._catalog.forget(table)
        try:
            with alone(self._pool, self._catalog.schema, table, self._ddl_timeout) as work:
                yield work
        finally:
            self._catalog.forget(table)


def _planned(found: TableVersion, spec: TableSpecification, revision: int | None) -> SchemaChange:
    return plan_schema_change(found.spec, spec, taken=found.taken, revision=revision)


def _taking(table: TableVersion, what: str, revision: int | None) -> TableVersion:
    """Return a table whose record lists something that a revision removed."""
    return table if revision is None else replace(table, taken={**table.taken, what: revision})


_THERE_ALREADY = (DUPLICATE_TABLE, DUPLICATE_OBJECT)
