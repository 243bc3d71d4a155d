"""PostgreSQL's tables, and psycopg with prepared statements on tables of the same rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database
from benchmarks.workloads.postgresql import PostgresqlPlace
from benchmarks.workloads.programs import Action
from structable.spi import connect
from tests.postgresql.support.shared import Schema, fresh_schema

from .contest import Place, Store, compete
from .programs import GrowthProgram, SpiProgram
from .tables import ALIKE, load, rows_of

_FLOORS = {
    "read": "psycopg select",
    "update": "psycopg update",
    "read_and_write": "psycopg select and update",
    "scan": "psycopg select of the range",
    "look_up": "psycopg select by the index",
    "multi_read": "psycopg select of an array",
    "commit": "psycopg upsert of arrays",
}
_TABLE = """
    CREATE TABLE grown (id bigint PRIMARY KEY, text text COLLATE "C", "group" bigint, number bigint);
    CREATE INDEX ON grown ("group", id);
"""


def measure_postgresql(_folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure PostgreSQL, if there is a server."""
    if not available():
        print("PostgreSQL's growth is not measured: there is no server", file=sys.stderr)
        return
    most = scale.rows * 50
    sizes = (max(most // 1_000, 1_000), most // 10, most)
    with database() as found, found.on_separate_cores():
        place = partial(_place, found.raw.conninfo)
        yield from compete(Store("PostgreSQL", _FLOORS, place, sizes, {}), scale)


@contextmanager
def _place(conninfo: str, rows: int) -> Iterator[Place]:
    with fresh_schema(conninfo) as ours, fresh_schema(conninfo) as floor:
        with connect(ours.url) as storage:
            load(storage, rows)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {floor.name}; SET search_path = {floor.name}; {_TABLE}".encode())
            with connection.cursor().copy(b"COPY grown FROM STDIN") as copy:
                for row in rows_of(rows):
                    copy.write_row(row)
        hand = PostgresqlPlace(conninfo, floor.name)
        for place in (hand, PostgresqlPlace(conninfo, ours.name)):
            place.vacuum()
        yield Place(partial(SpiProgram, rows, ours.url), partial(PsycopgProgram, rows, hand), _bytes(conninfo, ours))


def _bytes(conninfo: str, schema: Schema) -> int:
    statement = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relkind = 'r' AND relnamespace = %s"
    with psycopg.connect(conninfo) as connection:
        [(namespace,)] = connection.execute("SELECT %s::regnamespace::oid", [schema.name]).fetchall()
        [(size,)] = connection.execute(statement.encode(), [namespace]).fetchall()
    return int(size)


class PsycopgProgram(GrowthProgram):
    """The operations by hand."""

    def __init__(self, rows: int, place: PostgresqlPlace, *, client: int, clients: int) -> None:
        super().__init__(rows)
        self._client = place.connect()

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in _FLOORS}

    def read(self, key: int) -> int:
        return len(self._client.execute(b"SELECT * FROM grown WHERE id = %s", key).fetchall())

    def update(self, key: int) -> int:
        return self._client.execute(b"UPDATE grown SET number = %s WHERE id = %s", key + 1, key).rowcount

    def read_and_write(self, key: int) -> int:
        return self._client.run(lambda: self.read(key) and self.update(key))

    def scan(self, key: int) -> int:
        statement = b"SELECT * FROM grown WHERE id >= %s ORDER BY id LIMIT %s"
        return len(self._client.execute(statement, key, ALIKE).fetchall())

    def look_up(self, group: int) -> int:
        statement = b'SELECT * FROM grown WHERE "group" = %s ORDER BY id'
        return len(self._client.execute(statement, group).fetchall())

    def multi_read(self, keys: Sequence[int]) -> int:
        return len(self._client.execute(b"SELECT * FROM grown WHERE id = ANY(%s)", keys).fetchall())

    def commit(self, keys: Sequence[int]) -> int:
        statement = b"""
            INSERT INTO grown (id, number) SELECT * FROM unnest(%s::bigint[], %s::bigint[])
            ON CONFLICT (id) DO UPDATE SET number = excluded.number
        """
        return self._client.execute(statement, keys, [-key for key in keys]).rowcount

    def close(self) -> None:
        self._client.close()
