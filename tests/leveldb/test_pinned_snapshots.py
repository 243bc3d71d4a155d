"""A client's transaction has its commit number from its first operation on, read or write."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.owner import history
from structable.backends.leveldb.owner.commit_nodes import CommitNode
from structable.backends.ordered.engine import EngineSnapshot, Increment, ReadSet, WriteSet
from structable.spi import TransactionClosedError, TransactionConflictError

from .support.engines import SPACE, key, open_engine, put
from .support.processes import SERVE, Process

Run = Callable[[str], Process]


def test_commit_that_read_nothing_takes_no_snapshot(folder: Path, run: Run) -> None:
    """Commits after its beginning conflict all the same."""
    process = run(
        """
import structable.backends.leveldb.owner.store as store
begun = []
original = store.LocalStore.begin
store.LocalStore.begin = lambda self, read_only: begun.append(read_only) or original(self, read_only)
engine = open_engine(folder)
begun.clear()
send("ready")
receive()
send(len(begun))
receive()
"""
    )
    assert process.receive() == "ready"
    client = open_engine(folder)
    late, other, unaware = client.begin(False), client.begin(False), client.begin(False)
    put(client, "a", b"1")
    with pytest.raises(TransactionConflictError, match="wrote a row"):
        client.commit(late, WriteSet({key("a"): b"2"}))
    client.commit(other, WriteSet({key("b"): b"2"}))
    client.commit(client.begin(False), WriteSet({key("a"): b"2"}))
    client.commit(None, WriteSet({key("s"): b"1"}, changed_spaces={SPACE}))
    with pytest.raises(TransactionConflictError, match="schema"):
        client.commit(unaware, WriteSet({key("c"): b"3"}))
    process.send()
    assert process.receive() == "0"
    with pytest.raises(TransactionClosedError, match="reading only"):
        client.commit(client.begin(True), WriteSet({key("a"): b"4"}))
    assert client.get(key("a")) == b"2"
    client.close()


@pytest.mark.parametrize(
    "changes",
    [
        WriteSet({key("a"): b"2"}),
        WriteSet({key("x"): b"2", key("a"): None}),
        WriteSet(increments={key("a"): (Increment(b"s", "n", 1),)}),
        WriteSet({key("x"): b"2"}, reads=ReadSet({key("a")})),
        WriteSet({key("x"): b"2"}, reads=ReadSet(set(), [(key("a"), key("b"))])),
    ],
    ids=["write", "delete", "increment", "read", "range read"],
)
def test_blind_commit_counts_from_its_beginning(client: LevelDBEngine, changes: WriteSet) -> None:
    put(client, "a", b"1")
    before = [client.begin(False) for _ in range(2)]
    before[0].pin()
    put(client, "a", b"5")
    for snapshot in before:
        with pytest.raises(TransactionConflictError):
            client.commit(snapshot, changes)
    assert client.get(key("a")) == b"5"
    client.commit(client.begin(False), changes)
    client.close()


def test_read_after_the_first_write_shows_no_later_commit(client: LevelDBEngine) -> None:
    client.commit(None, WriteSet({key(name): b"1" for name in "abc"}))
    reads: list[Callable[[EngineSnapshot, str], object]] = [
        lambda snapshot, name: snapshot.get(key(name)),
        lambda snapshot, name: snapshot.get_many([key(name)])[0],
        lambda snapshot, name: next(snapshot.scan(key(name), key(name) + b"\xff"))[1],
        lambda snapshot, name: next(snapshot.scan(key(name), key(name) + b"\xff", reverse=True))[1],
    ]
    route = client.route
    assert isinstance(route, Client)
    for read in reads:
        route.requests.eager_until = 0.0
        before = [client.begin(False) for _ in range(3)]
        for snapshot in before[:2]:
            snapshot.pin()
        old, new = client.get(key("a")), os.urandom(4)
        put(client, "a", new)
        with pytest.raises(TransactionConflictError):
            read(before[0], "a")
        assert read(before[1], "b") == b"1", "an unchanged row"
        with pytest.raises(TransactionConflictError):
            read(before[1], "a")
        assert read(before[2], "a") == new != old, "the first operation is this read"
        with pytest.raises(TransactionConflictError):
            client.commit(before[1], WriteSet({key("a"): b"2"}))
        client.commit(before[2], WriteSet({key("a"): b"2"}))
        retried = client.begin(False)
        assert retried.flags & 1 == 0, "this one's snapshot was taken at once"  # type: ignore[attr-defined]
        retried.pin()
        put(client, "a", b"3")
        assert read(retried, "a") == b"2"
        retried.close()
    client.close()


def test_read_after_the_first_write_waits_for_a_commit_on_its_way(folder: Path, run: Run) -> None:
    """Its write shows in a new snapshot before it is in the history, where the read looks for it."""
    process = run(
        """
