"""Plans of splits find the rows of `scan`, by an index where that reads less than the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage, Pair
from structable.spi import DataCorruptionError, Field, Filter, Range, Row, Storage, TableSpecification, col

ROWS = 30_000
SPEC = TableSpecification(
    "t",
    [Field.int("a"), Field.int("b"), Field.int("rare"), Field.int("often"), Field.string("late"), Field.int("n")],
    ["a", "b"],
    ["rare", "often", "late"],
)


class CountingEngine(MemoryEngine):
    """Counts the pairs that splits are read from, and the rows that are fetched by their keys."""

    pairs = 0
    fetched = 0

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        for pair in super().read_split(state, intervals):
            self.pairs += 1
            yield pair

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        self.fetched += len(keys)
        return super().read_planned(state, keys)


@pytest.fixture(scope="module")
def engine() -> CountingEngine:
    return CountingEngine(VersionedMap())


@pytest.fixture(scope="module")
def storage(engine: CountingEngine) -> Storage:
    storage = OrderedStorage(engine, "memory://")
    storage.admin.create(SPEC)
    storage.table("t").upsert_many(
        {
            "a": number // 1_000,
            "b": number % 1_000,
            "rare": number % 3_000,
            "often": number % 3 or None,
            "late": "late" if number >= ROWS - 2_500 else f"early {number:05}",
            "n": number % 10,
        }
        for number in range(ROWS)
    )
    return storage


def read(storage: Storage, where: Filter | None, range_: Range, splits: int) -> tuple[list[tuple[object, ...]], bool]:
    with storage.plan_scan("t", where=where, range=range_, columns=["a", "b", "n"], splits=splits) as plan:
        batches = [batch for split in plan.splits for batch in storage.read_split(split)]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], plan.ordered


def by_key(rows: Iterator[Row]) -> list[tuple[object, ...]]:
    return [(row["a"], row["b"], row["n"]) for row in rows]


CASES: dict[str, tuple[Filter | None, Range, int]] = {
    # The maximum of pairs and rows read, for each request.
    "a value": (col("rare") == 7, Range(), 20),
    "values": (col("rare").isin([7, 2_999, -1]), Range(), 40),
    "a range": (col("rare").between(10, 19), Range(), 200),
    "a value in a range of keys": (col("often") == 1, Range.prefix((7,)), 700),
    "values in keys": (col("rare").isin([1, 2]) & col("a").isin([1, 4]), Range(), 2_000),
    "a range of values in a range of keys": ((col("rare") < 20) & (col("a") >= 25), Range(), 5_000),
    "values in a range of keys": (col("rare").isin([1, 2]) & (col("a") >= 10), Range(), 40),
    "a range of values within keys": ((col("rare") < 20) & (col("b") > 900), Range(), 400),
    "a value and more": ((col("rare") == 7) & (col("n") > 5), Range(), 20),
    "no value": (col("rare") == -1, Range(), 0),
    "null": (col("rare").is_null(), Range(), 0),
    "keys far apart": (col("a").isin([0, 29]) & (col("b") == 5), Range(), 2),
    "some of a large part": (col("late") == "late", Range(), 5_000 + 1_100),
    "most rows": (col("often") == 1, Range(), ROWS + 1_100),
    "most rows but null": (col("often").is_not_null(), Range(), ROWS + 1_100),
    "nothing asked": (None, Range(), ROWS),
    "an empty range": (col("rare") == 7, Range((5,), (3,)), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("splits", [1, 3, 20])
@pytest.mark.parametrize("case", list(CASES))
def test_a_plan_reads_about_what_it_finds(storage: Storage, engine: CountingEngine, case: str, splits: int) -> None:
    where, range_, most = CASES[case]
    engine.pairs = engine.fetched = 0
    found, ordered = read(storage, where, range_, splits)
    assert engine.pairs + engine.fetched <= most
    assert sorted(found) == by_key(storage.table("t").scan(range_, where=where))
    assert found == sorted(found) or not ordered


def test_few_rows_are_one_split(storage: Storage) -> None:
    with storage.plan_scan("t", where=col("rare") == 7, splits=50) as plan:
        assert len(plan.splits) == 1
    with storage.plan_scan("t", splits=50) as plan:
        assert len(plan.splits) == 50


def test_plan_by_an_index_is_one_snapshot(storage: Storage) -> None:
    table = storage.table("t")
    with storage.plan_scan("t", where=col("rare") == 100, columns=["a", "b", "n"], splits=2) as plan:
        before = by_key(table.scan(where=col("rare") == 100))
        table.delete((0, 100))
        table.upsert({"a": 3, "b": 100, "n": 77})
        table.upsert({"a": 5, "b": 5, "rare": 100})
        found = [tuple(row.values()) for s in plan.splits for b in storage.read_split(s) for row in b.to_pylist()]
    assert found == before


def test_index_entry_without_its_row(engine: CountingEngine, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "read_planned", lambda state, keys: [None] * len(keys))
    with storage.plan_scan("t", where=col("rare") == 8) as plan, pytest.raises(DataCorruptionError, match="'rare'"):
        list(storage.read_split(plan.splits[0]))
