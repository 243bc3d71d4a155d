"""`RowCache`: rows that look-ups keep, as columns, against what was read; no Spark runs."""

import itertools
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from structable.spark_bridge.read import found_rows
from structable.spark_bridge.read.found_rows import Found, Matches, RowCache
from structable.spark_bridge.read.hashed_places import HashedPlaces
from structable.spark_bridge.read.lookup_keys import KeyColumns, KeyValues
from structable.spi import Field, TableSpecification, Value
from structable.spi.arrow import arrow_type

SPEC = TableSpecification("t", [Field.int("k"), Field.int("turn"), Field.string("text")], ["k"])
TTL = 10.0


class Reads:
    """Reads rows of even keys, which change with each call, and notes for which keys."""

    def __init__(self) -> None:
        self.keys: list[list[Value]] = []
        self.last: dict[KeyValues, tuple[Value, ...] | None] = {}

    def __call__(self, keys: list[KeyValues]) -> Found:
        assert len(set(keys)) == len(keys) > 0
        self.keys.append([key[0] for key in keys])
        turn = len(self.keys)
        rows = {key: (turn, None if key[0] == 2 else f"{key[0]!s} {turn}") for key in keys if key[0] in range(0, 60, 2)}
        self.last |= {key: rows.get(key) for key in keys}
        return Found.of(rows, ("turn", "text"))


def cached(most: int, *, ttl: float = TTL, absent: bool = True) -> RowCache:
    return RowCache(SPEC, ("turn", "text"), most, ttl=ttl, absent=absent)


def values(rows: RowCache, keys: Sequence[int | None], reads: Reads) -> list[tuple[Value, ...] | None]:
    """Return the row of each key."""
    matches = rows.of(KeyColumns(SPEC, [pa.array(keys, pa.int32())]), reads)
    columns = [column.to_pylist() for column in matches.columns]
    assert all(len(column) == len(keys) for column in columns)
    found = zip(*columns, strict=True)
    return [row if there else None for there, row in zip(matches.there.to_pylist(), found, strict=True)]


def test_the_least_recently_used_rows_and_absences_are_forgotten() -> None:
    reads, rows = Reads(), cached(3)
    assert values(rows, [0, 1, 2, 0, None], reads) == [(1, "0 1"), None, (1, None), (1, "0 1"), None]
    assert values(rows, [1, 0], reads) == [None, (1, "0 1")]
    assert reads.keys == [[0, 1, 2]]
    values(rows, [4], reads)  # 2 goes
    values(rows, [0, 1, 4], reads)
    assert reads.keys == [[0, 1, 2], [4]]
    assert values(rows, [2], reads) == [(3, None)]
    assert [row is not None for row in values(rows, range(20), reads)] == [key % 2 == 0 for key in range(20)]
    assert len(reads.keys) == 4
    none = cached(0)
    assert values(none, [2, 2], reads) == [(5, None)] * 2
    values(none, [2], reads)
    assert reads.keys[4:] == [[2], [2]]


def test_a_field_of_kept_rows_has_a_gigabyte_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Arrow array of texts cannot have more than two."""
    monkeypatch.setattr(found_rows, "_MOST_BYTES", 200)
    reads, rows = Reads(), cached(1_000)
    for key in range(0, 60, 2):
        assert [row is not None for row in values(rows, [key, key], reads)] == [True] * 2
        assert max(column.nbytes for column in rows._columns()) <= 200
    values(rows, [58, 56], reads)
    assert len(reads.keys) == 30, "the rows used last are kept"


@pytest.mark.parametrize("absent", [True, False])
def test_rows_are_those_that_were_read_last(absent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random batches of keys, of which some repeat, expire or are forgotten."""
    now = 0.0
    monkeypatch.setattr(found_rows, "_NEW_ROWS", 4)
    monkeypatch.setattr(found_rows, "time", SimpleNamespace(monotonic=lambda: now))
    for seed in range(200):
        chance, reads = random.Random(seed), Reads()
        most = chance.choice([1, 5, 20, 1_000])
        rows, read_at = cached(most, absent=absent), dict[KeyValues, float]()
        before: set[KeyValues] = set()
        for _ in range(30):
            now += chance.choice([0.0, 1.0, 4.0])
            keys = [chance.choice([None, *range(70)]) for _ in range(chance.randrange(1, 12))]
            calls = len(reads.keys)
            found = values(rows, keys, reads)
            assert len(reads.keys) <= calls + 1
            read = {(key,) for key in reads.keys[-1]} if len(reads.keys) > calls else set()
            read_at |= dict.fromkeys(read, now)
            wanted = {(key,) for key in keys if key is not None}
            assert read <= wanted
            assert found == [None if key is None else reads.last[key,] for key in keys]
            assert all(now < read_at[key] + TTL for key in wanted), "a row has expired"
            if len(before) < most - most // 8:
                assert not {key for key in read & before if reads.last[key] is not None}, "a row was forgotten"
            before = {key for key in wanted if now + 4.0 < read_at[key] + TTL}
        rows.close()
        values(rows, [0], reads)
        assert reads.keys[-1] == [0]


