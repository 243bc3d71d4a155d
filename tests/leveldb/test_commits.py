"""Snapshots and optimistic commits in the owning process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable

import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.owner.commit_nodes import BulkNode, CommitNode, check_conflicts
from structable.backends.ordered.engine import Increment, Operand, ReadSet, WriteSet
from structable.spi import TransactionClosedError, TransactionConflictError

from .support.engines import SPACE, Bulk, key, put, read_all


def test_snapshot_does_not_see_later_commits(engine: LevelDBEngine) -> None:
    put(engine, "a", b"old")
    snapshot = engine.begin(False)
    put(engine, "a", b"new")
    put(engine, "b", b"new")
    assert snapshot.get(key("a")) == b"old"
    assert snapshot.get_many([key("a"), key("b")]) == [b"old", None]
    assert list(snapshot.scan(SPACE, SPACE + b"\xff")) == [(key("a"), b"old")]
    assert engine.get(key("a")) == b"new"


def test_backward_scan_finds_the_same_keys(engine: LevelDBEngine) -> None:
    """Also where the only key is the first of the interval, which plyvel 1.5.1 misses."""
    engine.commit(None, WriteSet({key(name): b"x" for name in "abc"}))
    snapshot = engine.begin(True)
    bounds = [key(name) for name in ("", "a", "aa", "b", "bb", "c", "cc", "d")]
    for begin in bounds:
        for end in bounds:
            forward = list(snapshot.scan(begin, end))
            assert forward == [(key(n), b"x") for n in "abc" if begin <= key(n) < end]
            assert list(snapshot.scan(begin, end, reverse=True)) == forward[::-1]


def test_first_to_commit_wins(engine: LevelDBEngine) -> None:
    first, second = engine.begin(False), engine.begin(False)
    engine.commit(first, WriteSet({key("a"): b"1"}))
    with pytest.raises(TransactionConflictError):
        engine.commit(second, WriteSet({key("a"): b"2"}))
    with pytest.raises(TransactionConflictError):
        engine.commit(second, WriteSet({key("a"): None, key("z"): b"2"}))
    engine.commit(second, WriteSet({key("b"): b"2"}))
    assert read_all(engine) == {key("a"): b"1", key("b"): b"2"}


def test_unchecked_commit_conflicts_with_nothing_but_is_seen(engine: LevelDBEngine) -> None:
    snapshot = engine.begin(False)
    put(engine, "a", b"1")
    put(engine, "a", b"2")
    with pytest.raises(TransactionConflictError):
        engine.commit(snapshot, WriteSet({key("a"): b"3"}))


def test_increments_meet_and_writes_do_not(engine: LevelDBEngine) -> None:
    def increment(amount: int) -> WriteSet:
        return WriteSet(increments={key("n"): (Increment(b"", "n", amount),)})

    one, other, writer = engine.begin(False), engine.begin(False), engine.begin(False)
    engine.commit(one, increment(5))
    engine.commit(other, increment(7))
    assert engine.get(key("n")) == b"12"
    with pytest.raises(TransactionConflictError):
        engine.commit(writer, WriteSet({key("n"): b"0"}))
    late = engine.begin(False)
    put(engine, "n", b"100")
    with pytest.raises(TransactionConflictError):
        engine.commit(late, increment(1))


def test_operands_meet_and_nothing_else_does(engine: LevelDBEngine) -> None:
    operand = WriteSet(increments={key("n"): (Operand(b"", b"5"),)})
    increment = WriteSet(increments={key("n"): (Increment(b"", "n", 1),)})
    one, other, late, writer = (engine.begin(False) for _ in range(4))
    engine.commit(one, operand)
    engine.commit(other, operand)
    assert engine.get(key("n")) == b"10"
    for changes in (increment, WriteSet({key("n"): b"0"}), WriteSet({key("x"): b"0"}, reads=ReadSet({key("n")}))):
        with pytest.raises(TransactionConflictError):
            engine.commit(late, changes)
    for changes in (increment, WriteSet({key("n"): b"0"})):
        late = engine.begin(False)
        engine.commit(None, changes)
        with pytest.raises(TransactionConflictError):
            engine.commit(late, operand)
    engine.commit(writer, WriteSet(increments={key("m"): (Operand(b"", b"5"), Operand(b"s", b"6"))}))
    assert engine.get(key("m")) == b"11"


def test_derived_conflicts_with_reads_alone(engine: LevelDBEngine) -> None:
    writer, reader = engine.begin(False), engine.begin(False)
    put(engine, "x", b"1")
    engine.commit(None, WriteSet(derived={key("index/5"): b"1"}))
    engine.commit(writer, WriteSet({key("y"): b"1"}, derived={key("index/5"): b"2"}))
    with pytest.raises(TransactionConflictError):
        engine.commit(reader, WriteSet({key("z"): b"1"}, reads=ReadSet(set(), [(key("index/"), key("index0"))])))


@pytest.mark.parametrize(
    ("reads", "conflicts"),
    [
        (ReadSet({key("a")}), True),
        (ReadSet({key("b")}), False),
        (ReadSet(set(), [(key("0"), key("b"))]), True),
        (ReadSet(set(), [(key("b"), key("c")), (key("d"), key("z"))]), False),
        (ReadSet(), False),
    ],
)
def test_serializable_reads(engine: LevelDBEngine, reads: ReadSet, conflicts: bool) -> None:
    snapshot = engine.begin(False)
    put(engine, "a", b"1")
    changes = WriteSet({key("own"): b"1"}, reads=reads)
    if conflicts:
        with pytest.raises(TransactionConflictError):
            engine.commit(snapshot, changes)
    else:
        engine.commit(snapshot, changes)
    assert (engine.get(key("own")) is None) == conflicts


def test_schema_change_advances_the_epoch_and_conflicts(engine: LevelDBEngine) -> None:
    before, epoch = engine.begin(False), engine.epoch
    engine.commit(None, WriteSet({key("schema"): b"2"}, changed_spaces={SPACE}))
    assert engine.epoch == epoch + 1
    after = engine.begin(False)
    assert (before.epoch, after.epoch) == (epoch, epoch + 1)
    with pytest.raises(TransactionConflictError):
        engine.commit(before, WriteSet({key("a"): b"1"}, spaces={SPACE}))
    engine.commit(after, WriteSet({key("a"): b"1"}, spaces={SPACE}))


def test_closed_snapshot_is_refused(engine: LevelDBEngine) -> None:
    snapshot = engine.begin(False)
    scan = snapshot.scan(SPACE, SPACE + b"\xff")
    snapshot.close()
    snapshot.close()
    with pytest.raises(TransactionClosedError):
        snapshot.get(key("a"))
    with pytest.raises(TransactionClosedError):
        engine.commit(snapshot, WriteSet({key("a"): b"1"}))
    del scan


def test_history_is_freed_with_the_last_snapshot_that_needs_it(engine: LevelDBEngine) -> None:
    """However long it is: a recursive deallocation of a long list would crash the process."""
    before = _nodes()
    old = engine.begin(False)
    node = first_node = CommitNode()
    for _ in range(300_000):
        node.next = CommitNode()
        node = node.next
    del node
    del first_node  # frees the whole list
    for number in range(2_000):
        put(engine, number, b"x")
    with pytest.raises(TransactionConflictError):
        engine.commit(old, WriteSet({key(1_000): b"y"}))
    old.close()
    assert _nodes() < before + 10


def _nodes() -> int:
    """Return the number of commits in the histories of this process."""
    gc.collect()
    return sum(isinstance(thing, CommitNode) for thing in gc.get_objects())


@pytest.mark.parametrize("size", [10, 100_000])
def test_bulk_node_knows_its_keys(size: int) -> None:
    start, node = CommitNode(), BulkNode()
    keys = [key(number) for number in range(size)]
    for place in range(0, size, 1_000):
        node.note(keys[place : place + 1_000])
    node.seal()
    start.next = node
    for name in (0, size // 2, size - 1):
        with pytest.raises(TransactionConflictError):
            check_conflicts(start.next, WriteSet({key(name): b""}))
        with pytest.raises(TransactionConflictError):
            check_conflicts(start.next, WriteSet(reads=ReadSet({key(name)})))
    check_conflicts(start.next, WriteSet({key(size): b"", key("x"): b""}, reads=ReadSet({key("y")})))
    with pytest.raises(TransactionConflictError):
        check_conflicts(start.next, WriteSet(reads=ReadSet(set(), [(key(""), key("zz"))])))


def test_threads_that_commit_at_once_lose_nothing(engine: LevelDBEngine) -> None:
    """Groups, single commits, conflicts and bulk commits mixed: the sum of all acknowledged increments is there."""
    threads, rounds = 8, 150
    done = [0] * threads
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(rounds):
                snapshot = engine.begin(False)
                value = int(snapshot.get(key("counter")) or b"0")
                changes = WriteSet(
                    {key("counter"): b"%d" % (value + 1), key(f"{number}-{turn}"): b"x"},
                    increments={key("sum"): (Increment(b"", "n", 1),)},
                )
                try:
                    engine.commit(snapshot, changes)
                    done[number] += 1
                except TransactionConflictError:
                    pass
                snapshot.close()
                if number == 0 and turn % 50 == 0:
                    engine.commit_bulk(Bulk([{key(f"bulk-{turn}"): b"x"}]))
        except BaseException as error:
            failures.append(error)

    _run([threading.Thread(target=work, args=(number,)) for number in range(threads)])
    assert not failures
    rows = read_all(engine)
    assert int(rows[key("counter")]) == int(rows[key("sum")]) == sum(done) > threads
    assert len(rows) == 2 + sum(done) + 3


def test_failed_increment_fails_alone(engine: LevelDBEngine) -> None:
    put(engine, "n", b"not a number")
    with pytest.raises(ValueError, match="invalid literal"):
        engine.commit(engine.begin(False), WriteSet({key("a"): b"1"}, increments={key("n"): (Increment(b"", "n", 1),)}))
    assert engine.get(key("a")) is None
    put(engine, "b", b"1")


def _run(threads: Iterable[threading.Thread]) -> None:
    threads = list(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
