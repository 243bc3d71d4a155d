"""Point operations: reads in the auto-commit view and in separate transactions, read-modify-write, and single writes.

Keys are random, and separate objects in memory, and every row read is also used. The commits are not synced to the
disk, which would hide all other costs (`durability=process`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, make_rows, raw_entry, raw_key, raw_value, row_key, statuses
from structable.spi import Value

from .stores import Stores, opened

AREA = "points"


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure all point operations."""
    with opened(folder / "plain", scale.rows) as stores:
        yield from _reads(stores, scale)
        yield from _read_modify_writes(stores, scale)
        yield from _single_writes(stores, scale)
    with opened(folder / "indexed", scale.rows, index=True) as stores:
        yield from _indexed_read_modify_writes(stores, scale)


class _Picker:
    """Picks the same keys for the floor and for structable, new ones in each turn."""

    def __init__(self, scale: Scale) -> None:
        rows = list(make_rows(scale.rows))
        self._raw_keys = [raw_key(row) for row in rows]
        self._keys = [row_key(row) for row in rows]
        self._samples = scale.samples
        self._picked: list[int] = []

    def raw_keys(self) -> list[bytes]:
        """Pick keys, and return them raw."""
        self._picked = random.sample(range(len(self._keys)), self._samples)
        return [self._raw_keys[number] for number in self._picked]

    def keys(self) -> list[tuple[Value, ...]]:
        """Return the keys that were picked last."""
        return [self._keys[number] for number in self._picked]


def _reads(stores: Stores, scale: Scale) -> list[Measurement]:
    picker = _Picker(scale)
    storage = stores.storage
    table = storage.table(TABLE)

    def floor() -> float:
        keys, get = picker.raw_keys(), stores.raw.get
        begin = perf_counter()
        for key in keys:
            get(key)
        return (perf_counter() - begin) / len(keys)

    def in_view() -> float:
        keys, total = picker.keys(), 0
        begin = perf_counter()
        for key in keys:
            row = table.read(key)
            if row is not None and row.done:
                total += row.attempts
        return (perf_counter() - begin) / len(keys)

    def in_transaction() -> float:
        keys, total = picker.keys(), 0
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                row = tx.table(TABLE).read(key)
            if row is not None and row.done:
                total += row.attempts
        return (perf_counter() - begin) / len(keys)

    return compare(
        AREA,
        "plyvel get",
        floor,
        [
            Contender("read, auto-commit view", in_view, 1.8),
            Contender("read in its own transaction", in_transaction, 2.3),
        ],
        scale.rounds,
    )


def _read_modify_writes(stores: Stores, scale: Scale) -> list[Measurement]:
    picker = _Picker(scale)
    values = [raw_value(row) for row in make_rows(scale.samples)]

    def floor() -> float:
        work = list(zip(picker.raw_keys(), values, strict=True))
        get, put = stores.raw.get, stores.raw.put
        begin = perf_counter()
        for key, value in work:
            get(key)
            put(key, value)
        return (perf_counter() - begin) / len(work)

    return compare(
        AREA,
        "plyvel get and put",
        floor,
        [
            Contender("read-modify-write, one field", _one_field(stores, picker), 1.8),
            Contender("read-modify-write, whole row", _whole_row(stores, picker), None),
        ],
        scale.rounds,
    )


def _one_field(stores: Stores, picker: _Picker) -> Round:
    storage = stores.storage

    def ours() -> float:
        keys = picker.keys()
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                table = tx.table(TABLE)
                row = table.read(key)
                assert row is not None
                table.upsert({"host": key[0], "started": key[1], "attempts": row.attempts ^ 1})
        return (perf_counter() - begin) / len(keys)

    return ours


def _whole_row(stores: Stores, picker: _Picker) -> Round:
    storage = stores.storage

    def ours() -> float:
        keys = picker.keys()
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                table = tx.table(TABLE)
                row = table.read(key)
                assert row is not None
                table.upsert({**row, "attempts": row.attempts ^ 1})
        return (perf_counter() - begin) / len(keys)

    return ours


