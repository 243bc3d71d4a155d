"""The catalog of tables, in the table `_structable_tables`, and the cache of their bindings."""

from __future__ import annotations

import json
import logging
from typing import TypeGuard

from structable.backends.base.admin_rules import require_unretired
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import TEXT, Ask, Call, Statement, Values, command
from structable.backends.postgresql.feeds.layout import has_feed
from structable.backends.postgresql.sql.binding import TableBinding, TableVersion
from structable.backends.postgresql.sql.names import CATALOG, FORMAT, JOBS, literal, qualified, quoted
from structable.spi import (
    DataCorruptionError,
    StoreNotFoundError,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    specification_to_document,
)
from structable.spi.authors import retired_since
from structable.spi.text import specification_from_catalog

_log = logging.getLogger("structable.postgresql")

FORMAT_VERSION = 1
"""The format of a new schema."""
TYPES_VERSION = 2
"""The format of a schema with a table whose options have effects: older software would ignore them."""
_FEED = "feed"
_TAKEN = "taken"
_SIGNALS = "signals"
_DROPPED = "dropped"
# A restored dump has transaction numbers of another server: a number in this server's future is ignored.
_COLUMNS = (
    "id, version, specification, building, "
    "case when pg_visible_in_snapshot(changed_by, pg_current_snapshot()) then changed_by::text else '0' end"
)


def encode_specification(table: TableVersion) -> tuple[str, str]:
    """Return the record of a table as JSON: its specification, and unfinished indexes.

    The specification includes the number of its feed, whether the feed is signalled, the removals of revisions, and
    the names of dropped fields.

    Software that does not know feeds rejects the specification.
    """
    document = specification_to_document(table.spec)
    if table.feed is not None:
        document[_FEED] = table.feed
    if table.taken:
        document[_TAKEN] = dict(table.taken)
    if table.signals:
        document[_SIGNALS] = True
    if table.dropped:
        document[_DROPPED] = dict(table.dropped)
    return json.dumps(document), json.dumps(list(table.building))


def decode_version(number: str, version: str, specification: str, building: str, changed_by: str) -> TableVersion:
    """Return the version of a table with this record; any error of decoding is raised."""
    document = json.loads(specification)
    feed, taken = document.pop(_FEED, None), document.pop(_TAKEN, {})
    signals, dropped = document.pop(_SIGNALS, False), document.pop(_DROPPED, {})
    spec = specification_from_catalog(document)
    if has_feed(spec) is not isinstance(feed, int):
        raise ValueError(f"{feed!r} is not the number of its change feed")
    unfinished = tuple(json.loads(building))
    return TableVersion(int(number), int(version), spec, unfinished, int(changed_by), feed, taken, signals, dropped)


