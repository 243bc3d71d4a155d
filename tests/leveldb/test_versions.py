"""Commits to change feeds: each has a version, which the state that it leaves has, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.native.database import Database, WriteFailedError
from structable.backends.leveldb.observer import ObservingEngine
from structable.backends.leveldb.route import VERSION_KEY, pack_stamp
from structable.backends.leveldb.routed_engine import DatabaseSettings, RoutedEngine
from structable.backends.ordered.engine import Increment, WriteSet
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, TransactionConflictError

from .support.engines import (
    DECISION,
    FED,
    FEED,
    SPACE,
    Bulk,
    key,
    make_engine,
    open_engine,
    put,
    read_all,
    read_feed,
    start,
)
from .support.processes import SERVE, Process

OTHER = b"\x00\x00\x00\x12"
THREADS, COMMITS = 6, 40


def append(engine: RoutedEngine, *payloads: bytes, feed: bytes = FEED) -> None:
    engine.commit(None, WriteSet(appends={feed: list(payloads)}))


def observe(folder: Path) -> ObservingEngine:
    return start(ObservingEngine(folder, DatabaseSettings()), recover=lambda _: b"[]")


def version_of(engine: RoutedEngine) -> int:
    snapshot = engine.begin(True)
    try:
        return snapshot.settled_version(FEED)
    finally:
        snapshot.close()


@pytest.fixture(params=["owner", "client"])
def either(request: pytest.FixtureRequest) -> LevelDBEngine:
    engine: LevelDBEngine = request.getfixturevalue("engine" if request.param == "owner" else "client")
    return engine


def test_each_commit_to_feeds_has_a_version(either: LevelDBEngine) -> None:
    engine = either
    assert version_of(engine) == 0
    put(engine, "a", b"1")
    assert version_of(engine) == 0
    append(engine, b"one", b"two")
    before = engine.begin(False)
    assert before.get(key("a")) == b"1"
    engine.commit(None, WriteSet({key("a"): b"2"}, appends={FEED: [b"three"], OTHER: [b"theirs"]}))
    put(engine, "a", b"3")
    (first, one), (same, two), (second, three) = read_feed(engine)
    assert (one, two, three) == (b"one", b"two", b"three")
    assert first == same < second == version_of(engine)
    assert read_feed(engine, OTHER) == [(second, b"theirs")]
    assert read_feed(engine, since=first) == [(second, b"three")]
    assert before.settled_version(FEED) == first, "a snapshot has the version of its own state"
    assert [entry.payload for entry in before.entries(FEED, 0, first)] == [b"one", b"two"]
    with pytest.raises(TransactionConflictError):
        engine.commit(before, WriteSet({key("a"): b"4"}, appends={FEED: [b"never"]}))
    assert [payload for _, payload in read_feed(engine)] == [b"one", b"two", b"three"]


def test_appends_are_in_conflict_with_nothing(either: LevelDBEngine) -> None:
    snapshots = [either.begin(False) for _ in range(2)]
    for number, snapshot in enumerate(snapshots):
        snapshot.get(key("a"))
        either.commit(snapshot, WriteSet({key(number): b"1"}, appends={FEED: [b"%d" % number]}))
    assert [payload for _, payload in read_feed(either)] == [b"0", b"1"]


def test_merges_are_described(either: LevelDBEngine) -> None:
    add = (Increment(FED, "n", 2),)
    snapshots = [either.begin(False) for _ in range(2)]
    for snapshot in snapshots:
        snapshot.get(key("a"))
        increments = {key("a"): add, key("other"): (Increment(b"", "n", 1),)}
        either.commit(snapshot, WriteSet(increments=dict(increments), appends={FEED: []}))
    either.commit(None, WriteSet({key("b"): b"1"}, {key("a"): (*add, *add)}, appends={FEED: [b"mine"]}))
    assert [payload for _, payload in read_feed(either)] == [
        b"a: nothing to 2",
        b"a: 2 to 4",
        b"mine",
        b"a: 4 to 8",
    ]
    assert either.get(key("other")) == b"2"


@pytest.mark.parametrize("sync", [False, True])
def test_members_of_a_group_have_their_own_versions(folder: Path, sync: bool) -> None:
    engine = open_engine(folder, sync=sync)

    def commit(thread: int) -> None:
        for number in range(COMMITS):
            changes = WriteSet(increments={key("sum"): (Increment(FED, "n", 1),)}, appends={FEED: []})
            changes.appends[OTHER] = [b"%d-%d" % (thread, number)]
            if number % 3:
                changes.writes[key(f"{thread}-{number}")] = b"1"
            engine.commit(None, changes)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_feed(engine)
    steps = [f"sum: {n or 'nothing'} to {n + 1}".encode() for n in range(THREADS * COMMITS)]
    assert [payload for _, payload in found] == steps
    theirs = read_feed(engine, OTHER)
    assert [version for version, _ in theirs] == [version for version, _ in found] == sorted({*dict(found)})
    for one in range(THREADS):
        own = [payload for _, payload in theirs if payload.startswith(b"%d-" % one)]
        assert own == [b"%d-%d" % (one, number) for number in range(COMMITS)]
    engine.close()


def test_versions_go_on_in_the_next_process(folder: Path, run: Callable[[str], Process]) -> None:
    for _ in range(2):
        process = run(
            "engine = open_engine(folder)\nengine.commit(None, WriteSet(appends={FEED: [b'one']}))\nsend('done')"
        )
        assert process.receive() == "done"
        process.close()
    engine = open_engine(folder)
    append(engine, b"two")
    (first, _), (second, _), (third, two) = read_feed(engine)
    assert first < second < third
    assert two == b"two"
    engine.close()


def test_times_never_go_back(folder: Path) -> None:
    engine = open_engine(folder)
    late = 1 << 52  # the year 2112
    engine.commit(None, WriteSet(derived={VERSION_KEY: pack_stamp(7, late)}))
    engine.close()
    engine = open_engine(folder)
    append(engine, b"one")
    snapshot = engine.begin(True)
    assert [(entry.version, entry.time) for entry in snapshot.entries(FEED, 0, 8)] == [(8, late)]
    snapshot.close()
    engine.close()


def test_failed_commit_appends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(folder)
    append(engine, b"one")

    def write(self: Database, parts: Iterable[Mapping[bytes, bytes | None]], sync: bool) -> None:
        raise WriteFailedError("the disk is full")

    monkeypatch.setattr(Database, "write", write)
    with pytest.raises((StorageUnavailableError, CommitOutcomeUnknownError)):
        append(engine, b"two")
    monkeypatch.undo()
    append(engine, b"three")
    assert [payload for _, payload in read_feed(engine)] == [b"one", b"three"]
    engine.close()


def test_snapshot_pinned_to_an_earlier_commit_has_no_later_version(client: LevelDBEngine) -> None:
    snapshot = client.begin(False)
    snapshot.pin()
    append(client, b"one")
    with pytest.raises(TransactionConflictError):
        snapshot.settled_version(FEED)


def test_plan_has_the_version_of_its_checkpoint(either: LevelDBEngine, folder: Path) -> None:
    append(either, b"one")
    put(either, "a", b"1")
    plan = either.plan_splits(SPACE, SPACE + b"\xff", 1, feed=FEED)
    append(either, b"two")
    assert plan.version == version_of(either) - 1
    plan.release()
    observer = observe(folder)
    planned = observer.plan_splits(SPACE, SPACE + b"\xff", 1, feed=FEED)
    assert planned.version == version_of(observer) == version_of(either)
    planned.release()
    observer.close()


def test_observer_reads_a_feed(folder: Path, run: Callable[[str], Process]) -> None:
    """As a client of the owner, and of a private copy when there is none."""
    owner = run(SERVE)
    assert owner.receive() == "ready"
    writer = open_engine(folder)
    append(writer, b"one")
    observer = observe(folder)
    assert [payload for _, payload in read_feed(observer)] == [b"one"]
    append(writer, b"two")
    assert [payload for _, payload in read_feed(observer)] == [b"one", b"two"]
    writer.close()
    assert owner.end() == 0
    with pytest.raises(TransactionConflictError, match="has ended"):
        version_of(observer)
    assert [payload for _, payload in read_feed(observer)] == [b"one", b"two"]
    observer.close()


ROWS = {key(f"bulk-{number}"): b"new" for number in range(4)}


def fed_bulk(between: Callable[[int], None] = lambda _: None) -> Bulk:
    return Bulk([{row: value} for row, value in ROWS.items()], between, FEED, 2)


def recovering(folder: Path) -> LevelDBEngine:
    """Start an engine that completes decided jobs, as the layer above does."""
    engine = make_engine(folder)

    def recover(argument: bytes) -> bytes:
        if engine.get(DECISION) is not None:
            bulk = fed_bulk()
            bulk.decision = {}
            engine.commit_bulk(bulk)
        return b""

    return start(engine, recover=recover)


def require_one_version(engine: LevelDBEngine, after: int) -> None:
    found = read_feed(engine)
    assert [payload for _, payload in found if payload.startswith(b"entry")] == [b"entry %d" % n for n in range(8)]
    [version] = {version for version, payload in found if payload.startswith(b"entry")}
    assert version > after


def test_bulk_commit_has_one_version(engine: LevelDBEngine) -> None:
    append(engine, b"before")
    before = version_of(engine)

    def between(number: int) -> None:
        assert version_of(engine) == before
        assert [payload for _, payload in read_feed(engine)] == [b"before"]

    engine.commit_bulk(fed_bulk(between))
    require_one_version(engine, before)
    append(engine, b"after")
    assert read_feed(engine)[-1][1] == b"after"


@pytest.mark.parametrize("at", range(-1, 4))
def test_bulk_commit_killed_half_way_appends_once(folder: Path, run: Callable[[str], Process], at: int) -> None:
    process = run(
        f"""