def _single_writes(stores: Stores, scale: Scale) -> Iterator[Measurement]:
    """Writes of one row in the auto-commit view; deleted rows are put back, which is not timed."""
    picker = _Picker(scale)
    rows = {row_key(row): row for row in make_rows(scale.rows)}
    values = {raw_key(row): raw_value(row) for row in rows.values()}
    raw, table = stores.raw, stores.storage.table(TABLE)

    def timed(write: Callable[[Any], object], works: list[Any]) -> float:
        begin = perf_counter()
        for work in works:
            write(work)
        return (perf_counter() - begin) / len(works)

    def put() -> float:
        return timed(lambda key: raw.put(key, values[key]), picker.raw_keys())

    def get_and_put() -> float:
        def write(key: bytes) -> None:
            raw.get(key)
            raw.put(key, values[key])

        return timed(write, picker.raw_keys())

    def get_and_delete() -> float:
        def write(key: bytes) -> None:
            raw.get(key)
            raw.delete(key)

        keys = picker.raw_keys()
        seconds = timed(write, keys)
        for key in keys:
            raw.put(key, values[key])
        return seconds

    def upsert() -> float:
        keys = picker.keys()
        return timed(table.upsert, [rows[key] for key in keys])

    def upsert_one_field() -> float:
        keys = picker.keys()
        return timed(table.upsert, [{"host": host, "started": started, "attempts": 1} for host, started in keys])

    def increment() -> float:
        return timed(lambda key: table.increment(key, "bytes"), picker.keys())

    def delete() -> float:
        keys = picker.keys()
        seconds = timed(table.delete, keys)
        table.upsert_many([rows[key] for key in keys])
        return seconds

    yield from compare(AREA, "plyvel put", put, [Contender("upsert, auto-commit view", upsert)], scale.rounds)
    changes = [
        Contender("upsert of one field, auto-commit view", upsert_one_field),
        Contender("increment, auto-commit view", increment),
    ]
    yield from compare(AREA, "plyvel get and put", get_and_put, changes, scale.rounds)
    against = "plyvel get and delete"
    yield from compare(AREA, against, get_and_delete, [Contender("delete, auto-commit view", delete)], scale.rounds)


def _indexed_read_modify_writes(stores: Stores, scale: Scale) -> list[Measurement]:
    """The change is to the indexed field, so that one index entry is deleted and another is put."""
    picker = _Picker(scale)
    storage = stores.storage
    values = [raw_value(row) for row in make_rows(scale.samples)]
    chosen = statuses(scale.samples, 1)

    def floor() -> float:
        keys = picker.raw_keys()
        before = statuses(scale.samples, 2)
        work = [
            (key, value, raw_entry(old, key), raw_entry(new, key))
            for key, value, old, new in zip(keys, values, before, chosen, strict=True)
        ]
        raw = stores.raw
        get, write_batch = raw.get, raw.write_batch
        begin = perf_counter()
        for key, value, old, new in work:
            get(key)
            batch = write_batch()
            batch.put(key, value)
            batch.delete(old)
            batch.put(new, b"\1")
            batch.write()
        return (perf_counter() - begin) / len(work)

    def ours() -> float:
        work = list(zip(picker.keys(), chosen, strict=True))
        begin = perf_counter()
        for key, status in work:
            with storage.transaction() as tx:
                table = tx.table(TABLE)
                row = table.read(key)
                assert row is not None
                if row.status != status:
                    table.upsert({"host": key[0], "started": key[1], "status": status})
        return (perf_counter() - begin) / len(work)

    return compare(
        AREA,
        "plyvel get, and a batch: put row, delete entry, put entry",
        floor,
        [Contender("read-modify-write of the indexed field", ours, 2.0)],
        scale.rounds,
    )
