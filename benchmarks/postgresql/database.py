"""The database of a comparison: a schema with a handwritten table and one with structable's, with the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow as pa

from benchmarks.rows import TABLE, Row, batches, make_rows, specification
from structable.spi import Storage, connect
from structable.spi.arrow import arrow_schema
from tests.postgresql.support.binaries import find_binaries
from tests.postgresql.support.server import Server
from tests.postgresql.support.shared import URL_VARIABLE, Schema, fresh_schema

AREA = "postgresql"
COLUMNS = specification().field_names
KEY = specification().primary_key
_BATCH = 10_000

Connection = psycopg.Connection[tuple[Any, ...]]

_TABLE = """
CREATE TABLE {name} (
    host text COLLATE "C" NOT NULL, started bigint NOT NULL, status text COLLATE "C", path text COLLATE "C",
    bytes bigint, attempts integer, cost double precision, done boolean, PRIMARY KEY (host, started)
)
"""

UPSERT = "ON CONFLICT (host, started) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in COLUMNS if name not in KEY
)
"""The end of an INSERT that replaces existing rows."""


def values(row: Row) -> tuple[object, ...]:
    """Return a row in the form for psycopg."""
    return tuple(row.values())


def arrow_batches(rows: Iterable[Row]) -> list[pa.RecordBatch]:
    """Return rows as batches of 10,000."""
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(specification())).to_batches(max_chunksize=_BATCH)


@dataclass(frozen=True, slots=True)
class Database:
    """The schemas of the floors' tables and of structable's."""

    raw: Schema
    ours: Schema
    pid: int | None  # of the server's first process, if it was started for the benchmark

    @contextmanager
    def on_separate_cores(self) -> Iterator[None]:
        """Keep this process on one core, and the servers of connections that it opens meanwhile on the others.

        Otherwise the scheduler sometimes moves both sides of a connection to one core, and sometimes apart. On one core
        a round trip takes a fifth of the time between two cores, which is the case whenever the server is another
        machine.
        """
        cores = os.sched_getaffinity(0)
        if self.pid is None or len(cores) < 2:
            yield
            return
        mine = {min(cores)}
        os.sched_setaffinity(self.pid, cores - mine)
        os.sched_setaffinity(0, mine)
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)
            os.sched_setaffinity(self.pid, cores)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Connect the floor: in auto-commit mode, as it sends BEGIN and COMMIT itself."""
        options = f"-c search_path={self.raw.name}"
        with psycopg.connect(self.raw.conninfo, autocommit=True, options=options) as connection:
            yield connection

    @contextmanager
    def storage(self) -> Iterator[Storage]:
        """Connect structable."""
        with connect(self.ours.url) as storage:
            yield storage

    def make(self, count: int) -> None:
        """Recreate both tables, with `count` of the benchmarks' rows, and vacuum them."""
        with self.storage() as storage, self.connection() as raw:
            self.empty_raw(raw)
            self.empty_ours(storage)
            if count:
                with raw.cursor().copy(f"COPY {TABLE} FROM STDIN".encode()) as copy:
                    for row in make_rows(count):
                        copy.write_row(values(row))
                for batch in batches(make_rows(count)):
                    storage.table(TABLE).upsert_many(batch)
            for schema in (self.raw, self.ours):
                self.vacuum(raw, schema)

    def empty_raw(self, raw: Connection) -> None:
        """Recreate the floor's table, empty."""
        raw.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        raw.execute(_TABLE.format(name=TABLE).encode())

    def empty_ours(self, storage: Storage) -> None:
        """Recreate structable's table, empty."""
        storage.admin.drop(TABLE)
        storage.admin.create(specification())

    def vacuum(self, raw: Connection, schema: Schema) -> None:
        """Vacuum all tables of a schema, and gather statistics."""
        found = raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema.name]).fetchall()
        for (name,) in found:
            with suppress(psycopg.errors.UndefinedTable):  # that of an ended feed, which goes in the background
                raw.execute(f'VACUUM (ANALYZE) "{schema.name}"."{name}"'.encode())


def available() -> bool:
    """Return whether there is a server, or one can be started."""
    return bool(os.environ.get(URL_VARIABLE)) or find_binaries() is not None


@contextmanager
def database() -> Iterator[Database]:
    """Yield a database; afterwards its schemas, and a server started for it, are gone."""
    with ExitStack() as stack:
        given = os.environ.get(URL_VARIABLE)
        server = None if given else stack.enter_context(Server.create(fsync=True))
        conninfo = given if server is None else server.conninfo
        assert conninfo is not None
        raw = stack.enter_context(fresh_schema(conninfo))
        ours = stack.enter_context(fresh_schema(conninfo))
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {raw.name}".encode())
        yield Database(raw, ours, None if server is None else server.pid)


def jdbc_options(database: Database) -> dict[str, str]:
    """Return the options of Spark's JDBC source for the floor's table."""
    at = urlsplit(database.raw.conninfo)
    return {
        "url": f"jdbc:postgresql://{at.hostname}:{at.port or 5432}{at.path}?currentSchema={database.raw.name}",
        "user": unquote(at.username or ""),
        "password": unquote(at.password or ""),
        "driver": "org.postgresql.Driver",
        "dbtable": TABLE,
    }