KINDS: dict[str, list[Value]] = {
    "boolean": [True, False],
    "byte": [-128, -1, 0],
    "long": [-(2**63), -1, 10, 2**63 - 1],
    "string": ["", "a", "ab", "é", "e\u0301", "1", "x" * 64, "x" * 65, "x" * 900, "a\0", "x" * 2_001],
    "bytes": [b"", b"\0", b"a", b"a\0", b"\xff" * 8, b"\0" * 8],
    "date": [date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1969, 12, 31, 23), datetime(2024, 2, 29, 1, 2, 3, 4)],
}


class Rows:
    """Reads some of the rows, and notes for which keys."""

    def __init__(self, rows: dict[KeyValues, tuple[Value, ...]]) -> None:
        self.rows, self.asked = rows, list[KeyValues]()

    def __call__(self, keys: list[KeyValues]) -> Found:
        assert len(set(keys)) == len(keys) > 0
        assert not any(None in key for key in keys)
        self.asked += keys
        return Found.of({key: self.rows[key] for key in keys if key in self.rows}, ("text",))


@pytest.mark.parametrize("hashes", [2**64, 3, 1])
def test_cached_rows_equal_rows_without_a_cache(hashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each type of a key, composite keys, nulls, invalid keys, and different keys with equal hashes."""
    hashed = KeyColumns.hashes
    monkeypatch.setattr(KeyColumns, "hashes", lambda keys: (hashed(keys).astype(object) % hashes).astype(np.uint64))
    cases = [[kind] for kind in KINDS] + [["string", "long"], ["long", "byte", "string"], ["bytes", "bytes"]]
    for names in [*cases, ["boolean", "date"], ["timestamp", "timestamp_ntz"]]:
        key = [getattr(Field, kind)(f"k{place}") for place, kind in enumerate(names)]
        spec = TableSpecification("t", [*key, Field.string("text")], [field.name for field in key])
        known: list[tuple[Value, ...]] = list(itertools.product(*([*KINDS[kind], None] for kind in names)))
        chance = random.Random(0)
        reads = Rows({one: (None if chance.random() < 0.1 else repr(one),) for one in known if chance.random() < 0.7})
        cache = RowCache(spec, ("text",), 1_000)
        for turn in range(4):
            some = known * 2 if turn > 2 else chance.choices(known, k=len(known))
            columns = [
                # One row more on each side: a batch may be a part of another one.
                pa.array([column[0], *column, None], arrow_type(field)).slice(1, len(some))
                for column, field in zip(zip(*some, strict=True), key, strict=True)
            ]
            reads.asked.clear()
            expected = Matches.of(spec, ("text",), KeyColumns(spec, columns), reads)
            found_keys = reads.rows.keys() & set(reads.asked)
            assert expected.there.to_pylist() == [one in found_keys for one in some]
            assert expected.columns[0].to_pylist() == [
                reads.rows[one][0] if one in found_keys else None for one in some
            ]
            for _ in range(2):
                reads.asked.clear()
                found = cache.of(KeyColumns(spec, columns), reads)
                assert found.there.equals(expected.there)
                assert [column.to_pylist() for column in found.columns] == [
                    column.to_pylist() for column in expected.columns
                ]
            assert hashes < 2**64 or not reads.asked, "a cached row was read"


def test_bytes_that_are_no_text_find_no_row() -> None:
    """Spark's cast of bytes to a text checks nothing, and Python cannot hold the result."""
    spec = TableSpecification("t", [Field.string("k"), Field.string("text")], ["k"])
    for length in (1, 100):
        encoded = [one * length for one in (b"a", b"\xff", b"a", b"a\xff")]
        keys = KeyColumns(spec, [pa.array(encoded, pa.binary()).view(pa.string())])
        reads, cache = Rows({("a" * length,): ("found",)}), RowCache(spec, ("text",), 10)
        for found in (Matches.of(spec, ("text",), keys, reads), cache.of(keys, reads), cache.of(keys, reads)):
            assert found.columns[0].to_pylist() == ["found", None, "found", None]
            assert found.there.to_pylist() == [True, False, True, False]


def test_few_steps_find_keys_of_any_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = itertools.count()
    step = HashedPlaces._next

    def counted(self: HashedPlaces, *rest: Any) -> Any:  # noqa: ANN401 - the arguments of the method
        next(steps)
        return step(self, *rest)

    monkeypatch.setattr(HashedPlaces, "_next", counted)
    numbers = np.arange(-10_000, 10_000)
    columns: list[pa.Array[Any]] = [pa.array(numbers * factor) for factor in (1, 1_000, 2**16, 2**32, 2**48)]
    columns += [
        pa.array([f"{number:016x}" for number in numbers]),
        pa.array([f"{number:08}" * 2 for number in numbers]),
    ]
    for column in columns:
        field = Field.string("k") if pa.types.is_string(column.type) else Field.long("k")
        spec = TableSpecification("t", [field], ["k"])
        hashes, places = KeyColumns(spec, [column]).hashes(), HashedPlaces()
        for part in np.split(np.arange(len(hashes)), 20):
            places.add(hashes[part], part)
        assert (places.of(hashes) == np.arange(len(hashes))).all()
        assert (places.of(hashes + np.uint64(1)) == -1).all()
        assert next(steps) < 1_000
        steps = itertools.count()
