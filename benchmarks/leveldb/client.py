"""A client: another process of this machine owns the database.

The floor is one round trip between two Python processes over a bare Unix socket: `sendall` and `recv` on both sides,
with frames of the size of the key or the row and some bytes of framing. Both stay on one core, where that is fastest;
otherwise it could be ten times slower, depending on the scheduler. Structable runs wherever the scheduler puts it.
Commits are not synced to the disk, which would hide the cost of the request (`durability=process`). Batches are
compared with one round trip per row.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import BATCH, TABLE, batches, make_rows, raw_key, raw_value, row_key
from structable.spi import Storage, connect

from .peers import bare_exchange, on_one_core, owner
from .stores import load, url_of

AREA = "client"
_FRAMING = 16
_SOME = 200


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure a client."""
    load(folder, scale.rows)
    url = url_of(folder / "ours")
    with (
        owner(url),
        connect(url) as storage,
        tempfile.TemporaryDirectory() as short,
        bare_exchange(Path(short)) as exchange,
    ):
        yield from _single(storage, exchange, scale)
        yield from _many(storage, exchange, scale)


def _round_trips(exchange: Callable[[int, int], None], count: int, request: int, answer: int) -> Round:
    def floor() -> float:
        with on_one_core():
            begin = perf_counter()
            for _ in range(count):
                exchange(request, answer)
            return (perf_counter() - begin) / count

    return floor


def _single(storage: Storage, exchange: Callable[[int, int], None], scale: Scale) -> Iterator[Measurement]:
    rows = list(make_rows(scale.rows))
    count = max(scale.samples // 10, 10)
    key_size, row_size = len(raw_key(rows[0])), len(raw_value(rows[0]))
    table = storage.table(TABLE)

    def read() -> float:
        keys = [row_key(row) for row in random.sample(rows, count)]
        total = 0
        begin = perf_counter()
        for key in keys:
            row = table.read(key)
            if row is not None and row.done:
                total += row.attempts
        return (perf_counter() - begin) / count

    def read_in_transaction() -> float:
        keys = [row_key(row) for row in random.sample(rows, count)]
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                row = tx.table(TABLE).read(key)
            assert row is not None
        return (perf_counter() - begin) / count

    def commit() -> float:
        chosen = random.sample(rows, count)
        begin = perf_counter()
        for row in chosen:
            with storage.transaction() as tx:
                tx.table(TABLE).upsert(row)
        return (perf_counter() - begin) / count

    def read_modify_write() -> float:
        keys = [row_key(row) for row in random.sample(rows, count)]
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                row = tx.table(TABLE).read(key)
                assert row is not None
                tx.table(TABLE).upsert({"host": key[0], "started": key[1], "attempts": row.attempts ^ 1})
        return (perf_counter() - begin) / count

    yield from compare(
        AREA,
        "bare round trip: a key there, a row back",
        _round_trips(exchange, count, key_size + _FRAMING, row_size + _FRAMING),
        [
            Contender("read, auto-commit view", read, 3.0),
            Contender("read in its own transaction", read_in_transaction),
        ],
        scale.rounds,
    )
    yield from compare(
        AREA,
        "bare round trip: a row there, a word back",
        _round_trips(exchange, count, key_size + row_size + _FRAMING, _FRAMING),
        [Contender("commit of one row", commit, 3.0), Contender("read-modify-write", read_modify_write)],
        scale.rounds,
    )


def _many(storage: Storage, exchange: Callable[[int, int], None], scale: Scale) -> list[Measurement]:
    rows = list(make_rows(scale.rows))
    table = storage.table(TABLE)
    given = list(batches(rows[: 10 * BATCH]))
    written = sum(map(len, given))
    count = max(scale.samples // 10, 10)

    def multi_read() -> float:
        keys = [[row_key(row) for row in random.sample(rows, BATCH)] for _ in range(5)]
        begin = perf_counter()
        found = sum(len(table.multi_read(some)) for some in keys)
        seconds = perf_counter() - begin
        assert found == 5 * BATCH
        return seconds / found

    def multi_read_some() -> float:
        keys = [[row_key(row) for row in random.sample(rows, _SOME)] for _ in range(20)]
        begin = perf_counter()
        found = sum(len(table.multi_read(some)) for some in keys)
        seconds = perf_counter() - begin
        assert found == 20 * _SOME
        return seconds / found

    def upsert_many() -> float:
        begin = perf_counter()
        for batch in given:
            with storage.transaction() as tx:
                tx.table(TABLE).upsert_many(batch)
        return (perf_counter() - begin) / written

    def scan() -> float:
        begin = perf_counter()
        found = sum(1 for _ in table.scan())
        seconds = perf_counter() - begin
        assert found == scale.rows
        return seconds / found

    return compare(
        AREA,
        "bare round trip: a key there, a row back",
        _round_trips(exchange, count, len(raw_key(rows[0])) + _FRAMING, len(raw_value(rows[0])) + _FRAMING),
        [
            Contender("multi_read of 1,000 keys, a row", multi_read),
            Contender("multi_read of 200 keys, a row", multi_read_some),
            Contender("upsert_many of 1,000 rows a commit, a row", upsert_many, 0.5),
            Contender("scan, a row", scan, 0.5),
        ],
        scale.rounds,
    )