def is_name(name: object) -> TypeGuard[str]:
    """Return whether a name can be sent to the server."""
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class Catalog:
    """The tables of one schema.

    Bindings are cached: the server rejects a statement for a version that is gone.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._tables: dict[str, TableBinding] = {}
        where = qualified(schema, CATALOG)
        self._by_name = Statement(f"select {_COLUMNS} from {where} where name = $1", (TEXT,))
        self._by_folded_name = Statement(
            f'select {_COLUMNS} from {where} where folded = lower($1 collate "C")', (TEXT,)
        )
        # A quote inside a text is escaped in JSON, so this matches only the kind of a rule.
        in_use = 'position(\'"kind": "retired"\' in specification) = 0'
        self._names = Statement(f'select name from {where} where {in_use} order by name collate "C"')

    def known(self, name: str) -> TableBinding | None:
        return self._tables.get(name)

    def forget(self, name: str) -> None:
        """Read a table again at its next use."""
        self._tables.pop(name, None)

    def lookup(self, ask: Ask, name: str) -> TableBinding:
        """Return the table of exactly this name as recorded in the catalog.

        Raises `TableNotFoundError` if there is none, or it is retired.
        """
        found = self.find(ask, name)
        if found is None or retired_since(found.spec.rules) is not None:
            self.forget(name)
        if found is None:
            raise TableNotFoundError(name)
        require_unretired(found.spec)
        before = self._tables.get(name)
        if before is not None and before.version == found:
            return before
        binding = TableBinding(self.schema, found)
        self._tables[name] = binding
        return binding

    def find(self, ask: Ask, name: object, *, any_case: bool = False) -> TableVersion | None:
        """Return the record of a table; `any_case` ignores the case of the name."""
        if not is_name(name):
            return None
        rows = ask(Call(self._by_folded_name if any_case else self._by_name, (name.encode(),)))
        return self._version(rows[0]) if rows else None

    def names(self, ask: Ask) -> list[str]:
        """Return the names of all tables that are not retired."""
        return [str(row[0]) for row in ask(Call(self._names))]

    def _version(self, row: Values) -> TableVersion:
        try:
            return decode_version(*map(str, row))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StructableError) as error:
            shown = f"{row!r:.1000}"
            raise DataCorruptionError(f"the catalog {self.schema}.{CATALOG} holds {shown}: {error}") from error


def prepare(connection: ServerConnection, schema: str, *, create: bool) -> None:
    """Create the schema and the catalog if they are missing; several processes may do so at once.

    Raises `StoreNotFoundError` if they are missing and `create` is false, `DataCorruptionError` if a newer structable
    made them.
    """
    for attempt in (1, 2):
        there = command(f"select to_regclass({literal(qualified(schema, FORMAT))}) is not null")
        if connection.ask(there)[0][0]:
            found = connection.ask(command(f"select max(version) from {qualified(schema, FORMAT)}"))[0][0]
            if found in (FORMAT_VERSION, TYPES_VERSION):
                return
            if found is not None:
                raise DataCorruptionError(
                    f"the schema {schema!r} has the format {found}, and this structable knows formats up to "
                    f"{TYPES_VERSION}: a newer one made it"
                )
        if not create:
            raise StoreNotFoundError(
                f"the database has no schema {schema!r} with structable's tables; connect without create=False or "
                "read_only=True to make it"
            )
        if attempt == 1:
            _create(connection, schema)
    raise DataCorruptionError(f"the schema {schema!r} has a table {FORMAT} without a version")


def format_for(schema: str, spec: TableSpecification) -> list[Call]:
    """Return the calls that raise the schema's format to the one a table needs, in the transaction that records it."""
    if not spec.has_type:
        return []
    return [
        command(f"update {qualified(schema, FORMAT)} set version = {TYPES_VERSION} where version < {TYPES_VERSION}")
    ]


def _create(connection: ServerConnection, schema: str) -> None:
    has_schema = command(f"select to_regnamespace({literal(quoted(schema))}) is not null")
    try:
        lock = f"select pg_advisory_xact_lock(hashtextextended({literal('structable ' + schema)}, 0))"
        there = connection.rows(connection.pipeline((command("begin"), command(lock), has_schema))[-1])[0][0]
        statements = [] if there else [f"create schema if not exists {quoted(schema)}"]
        statements += [
            f"create table if not exists {qualified(schema, CATALOG)} ("
            'name text collate "C" primary key, folded text collate "C" not null unique, '
            "id bigint generated always as identity unique, version bigint not null, specification text not null, "
            "building text not null, changed_by xid8 not null default pg_current_xact_id())",
            f"create table if not exists {qualified(schema, JOBS)} ("
            'job_id text collate "C" primary key, table_name text not null, mode text not null, state text not null, '
            "changed timestamptz not null default now(), table_id bigint)",
            f"create table if not exists {qualified(schema, FORMAT)} (version integer not null)",
            f"insert into {qualified(schema, FORMAT)} select {FORMAT_VERSION} "
            f"where not exists (select from {qualified(schema, FORMAT)})",
            "commit",
        ]
        connection.pipeline(command(statement) for statement in statements)
        _log.info("created structable's tables in the schema %r", schema)
    finally:
        connection.roll_back()


def make_late(connection: ServerConnection, schema: str, what: str, *statements: str) -> None:
    """Run statements that make a table or a column of structable's own; several processes may do so at once.

    The connection is in no transaction. Raises `StatementRefusedError` if the server refuses, as without a privilege.
    """
    lock = f"select pg_advisory_xact_lock(hashtextextended({literal('structable ' + schema)}, 0))"
    try:
        connection.pipeline(map(command, ("begin", lock, *statements, "commit")))
        _log.info("made %s in the schema %r", what, schema)
    finally:
        connection.roll_back()
