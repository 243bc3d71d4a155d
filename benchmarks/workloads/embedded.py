"""The embedded stores against SQLite: LevelDB with both of its durabilities, and memory.

LevelDB's first client owns the database and serves the others; each of SQLite's has a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.leveldb.stores import url_of
from benchmarks.measuring import Measurement, Scale

from .clients import fleet
from .contest import MANY_CLIENTS, Contest, Rival
from .orders.requests import WORK as ORDERS
from .orders.spi_program import SpiOrders
from .orders.sqlite_program import SqliteOrders
from .sqlite import MEMORY, SqlitePlace
from .ycsb.spi_program import SpiRecords
from .ycsb.sqlite_program import SqliteRecords

_DURABILITIES = {"process": "NORMAL", "machine": "FULL"}
_GOALS = {"A": 1.0, "C": 1.0, "E": 1 / 0.8}


def measure_leveldb(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB with each durability, on the same files."""
    folder.mkdir()
    contests = [_leveldb(folder, scale, durability) for durability in _DURABILITIES]
    number = 0
    for clients in (1, MANY_CLIENTS):
        with fleet(clients) as processes:
            if clients == 1:
                contests[0].load(processes)
            for contest in contests:
                yield from contest.run(processes, number)
                number += 1


def _leveldb(folder: Path, scale: Scale, durability: str) -> Contest:
    synchronous = _DURABILITIES[durability]
    records, orders = (SqlitePlace(str(folder / f"{name}.sqlite"), synchronous) for name in ("records", "orders"))
    by_hand = Rival(
        f"SQLite WAL {synchronous}",
        partial(SqliteRecords, records),
        partial(SqliteOrders, orders),
        _goal,
    )
    ours = Rival(
        f"LevelDB {durability}",
        partial(SpiRecords, url_of(folder / "records", durability=durability)),
        partial(SpiOrders, url_of(folder / "orders", durability=durability)),
    )
    return Contest(ours, [by_hand], scale)


def _goal(work: str, clients: int) -> float | None:
    if work == ORDERS:
        return 1.0 if clients == 1 else 1 / 1.5
    return _GOALS.get(work)


def measure_memory(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure memory, with one client, in whose memory the rows are."""
    place, url = SqlitePlace(MEMORY), "memory://"
    by_hand = Rival("SQLite in memory", partial(SqliteRecords, place), partial(SqliteOrders, place))
    contest = Contest(Rival("memory", partial(SpiRecords, url), partial(SpiOrders, url)), [by_hand], scale)
    with fleet(1) as processes:
        yield from contest.run(processes, 0, load=True)
