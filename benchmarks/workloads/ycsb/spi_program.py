"""YCSB against structable's interface."""

from __future__ import annotations

from itertools import islice

from benchmarks.rows import BATCH
from structable.spi import Range, Transaction, connect

from .records import FIELDS, KEY, TABLE, RecordProgram, Shape, specification


class SpiRecords(RecordProgram):
    """A client of a structable store."""

    def __init__(self, url: str, shape: Shape, *, client: int, clients: int) -> None:
        super().__init__(shape, client=client, clients=clients)
        self._storage = connect(url)

    def load(self) -> None:
        self._storage.admin.create(specification())
        rows = (dict(zip((KEY, *FIELDS), row, strict=True)) for row in self.shape.rows())
        table = self._storage.table(TABLE)
        while batch := list(islice(rows, BATCH)):
            table.upsert_many(batch)

    def read(self, key: str) -> int:
        row = self._storage.table(TABLE).read((key,))
        return int(row is not None and row.field9 is not None)

    def update(self, key: str, field: str, value: str) -> int:
        self._storage.table(TABLE).update({KEY: key, field: value})
        return 1

    def insert(self, row: tuple[str, ...]) -> int:
        self._storage.table(TABLE).insert(dict(zip((KEY, *FIELDS), row, strict=True)))
        return 1

    def scan(self, key: str, limit: int) -> int:
        rows = list(self._storage.table(TABLE).scan(Range.at_least((key,)), limit=limit))
        return int(all(row.field9 is not None for row in rows) and bool(rows))

    def modify(self, key: str, field: str, value: str) -> int:
        def body(tx: Transaction) -> int:
            table = tx.table(TABLE)
            row = table.read((key,))
            assert row is not None
            table.update({KEY: key, field: value if row[field] != value else ""})
            return 1

        return self._storage.run(body)

    def rows(self) -> list[tuple[str, ...]]:
        return [tuple(str(row[name]) for name in (KEY, *FIELDS)) for row in self._storage.table(TABLE).scan()]

    def close(self) -> None:
        self._storage.close()
