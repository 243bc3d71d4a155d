"""The order entry by hand against PostgreSQL, with one statement a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from benchmarks.workloads.postgresql import PostgresqlClient, PostgresqlPlace

from .by_rows import OrdersByRows, SqlRow
from .model import ROWS, Size, State
from .sql_tables import POSTGRESQL, definitions, select_all

Result = TypeVar("Result")


class PsycopgOrders(OrdersByRows):
    """A client of a PostgreSQL database."""

    def __init__(self, place: PostgresqlPlace, size: Size, *, client: int, clients: int = 1) -> None:
        super().__init__(size, client=client)
        self._database = place.connect()

    def load(self) -> None:
        load_tables(self._database, self.first_state())

    def state(self) -> State:
        return read_state(self._database)

    def write(self, statement: str, *values: object) -> None:
        self._database.execute(_prepared(statement), *values)

    def select(self, statement: str, *values: object) -> list[SqlRow]:
        return self._database.execute(_prepared(statement), *values).fetchall()

    def run(self, body: Callable[[], Result], *, read_only: bool = False) -> Result:
        return self._database.run(body, read_only=read_only)

    def close(self) -> None:
        self._database.close()


@lru_cache
def _prepared(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def load_tables(database: PostgresqlClient, state: State) -> None:
    """Create the tables with their first rows."""
    for definition in definitions(POSTGRESQL):
        database.connection.execute(definition.encode())
    for name in ROWS:
        with database.connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for row in getattr(state, name):
                copy.write_row(row)


def read_state(database: PostgresqlClient) -> State:
    """Return all rows."""
    return database.run(
        lambda: State.of({name: database.execute(select_all(name).encode()).fetchall() for name in ROWS}),
        read_only=True,
    )
