"""Scans skip what was deleted at the head of an interval, and never a row."""

from __future__ import annotations

import random
from itertools import chain, count, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.native import database
from structable.backends.leveldb.native.gaps import Gaps
from structable.backends.leveldb.owner import snapshot
from structable.backends.leveldb.owner.snapshot import LocalSnapshot
from structable.backends.ordered.engine import EngineSnapshot, WriteSet

from .support.engines import SPACE, Bulk, key, open_engine

END = SPACE + b"\xff"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every scan for a slow one, so that each commit finds a gap."""
    monkeypatch.setattr(database, "SLOW_SEEK", -1.0)
    monkeypatch.setattr(database, "_GAP_PAUSE", 0.0)


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Where scans began in LevelDB."""
    begins: list[bytes] = []
    scan_pairs = database.scan_pairs

    def noted(readers, raw, begin, *rest):  # type: ignore[no-untyped-def]
        begins.append(begin)
        return scan_pairs(readers, raw, begin, *rest)

    monkeypatch.setattr(snapshot, "scan_pairs", noted)
    return begins


def names(snapshot: EngineSnapshot, begin: bytes = SPACE, end: bytes = END, *, reverse: bool = False) -> list[bytes]:
    return [found for found, _ in snapshot.scan(begin, end, reverse=reverse)]


def head(engine: LevelDBEngine) -> bytes | None:
    snapshot = engine.begin(False)
    try:
        return next((found for found, _ in snapshot.scan(SPACE, END)), None)
    finally:
        snapshot.close()


def write(engine: LevelDBEngine, **rows: bytes | None) -> None:
    engine.commit(None, WriteSet({key(name): value for name, value in rows.items()}))


@pytest.mark.usefixtures("eager")
def test_head_of_a_queue_is_found_without_the_rows_deleted_before_it(
    engine: LevelDBEngine, begins: list[bytes]
) -> None:
    write(engine, **{f"q{n:03}": b"1" for n in range(100)})
    for n in range(50):
        assert head(engine) == key(f"q{n:03}")
        write(engine, **{f"q{n:03}": None})
    assert begins[-1] >= key("q048")
    write(engine, q003=b"1")
    assert head(engine) == key("q003")
    write(engine, q003=None, z=b"1")
    assert head(engine) == key("q050")
    write(engine, z=None)
    assert head(engine) == key("q050")
    assert begins[-1] == key("q050")


@pytest.mark.parametrize(("looks", "begin"), [((1.0, 0.0), SPACE), ((1.0, 1.0), key("b"))], ids=["cold", "slow"])
def test_row_that_is_slow_to_find_once_is_behind_no_gap(
    engine: LevelDBEngine,
    begins: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    looks: tuple[float, float],
    begin: bytes,
) -> None:
    """Reading a block from its file takes long as well, but only the first time."""
    write(engine, a=b"1", b=b"1")
    write(engine, a=None)
    moments = chain([moment for look in looks for moment in (0.0, look)], repeat(0.0))
    monkeypatch.setattr(database, "perf_counter", count(1e6).__next__)  # every scan is slow, and no pause too short
    monkeypatch.setattr(database, "thread_time", moments.__next__)
    assert head(engine) == key("b")
    write(engine, z=b"1")
    assert head(engine) == key("b")
    assert begins[-1] == begin


@pytest.mark.usefixtures("eager")
def test_older_snapshots_see_what_was_deleted_since(engine: LevelDBEngine) -> None:
    write(engine, a=b"1", b=b"1", c=b"1")
    before = engine.begin(False)
    write(engine, a=None, b=None)
    assert head(engine) == key("c")
    write(engine, x=b"1")
    after = engine.begin(False)
    assert names(before) == [key("a"), key("b"), key("c")]
    assert names(after) == [key("c"), key("x")]
    write(engine, a=b"2")
    assert names(after) == [key("c"), key("x")]
    assert head(engine) == key("a")
    before.close()
    after.close()


