"""YCSB by hand against PostgreSQL."""

from __future__ import annotations

from benchmarks.workloads.postgresql import PostgresqlPlace

from .records import FIELDS, KEY, TABLE, RecordProgram, Shape

_COLUMNS = ", ".join((KEY, *FIELDS))
_SELECT = f"SELECT {_COLUMNS} FROM {TABLE} WHERE {KEY} = %s".encode()
_SCAN = f"SELECT {_COLUMNS} FROM {TABLE} WHERE {KEY} >= %s ORDER BY {KEY} LIMIT %s".encode()
_INSERT = f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES ({', '.join(['%s'] * (len(FIELDS) + 1))})".encode()
_UPDATES = {field: f"UPDATE {TABLE} SET {field} = %s WHERE {KEY} = %s".encode() for field in FIELDS}
_CREATE = (
    f'CREATE TABLE {TABLE} ({KEY} text COLLATE "C" PRIMARY KEY, {", ".join(f"{field} text" for field in FIELDS)})'
).encode()
_COPY = f"COPY {TABLE} ({_COLUMNS}) FROM STDIN".encode()


class PsycopgRecords(RecordProgram):
    """A client of a PostgreSQL database."""

    def __init__(self, place: PostgresqlPlace, shape: Shape, *, client: int, clients: int) -> None:
        super().__init__(shape, client=client, clients=clients)
        self._database = place.connect()
        self._execute = self._database.execute

    def load(self) -> None:
        self._execute(_CREATE)
        with self._database.connection.cursor().copy(_COPY) as copy:
            for row in self.shape.rows():
                copy.write_row(row)

    def read(self, key: str) -> int:
        row = self._execute(_SELECT, key).fetchone()
        return int(row is not None and row[10] is not None)

    def update(self, key: str, field: str, value: str) -> int:
        return self._execute(_UPDATES[field], value, key).rowcount

    def insert(self, row: tuple[str, ...]) -> int:
        return self._execute(_INSERT, *row).rowcount

    def scan(self, key: str, limit: int) -> int:
        rows = self._execute(_SCAN, key, limit).fetchall()
        return int(all(row[10] is not None for row in rows) and bool(rows))

    def modify(self, key: str, field: str, value: str) -> int:
        def body() -> int:
            row = self._execute(_SELECT, key).fetchone()
            assert row is not None
            place = 1 + FIELDS.index(field)
            return self._execute(_UPDATES[field], value if row[place] != value else "", key).rowcount

        return self._database.run(body)

    def rows(self) -> list[tuple[str, ...]]:
        return self._execute(f"SELECT {_COLUMNS} FROM {TABLE} ORDER BY {KEY}".encode()).fetchall()

    def close(self) -> None:
        self._database.close()