engine = open_engine(folder)
engine.commit(None, WriteSet(appends={{FEED: [b"before"]}}))
rows = [{{key(f"bulk-{{number}}"): b"new"}} for number in range(4)]
def between(number):
    if number == {at}:
        send("now")
        receive()
class Killed(Bulk):
    def chunks(self, latest):
        between(-1)
        yield from super().chunks(latest)
engine.commit_bulk(Killed(rows, between, FEED, 2))
"""
    )
    assert process.receive() == "now"
    other = recovering(folder)
    assert [payload for _, payload in read_feed(other)] == [b"before"], "a client does not see a part either"
    process.close()
    append(other, b"after")
    assert read_all(other) == ROWS
    require_one_version(other, read_feed(other)[0][0])
    assert read_feed(other)[-1][1] == b"after"
    other.close()


def test_bulk_commit_that_is_completed_late_keeps_its_version(folder: Path) -> None:
    """Recovery may fail for one job, and be repeated after other commits: their versions are above that of the job."""
    engine = open_engine(folder)
    append(engine, b"theirs", feed=OTHER)
    before = version_of(engine)

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("the runs cannot be read")

    with pytest.raises(CommitOutcomeUnknownError):
        engine.commit_bulk(fed_bulk(fail))
    append(engine, b"later", feed=OTHER)  # reopens the database, where nobody completes the job
    later = version_of(engine)
    assert later > before + 1
    engine.close()
    engine = recovering(folder)
    found = read_feed(engine)
    assert [payload for _, payload in found] == [b"entry %d" % n for n in range(8)]
    [version] = {version for version, _ in found}
    assert before < version < later, "those above it may have been read"
    assert version_of(engine) >= later
    engine.close()