@pytest.mark.usefixtures("eager")
def test_rows_of_a_bulk_commit_fill_gaps(engine: LevelDBEngine) -> None:
    write(engine, b=b"1", z=b"1")
    write(engine, b=None)
    assert head(engine) == key("z")
    write(engine, z=b"2")
    seen: list[bytes | None] = []
    engine.commit_bulk(Bulk([{key("a"): b"3"}, {key("c"): b"3", key("z"): None}], lambda _: seen.append(head(engine))))
    assert seen == [key("z")] * 2, "the state before"
    assert head(engine) == key("a")
    write(engine, a=None)
    assert head(engine) == key("c")


@pytest.mark.usefixtures("eager")
def test_gap_ends_with_the_database(folder: Path) -> None:
    engine = open_engine(folder)
    write(engine, a=b"1", b=b"1")
    write(engine, a=None)
    assert head(engine) == key("b")
    write(engine, b=b"2")
    engine.close()
    engine = open_engine(folder)
    write(engine, a=b"1")
    assert head(engine) == key("a")
    engine.close()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("seed", range(20))
def test_scans_find_what_they_find_without_gaps(engine: LevelDBEngine, seed: int) -> None:
    chance = random.Random(seed)
    model: dict[bytes, bytes] = {}
    held: list[tuple[EngineSnapshot, dict[bytes, bytes]]] = []
    for _ in range(400):
        what = chance.random()
        if what < 0.5:
            some = {
                key(f"{chance.randrange(60):02}"): (None if chance.random() < 0.7 else b"%d" % chance.randrange(9))
                for _ in range(chance.choice((1, 1, 3, 10)))
            }
            if chance.random() < 0.05:
                engine.commit_bulk(Bulk([some]))
            else:
                engine.commit(None, WriteSet(some))
            for name, value in some.items():
                if value is None:
                    model.pop(name, None)
                else:
                    model[name] = value
        elif what < 0.6:
            held.append((engine.begin(chance.random() < 0.5), dict(model)))
        elif what < 0.65 and held:
            held.pop(chance.randrange(len(held)))[0].close()
        else:
            snapshot, rows = chance.choice(held) if held and chance.random() < 0.5 else (engine.begin(False), model)
            begin, end = sorted(key(f"{chance.randrange(61):02}") for _ in range(2))
            expected = sorted(name for name in rows if begin <= name < end)
            assert names(snapshot, begin, end) == expected
            assert names(snapshot, begin, end, reverse=True) == expected[::-1]
    for snapshot, rows in held:
        assert dict(snapshot.scan(SPACE, END)) == rows
        snapshot.close()


def test_row_put_while_a_snapshot_is_taken_is_not_skipped(
    engine: LevelDBEngine, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(engine, b=b"1", z=b"1")
    write(engine, b=None)
    assert head(engine) == key("z")
    write(engine, z=b"2")
    store = engine.route.store  # type: ignore[attr-defined]
    reads = store._reads
    take = reads.take

    def late() -> object:
        reads.take = take
        write(engine, c=b"1")
        return take()

    reads.take = late
    snapshot = engine.begin(False)
    assert isinstance(snapshot, LocalSnapshot)
    assert names(snapshot) == [key("c"), key("z")]
    snapshot.close()


bounds = st.integers(0, 30)


@given(st.lists(st.tuples(st.sampled_from(["add", "put", "delete"]), bounds, bounds)), bounds)
def test_gaps_are_what_was_added_and_not_filled(steps: list[tuple[str, int, int]], asked: int) -> None:
    gaps, empty = Gaps(), set[int]()
    for what, one, other in steps:
        begin, end = sorted((one, other))
        if what == "add":
            if begin < end:
                gaps = gaps.adding(bytes([begin]), bytes([end]))
                empty |= set(range(begin, end))
        else:
            gaps = gaps.without([{bytes([one]): b"1" if what == "put" else None}])
            if what == "put":
                empty.discard(one)
    end = gaps.skip(bytes([asked]))[0]
    assert end >= asked
    assert set(range(asked, end)) <= empty


def test_gaps_are_bounded() -> None:
    gaps = Gaps()
    for n in range(5_000):
        gaps = gaps.adding(b"%08d" % n, b"%08d5" % n)
        assert 0 < len(gaps) <= 1_000
        assert gaps.skip(b"%08d0" % n) == b"%08d5" % n
