"""PostgreSQL by hand: one connection a client, with prepared statements, at the isolation of structable's default."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure

from tests.postgresql.support.shared import Schema

Result = TypeVar("Result")

_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class PostgresqlPlace:
    """A schema of a database.

    Parameters
    ----------
    conninfo : str
        The database, as libpq's URL.
    schema : str
        The schema; it exists.
    """

    conninfo: str
    schema: str

    def connect(self) -> PostgresqlClient:
        """Connect."""
        options = f"-c search_path={self.schema}"
        return PostgresqlClient(psycopg.connect(self.conninfo, autocommit=True, options=options))

    def vacuum(self) -> None:
        """Vacuum all tables of the schema, and gather statistics."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [self.schema])
            for (name,) in found.fetchall():
                connection.execute(f'VACUUM (ANALYZE) "{self.schema}"."{name}"'.encode())


def fresh_place(schema: Schema) -> PostgresqlPlace:
    """Create a schema, and return it as a place."""
    with psycopg.connect(schema.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema.name}".encode())
    return PostgresqlPlace(schema.conninfo, schema.name)


class PostgresqlClient:
    """A connection that prepares every statement at its first use.

    Parameters
    ----------
    connection : psycopg.Connection
        In auto-commit mode: transactions begin and commit by statements.
    """

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        connection.prepared_max = None

    def execute(self, statement: bytes, *values: object) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute one statement, in one round trip."""
        return self._cursor.execute(statement, values, prepare=True)

    def run(self, body: Callable[[], Result], *, read_only: bool = False) -> Result:
        """Run a transaction, again after a conflict."""
        execute = self._cursor.execute
        begin = b"BEGIN ISOLATION LEVEL REPEATABLE READ" + (b" READ ONLY" if read_only else b"")
        attempt = 0
        while True:
            attempt += 1
            try:
                execute(begin)
                found = body()
                execute(b"COMMIT")
                return found
            except (SerializationFailure, DeadlockDetected):
                execute(b"ROLLBACK")
                time.sleep(random.uniform(0.0, _PAUSE * 2 ** min(attempt, 7)))
            except BaseException:
                with suppress(psycopg.OperationalError):
                    execute(b"ROLLBACK")
                raise

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
