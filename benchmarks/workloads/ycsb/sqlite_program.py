"""YCSB by hand against SQLite, whose module keeps statements prepared."""

from __future__ import annotations

from benchmarks.workloads.sqlite import SqlitePlace

from .records import FIELDS, KEY, TABLE, RecordProgram, Shape

_COLUMNS = ", ".join((KEY, *FIELDS))
_SELECT = f"SELECT {_COLUMNS} FROM {TABLE} WHERE {KEY} = ?"
_SCAN = f"SELECT {_COLUMNS} FROM {TABLE} WHERE {KEY} >= ? ORDER BY {KEY} LIMIT ?"
_INSERT = f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
_UPDATES = {field: f"UPDATE {TABLE} SET {field} = ? WHERE {KEY} = ?" for field in FIELDS}
# With row ids: without them, pages of four such rows make every operation up to twice as slow.
_CREATE = f"CREATE TABLE {TABLE} ({KEY} TEXT PRIMARY KEY, {', '.join(f'{field} TEXT' for field in FIELDS)})"


class SqliteRecords(RecordProgram):
    """A client of a SQLite database."""

    def __init__(self, place: SqlitePlace, shape: Shape, *, client: int, clients: int) -> None:
        super().__init__(shape, client=client, clients=clients)
        self._database = place.connect()
        self._execute = self._database.execute

    def load(self) -> None:
        self._execute(_CREATE)
        self._execute("BEGIN IMMEDIATE")
        self._database.executemany(_INSERT, self.shape.rows())
        self._execute("COMMIT")

    def read(self, key: str) -> int:
        row = self._execute(_SELECT, (key,)).fetchone()
        return int(row is not None and row[10] is not None)

    def update(self, key: str, field: str, value: str) -> int:
        return self._execute(_UPDATES[field], (value, key)).rowcount

    def insert(self, row: tuple[str, ...]) -> int:
        return self._execute(_INSERT, row).rowcount

    def scan(self, key: str, limit: int) -> int:
        rows = self._execute(_SCAN, (key, limit)).fetchall()
        return int(all(row[10] is not None for row in rows) and bool(rows))

    def modify(self, key: str, field: str, value: str) -> int:
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        row = execute(_SELECT, (key,)).fetchone()
        changed = execute(_UPDATES[field], (value if row[1 + FIELDS.index(field)] != value else "", key)).rowcount
        execute("COMMIT")
        return changed

    def rows(self) -> list[tuple[str, ...]]:
        return self._execute(f"SELECT {_COLUMNS} FROM {TABLE} ORDER BY {KEY}").fetchall()

    def close(self) -> None:
        self._database.close()
