"""The owner's own transactions wait for those of busy clients; the clock advances only during a wait."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.owner import turns
from structable.backends.leveldb.owner.turns import ClientPace, Turns
from structable.backends.ordered.engine import WriteSet

from .support.engines import key
from .support.processes import Process


class Clock:
    """A clock that a sleep advances, with an event during each sleep."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(turns, "time", clock)
    return clock


def a_transaction(pace: ClientPace, requests: int = 5) -> None:
    for _ in range(requests):
        pace.count_request()
    pace.end_transaction()


@pytest.mark.parametrize("requests", [1, 5, 12])
def test_the_owner_makes_less_than_twice_the_transactions_of_a_busy_client(clock: Clock, requests: int) -> None:
    all_turns, pace = Turns(), ClientPace([1])
    all_turns.paces[pace] = None
    made = 0

    def meanwhile() -> None:
        nonlocal made
        a_transaction(pace, requests)
        made += 1

    clock.meanwhile = meanwhile
    a_transaction(pace, requests)
    for _ in range(300):
        clock.now += 0.001
        all_turns.wait()
    assert 150 < made < 300


def test_an_idle_client_is_not_waited_for(clock: Clock) -> None:
    all_turns = Turns()
    for snapshots, silence in (([], 0.0006), ([1], 0.006)):
        pace = ClientPace(snapshots)
        all_turns.paces[pace] = None
        a_transaction(pace)
        clock.now += silence
        for _ in range(10):
            all_turns.wait()
    assert clock.slept == 0.0


def test_a_client_inside_a_transaction_is_waited_for_longer(clock: Clock) -> None:
    slept = []
    for snapshots in ([], [1]):
        all_turns, pace = Turns(), ClientPace(snapshots)
        all_turns.paces[pace] = None
        a_transaction(pace)
        before = clock.slept
        for _ in range(10):
            all_turns.wait()
            clock.now += 0.0002
        slept.append(clock.slept - before)
    assert 0 < slept[0] < slept[1] < 0.01


def test_waiting_is_bounded_by_what_the_owner_worked(clock: Clock) -> None:
    all_turns, pace = Turns(), ClientPace([1])
    all_turns.paces[pace] = None
    a_transaction(pace)
    for _ in range(20):
        all_turns.wait()
    clock.meanwhile = pace.count_request  # it goes on, but never far enough
    slept = clock.slept
    for _ in range(100):
        clock.now += 1e-5
        pace.count_request()
        pace.behind = 1e6
        all_turns.wait()
    assert clock.slept - slept <= 100 * 8 * 1e-5 * 1.001


def test_only_connected_clients_count(engine: LevelDBEngine, run: Callable[[str], Process]) -> None:
    store = engine.route.store  # type: ignore[attr-defined]
    assert not store.turns.paces
    process = run(
        """
engine = open_engine(folder)
engine.commit(None, WriteSet({key("a"): b"1"}))
send("ready")
receive()
engine.close()
send("closed")
receive()
"""
    )
    assert process.receive() == "ready"
    [pace] = store.turns.paces
    assert pace.size >= 1.0
    engine.commit(engine.begin(False), WriteSet({key("b"): b"1"}))
    process.send()
    assert process.receive() == "closed"
    engine.commit(engine.begin(False), WriteSet({key("b"): b"2"}))
    assert process.end() == 0
    for _ in range(1_000):
        if not store.turns.paces:
            break
        time.sleep(0.01)
    assert not store.turns.paces
