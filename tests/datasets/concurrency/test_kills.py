"""Cascades that are killed at each of their commits: the rest is whole, and a second call removes it."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from structable.datasets import DatasetRef, JobState, ProgramRef, RunStatus, Session, SystemData
from structable.datasets.tables import ALL_TABLES
from structable.spi import Storage, connect
from tests.datasets.support.ticks import Ticks

from .conftest import Place
from .support.application_workloads import RUN_IDS, deploy
from .support.cascade_workloads import add_to_application, add_to_namespace
from .support.consuming import COUNTED, POISON, JumpingClock, consume
from .support.invariants import violations
from .support.job_workloads import finish
from .support.killed import KEPT_RUNS, call
from .support.ledger import LEDGER, entries, note
from .support.workloads import open_system

ROOT = Path(__file__).parents[3]
RUNS = 3
CONSUMER_KILL_STEP = int(os.environ.get("STRUCTABLE_TEST_CONSUMER_KILL_STEP", "5"))
"""A consumer is killed at every so many points."""
OPERATIONS = {
    "remove_application": ["c0", "a0"],
    "remove_namespace": ["c0"],
    "delete_history": ["c0"],
}
POINTS = {"remove_application": 6, "remove_namespace": 8, "delete_history": 2}
"""Before and after each commit: of the search for old runs, of each chunk of them, and of the rest."""


class Killing:
    """A process that forks children, of which each is killed at a point of its work."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._receive() == "ready"

    def run(self, url: str, operation: str, arguments: list[str], point: int) -> int:
        """Return how the child ended: 0, or the negative number of the signal."""
        order = {"url": url, "operation": operation, "arguments": arguments, "point": point}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._receive())

    def _receive(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    command = [sys.executable, "-m", "tests.datasets.concurrency.support.killed"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Killing(process)
        process.kill()


def fill(s: Session) -> None:
    """Make what is absent of two namespaces with two applications each, with rows in most tables."""
    for namespace in ("c0", "c1"):
        if s.namespaces.get(namespace) is None:
            s.namespaces.create(namespace)
        if s.profiles.get(namespace, "p") is None:
            for what in range(9):
                add_to_namespace(s, namespace, what)
            s.profiles.assign(namespace, "p", "entity")
        for application in ("a0", "a1"):
            ref = ProgramRef(namespace, application, "service", "p")
            if s.applications.latest(namespace, application) is None:
                deploy(s, namespace, application, "1")
                for what in (1, 2, 3):
                    add_to_application(s, namespace, application, what, "")
                s.usage.register(ref, DatasetRef("default", "d"))
            for number in range(RUNS):
                run = RUN_IDS[number]
                if s.runs.get(ref, run) is None:
                    s.runs.provision(ref, run, version="1", source=1, arguments={"tag": run})
                    s.lineage.access(ref.run(run), DatasetRef("default", "d"))
                    s.workflows.set_token(ref, run, {"a": 1})
                if number % 2 == 0:
                    s.runs.stop(ref, run, status=RunStatus.KILLED, source=2)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The rows of the store, by what an operation removes: runs, other rows within its arguments, and all others."""

    runs: list[tuple[str, bool]]
    """Ids, with whether they are active, oldest first."""
    within: set[str]
    others: set[str]


def found(system: SystemData, arguments: list[str]) -> Found:
    runs, within, others = [], set(), set()
    with system.transaction(read_only=True) as s:
        for table in ALL_TABLES:
            if table.name == "fences":
                continue
            with s.tx.table(f"sys_{table.name}").scan() as rows:
                for row in rows:
                    if [row.get("namespace"), row.get("application")][: len(arguments)] != arguments:
                        others.add(f"{table.name} {dict(row)}")
                    elif table.name == "runs":
                        runs.append((str(row["run"]), row["active"] is True))
                    else:
                        within.add(f"{table.name} {dict(row)}")
    return Found(sorted(runs), within, others)


def check_killed(operation: str, before: Found, after: Found) -> None:
    """Check that only what goes before the last transaction is gone, or all that the operation removes."""
    assert after.others == before.others
    if operation == "delete_history":
        assert after.within == before.within
        assert after.runs in (before.runs, [run for run in before.runs if run[1]])
    elif after.within:
        assert after.within == before.within, "what goes in the last transaction goes as a whole"
        assert len(after.runs) >= KEPT_RUNS
        assert after.runs == before.runs[-len(after.runs) :], "older runs go first"
    else:
        assert after.runs == []


def check_completed(operation: str, before: Found, after: Found) -> None:
    """Check that all that the operation removes is gone, and nothing else."""
    assert after.others == before.others
    removes_history = operation == "delete_history"
    assert after.within == (before.within if removes_history else set())
    assert after.runs == ([run for run in before.runs if run[1]] if removes_history else [])


def kill_at_each_point(
    connected: Callable[[], AbstractContextManager[Storage]], url: str, killing: Killing, operation: str
) -> None:
    """Kill the operation before and after each of its commits, and complete it, until there is no further commit."""
    arguments = OPERATIONS[operation]
    ended = -signal.SIGKILL
    point = 0
    while ended == -signal.SIGKILL:
        with connected() as storage:
            system = open_system(storage, "cascades")
            system.run(fill)
            before = found(system, arguments)
        ended = killing.run(url, operation, arguments, point)
        with connected() as storage:
            system = open_system(storage, "cascades")
            check_killed(operation, before, found(system, arguments))
            assert violations(system) == []
            call(system, operation, arguments)
            check_completed(operation, before, found(system, arguments))
        point += 1
    assert ended == 0
    assert point - 1 == POINTS[operation]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shared_place", ["leveldb", "postgresql"], indirect=True)
def test_killed_operation_is_completed_by_another_call(place: Place, killing: Killing, operation: str) -> None:
    kill_at_each_point(lambda: nullcontext(place.storage), place.url, killing, operation)


@pytest.mark.xdist_group("datasets_on_hbase")
@pytest.mark.parametrize("shared_place", ["hbase"], indirect=True)
def test_killed_operation_is_completed_on_hbase(place: Place, killing: Killing) -> None:
    kill_at_each_point(lambda: nullcontext(place.storage), place.url, killing, "remove_application")


@pytest.mark.parametrize("shared_place", ["leveldb", "postgresql"], indirect=True)
def test_jobs_of_a_killed_worker_are_done_exactly_once(place: Place, killing: Killing) -> None:
    """A worker of four jobs is killed before and after each of its commits; another one finishes its jobs."""
    system, chance = open_system(place.storage, "jobs"), random.Random(0)
    ended, killed, total = -signal.SIGKILL, 0, 0
    while ended == -signal.SIGKILL:
        for _ in range(2):
            system.run(lambda s: [note(s.tx, "enqueued", s.jobs.enqueue("q", n, timeout=1).id) for n in range(2)])
        total += 4
        ended = killing.run(place.url, "work", ["4"], killed)
        assert violations(system) == []
        finish(system, chance)
        assert violations(system) == []
        assert system.run(lambda s: s.jobs.counts("q"))[JobState.DONE] == total
        killed += 1
    assert ended == 0
    assert killed > 8


@pytest.mark.parametrize("shared_place", ["leveldb", "postgresql"], indirect=True)
def test_messages_of_a_killed_consumer_are_handled_exactly_once(place: Place, killing: Killing) -> None:
    """A consumer is killed before and after its commits; another one takes over. Some messages are poisonous."""
    ticks = Ticks()
    system = SystemData(place.storage, clock=JumpingClock(), monotonic=ticks)
    system.topics.create(COUNTED)
    published: list[bytes] = []

    def publish(*bodies: bytes) -> None:
        published.extend(bodies)
        with system.transaction() as s:
            for body in bodies:
                s.publish(COUNTED, body)

    ended, point = -signal.SIGKILL, 0
    while ended == -signal.SIGKILL:
        publish(*(b"%d-%d" % (point, n) for n in range(2)), b"%s-%d" % (POISON, point), b"%d-2" % point)
        publish(*(b"%d-%d" % (point, n) for n in range(3, 6)))
        ended = killing.run(place.url, "consume", [], point)
        publish(b"%d-6" % point)
        with system.consumer(COUNTED, group="g", ttl=3600) as watching:
            watching.poll(wait=0)
        ticks.tick(3600)
        consume(system)
        with system.transaction(read_only=True) as s:
            handled = Counter(entry.subject for entry in entries(s.tx, "handled"))
        assert handled == Counter(body.decode() for body in published if not body.startswith(POISON))
        dead = [one.body for one in system.topics.dead(COUNTED, "g")]
        assert dead == [body for body in published if body.startswith(POISON)]
        point += CONSUMER_KILL_STEP
    assert ended == 0
    assert point > 20


def test_killed_owner_of_the_store(tmp_path: Path, killing: Killing) -> None:
    """The killed process is the one that has opened LevelDB's files."""
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        SystemData.create(storage)
        storage.admin.create(LEDGER.specification)
    kill_at_each_point(lambda: connect(url), url, killing, "remove_application")