import structable.backends.leveldb.native.database as database
original = database.Database.put
def put_slowly(self, key, value, sync):
    original(self, key, value, sync)
    if value == b"slow":
        send("written")
        receive()
        time.sleep(0.2)
database.Database.put = put_slowly
engine = open_engine(folder)
put(engine, "a", b"fast")
send("ready")
receive()
put(engine, "a", b"slow")
receive()
"""
    )
    assert process.receive() == "ready"
    client = open_engine(folder)
    snapshot = client.begin(False)
    snapshot.pin()
    process.send()
    assert process.receive() == "written"
    process.send()
    with pytest.raises(TransactionConflictError):
        snapshot.get(key("a"))
    client.close()


def test_commit_number_that_is_too_old_is_a_conflict(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry has a snapshot of its own, however much is committed meanwhile."""
    monkeypatch.setattr(history, "_MOST_NUMBERED", 100)
    owner = open_engine(folder)
    process = run(
        """
engine = open_engine(folder)
for _ in range(2):
    snapshot = engine.begin(False)
    send("begun")
    receive()
    try:
        engine.commit(snapshot, WriteSet({key("mine"): b"1"}))
        send("committed")
    except TransactionConflictError as error:
        send(error)
receive()
"""
    )
    for answer in ("the transaction began too many commits ago, or under an owner that has ended", "committed"):
        assert process.receive() == "begun"
        for number in range(60):
            put(owner, number, b"x")
        process.send()
        assert process.receive() == answer
    owner.close()


def test_few_commit_numbers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MOST_NUMBERED", 100)
    shared = memoryview(bytearray(16)).cast("Q")
    commits = history.CommitNumbers(shared, CommitNode())
    numbers = [shared[1]]
    for number in range(200):
        node = CommitNode(frozenset({key(number)}))
        commits.append(node)
        numbers.append(shared[1])
        assert commits.find(shared[1]) is node
    assert numbers == list(range(numbers[0], numbers[0] + 201))
    assert [commits.find(number) is not None for number in numbers] == [False] * 151 + [True] * 50
    commits.append(CommitNode(frozenset(map(key, range(1_000)))))
    assert commits.find(shared[1]) is not None
    assert commits.find(numbers[-1]) is None
    following = history.CommitNumbers(shared, CommitNode())
    assert following.find(shared[1]) is not None
    assert shared[1] > numbers[-1] + 1
    assert following.find(numbers[-1] + 1) is None, "no number is another owner's"


def test_commit_number_of_an_earlier_owner_is_a_conflict(folder: Path, run: Run) -> None:
    """The client has not noticed the change when it connects to the next owner, at the same path."""
    first = run(SERVE)
    assert first.receive() == "ready"
    client = open_engine(folder)
    put(client, "a", b"1")
    route = client.route
    assert isinstance(route, Client)
    snapshots = [client.begin(False) for _ in range(2)]
    first.signal(signal.SIGKILL)
    first.process.wait()
    second = run(SERVE)
    assert second.receive() == "ready"
    other = run(
        """
engine = open_engine(folder)
put(engine, "a", b"2")
send("done")
receive()
"""
    )
    assert other.receive() == "done"
    route.pool.close_idle()
    with pytest.raises(TransactionConflictError, match="an owner that has ended"):
        client.commit(snapshots[0], WriteSet({key("a"): b"3"}))
    snapshots[1].pin()
    with pytest.raises(TransactionConflictError, match="an owner that has ended"):
        snapshots[1].get(key("b"))
    assert client.get(key("a")) == b"2"
    client.close()
