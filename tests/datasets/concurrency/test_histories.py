"""Histories of publishers that are held open, rolled back and killed: each message once, in one order, in real time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from structable.datasets import SystemData

from .conftest import Place
from .support.histories import Seen, problems
from .support.publishing import HISTORY, Publish, publish

ROOT = Path(__file__).parents[3]
TRANSACTIONS = int(os.environ.get("STRUCTABLE_TEST_PUBLISHED", "25"))
"""Transactions of each publisher; a fifth on HBase."""
THREADS, PROCESSES = 2, 2
LIMITS = {"one by one": 1, "in sevens": 7, "in hundreds": 100}


class Publishing:
    """A process that publishes, and what it has told."""

    def __init__(self, url: str, number: int, seed: str, count: int) -> None:
        command = [sys.executable, "-m", "tests.datasets.concurrency.support.publishing"]
        self._process = subprocess.Popen(
            [*command, url, f"process-{number}", f"{seed}/process-{number}", str(count)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run(self, killed_after: int | None) -> list[Publish]:
        """Let it publish, kill it after so many lines, and return what it told."""
        told: list[Publish] = []
        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            for line in process.stdout:
                told.append(json.loads(line))
                if len(told) == killed_after:
                    process.kill()
        return told


def read(system: SystemData, limit: int, stop: threading.Event) -> list[Seen]:
    """Read until publishers have stopped and nothing is left, and commit each batch."""
    seen: list[Seen] = []
    with system.consumer(HISTORY, group=f"in {limit}") as consumer:
        while True:
            last = stop.is_set()
            batch = consumer.poll(limit, wait=0.05)
            seen += [(message.id, message.body) for message in batch.messages]
            batch.commit()
            if last and not batch:
                return seen


def history(place: Place, seed: str) -> tuple[list[Publish], dict[str, Sequence[Seen]]]:
    """Publish from threads and processes, of which one is killed, while readers read."""
    system, chance = SystemData(place.storage), random.Random(seed)
    system.topics.create(HISTORY)
    count = TRANSACTIONS if place.kind != "hbase" else max(3, TRANSACTIONS // 5)
    told: list[Publish] = []
    readers: dict[str, Sequence[Seen]] = {}
    errors: list[BaseException] = []
    stop = threading.Event()

    def in_thread(act: str, number: int = 0) -> None:
        try:
            if act == "publish":
                publish(system, f"thread-{number}", f"{seed}/{number}", count, told.append)
            else:
                readers[act] = read(system, LIMITS[act], stop)
        except BaseException as error:
            errors.append(error)

    others = [] if place.kind == "memory" else [Publishing(place.url, n, seed, count) for n in range(PROCESSES)]
    reading = [threading.Thread(target=in_thread, args=(name,)) for name in LIMITS]
    publishing = [threading.Thread(target=in_thread, args=("publish", number)) for number in range(THREADS)]
    killed = [chance.randrange(count) if number == 0 else None for number in range(PROCESSES)]
    publishing += [
        threading.Thread(target=lambda one, after: told.extend(one.run(after)), args=(one, after))
        for one, after in zip(others, killed, strict=False)
    ]
    for thread in reading + publishing:
        thread.start()
    for thread in publishing:
        thread.join()
    stop.set()
    for thread in reading:
        thread.join()
    assert errors == []
    with system.consumer(HISTORY, group="whole") as consumer:
        whole: list[Seen] = []
        keep = lambda s, messages: whole.extend((one.id, one.body) for one in messages)  # noqa: E731
        while consumer.process(keep, 1000, wait=0):
            pass
    return told, {**readers, "whole": whole}


@pytest.mark.parametrize("shared_place", ["memory", "leveldb", "postgresql"], indirect=True)
def test_history(place: Place) -> None:
    seed = os.environ.get("STRUCTABLE_TEST_SEED", "0")
    published, readers = history(place, seed)
    assert problems(published, readers) == []
    assert all(readers.values())


@pytest.mark.xdist_group("datasets_on_hbase")
@pytest.mark.parametrize("shared_place", ["hbase"], indirect=True)
def test_history_on_hbase(place: Place) -> None:
    test_history(place)


def told(name: str, began: float, ended: float, outcome: str = "committed") -> Publish:
    return {"transaction": name, "began": began, "ended": ended, "messages": 2, "outcome": outcome}


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        ("a/0 a/1 b/0 b/1", None),
        ("a/0 b/0 b/1", "a, committed"),
        ("a/0 a/1 a/0 a/1 b/0 b/1", "a, committed"),
        ("a/1 a/0 b/0 b/1", "has the number"),
        ("a/0 b/0 a/1 b/1", "is of"),
        ("b/0 b/1 a/0 a/1", "comes after it"),
        ("a/0 a/1 b/0 b/1 c/0 c/1", "c, rolled back"),
        ("a/0 a/1 b/0 b/1 d/0 d/1", None),
        ("a/0 a/1 b/0 b/1 d/0", "d, unknown"),
    ],
)
def test_planted_violation_is_found(bodies: str, found: str | None) -> None:
    published = [told("a", 0, 1), told("b", 2, 3), told("c", 0, 9, "rolled back"), told("d", 0, 9, "unknown")]
    whole = [(f"{1 + index // 2}.{index % 2}", body.encode()) for index, body in enumerate(bodies.split())]
    broken = problems(published, {"whole": whole})
    assert broken == [] if found is None else any(found in one for one in broken)
    assert problems(published, {"whole": whole, "one": whole[1:]})[-1:] == ["one saw another order"]
