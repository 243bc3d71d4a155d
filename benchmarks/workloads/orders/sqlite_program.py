"""The order entry by hand against SQLite, whose module keeps statements prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from benchmarks.workloads.sqlite import SqlitePlace

from .by_rows import OrdersByRows, SqlRow
from .model import ROWS, Size, State
from .sql_tables import SQLITE, definitions, select_all

Result = TypeVar("Result")


class SqliteOrders(OrdersByRows):
    """A client of a SQLite database."""

    def __init__(self, place: SqlitePlace, size: Size, *, client: int, clients: int = 1) -> None:
        super().__init__(size, client=client)
        self._database = place.connect()
        self._execute = self._database.execute

    def load(self) -> None:
        state = self.first_state()
        for definition in definitions(SQLITE, "WITHOUT ROWID"):
            self._execute(definition)
        self._execute("BEGIN IMMEDIATE")
        for name in ROWS:
            places = ", ".join("?" * len(ROWS[name]._fields))
            self._database.executemany(f"INSERT INTO {name} VALUES ({places})", getattr(state, name))
        self._execute("COMMIT")
        self._execute("ANALYZE")

    def state(self) -> State:
        self._execute("BEGIN")
        found = {name: self._execute(select_all(name)).fetchall() for name in ROWS}
        self._execute("COMMIT")
        return State.of(found)

    def write(self, statement: str, *values: object) -> None:
        self._execute(statement, values)

    def select(self, statement: str, *values: object) -> list[SqlRow]:
        return self._execute(statement, values).fetchall()

    def run(self, body: Callable[[], Result], *, read_only: bool = False) -> Result:
        # A writer waits for its turn at the beginning, and then meets no conflict.
        self._execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
        try:
            found = body()
            self._execute("COMMIT")
            return found
        except BaseException:
            self._execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._database.close()
