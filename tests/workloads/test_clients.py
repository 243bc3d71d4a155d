"""Client processes begin together and report what they did; failures and wrong programs are not taken for results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from benchmarks.measuring import Scale
from benchmarks.workloads.clients import ClientError, Fleet, fleet
from benchmarks.workloads.contest import Contest, Rival, WorkloadFaultError
from benchmarks.workloads.orders.model import Size
from benchmarks.workloads.orders.requests import PaymentMade
from benchmarks.workloads.orders.sqlite_program import SqliteOrders
from benchmarks.workloads.programs import Action, Program, Step
from benchmarks.workloads.sqlite import MEMORY, SqlitePlace
from benchmarks.workloads.ycsb.records import Shape
from benchmarks.workloads.ycsb.sqlite_program import SqliteRecords

SCALE = Scale(records=100, rounds=1, seconds=0.02)


class Sleeper(Program):
    """Sleeps in each step, and reports what happened to it."""

    def __init__(self, *, client: int, clients: int) -> None:
        if (client, clients) == (1, 3):
            raise RuntimeError("the second of three never opens")
        self.client = client
        self.begun = 0.0
        self.taken: list[int] = []

    @property
    def actions(self) -> Mapping[str, Action]:
        return {"sleep": self._sleep, "fail": self._fail}

    def plan(self, work: str, seed: int, amount: int) -> list[Step]:
        self.begun = 0.0
        steps: list[Step] = [("sleep", (0.01 * (1 + self.client),))] * amount
        return [("fail", ())] if work == "failing" and self.client == 1 else steps[: seed or amount]

    def performed(self, steps: list[Step]) -> None:
        self.taken.append(len(steps))

    def report(self) -> tuple[int, float, list[int]]:
        return os.getpid(), self.begun, self.taken

    def _sleep(self, seconds: float) -> int:
        self.begun = self.begun or time.perf_counter()
        time.sleep(seconds)
        return 2

    def _fail(self) -> int:
        raise LookupError("no such step")

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def two() -> Iterator[Fleet]:
    with fleet(2) as clients:
        yield clients


def test_clients_work_at_once_for_the_time(two: Fleet) -> None:
    with two.opened("sleeper", Sleeper):
        begin = time.perf_counter()
        first, second = two.run("sleeper", "any", 0, 0.5)
        assert time.perf_counter() - begin >= 0.5
        for share, each in ((first, 0.01), (second, 0.02)):
            done = share.steps["sleep"]
            assert share.seconds >= 0.5
            assert 0 < done <= share.seconds / each
            assert share.effects == {"sleep": 2 * done}
        pid, begun, taken = two.call("sleeper", "report")
        assert pid != os.getpid()
        assert begin < begun
        assert taken == [first.steps["sleep"]]


def test_a_round_ends_with_the_steps(two: Fleet) -> None:
    with two.opened("sleeper", Sleeper):
        assert [share.steps.total() for share in two.run("sleeper", "any", 3, 60.0)] == [3, 3]


def test_a_failed_step_fails_the_round() -> None:
    with fleet(2) as clients, clients.opened("sleeper", Sleeper), pytest.raises(ClientError, match="no such step"):
        clients.run("sleeper", "failing", 2, 0.1)


def test_a_failed_opening_closes_what_was_opened() -> None:
    with fleet(3) as clients:
        with pytest.raises(ClientError, match="the second of three never opens"), clients.opened("sleeper", Sleeper):
            pass
        with pytest.raises(ClientError, match="KeyError"):
            clients.call("sleeper", "report")


class Forgetful(SqliteOrders):
    """Acknowledges every second payment without making it."""

    made = 0

    def payment(self, request: PaymentMade) -> int:
        self.made += 1
        return super().payment(request) if self.made % 2 else 1


class Blind(SqliteRecords):
    """Finds no record."""

    def read(self, key: str) -> int:
        return 0


def records(shape: Shape, *, client: int, clients: int) -> SqliteRecords:
    return SqliteRecords(SqlitePlace(MEMORY), shape, client=client, clients=clients)


def orders(size: Size, *, client: int, clients: int) -> SqliteOrders:
    return SqliteOrders(SqlitePlace(MEMORY), size, client=client)


def forgetful_orders(size: Size, *, client: int, clients: int) -> SqliteOrders:
    return Forgetful(SqlitePlace(MEMORY), size, client=client)


def blind_records(shape: Shape, *, client: int, clients: int) -> SqliteRecords:
    return Blind(SqlitePlace(MEMORY), shape, client=client, clients=clients)


@pytest.mark.parametrize(
    ("opens_records", "opens_orders", "message"),
    [(records, forgetful_orders, "acknowledged totals"), (blind_records, orders, "had an effect")],
)
def test_wrong_programs_are_found(
    opens_records: Callable[..., Program], opens_orders: Callable[..., Program], message: str
) -> None:
    right = Rival("right", records, orders)
    contest = Contest(Rival("wrong", opens_records, opens_orders), [right], SCALE)
    with fleet(1) as clients, pytest.raises(WorkloadFaultError, match=message):
        list(contest.run(clients, 0, load=True))


def test_right_programs_are_measured() -> None:
    floor = Rival("floor", records, orders, lambda _work, _clients: 3.0)
    contest = Contest(Rival("ours", records, orders), [floor], SCALE)
    with fleet(1) as clients:
        found = list(contest.run(clients, 0, load=True))
    assert [one.name for one in found] == [
        *(f"ours, YCSB {work}, 1 client" for work in "ABCDEF"),
        "ours, order entry, 1 client",
    ]
    assert {(one.against, one.goal) for one in found} == {("floor", 3.0)}
    assert all(one.ours > 0 and one.floor > 0 for one in found)
