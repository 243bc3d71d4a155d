"""A leader whose process is stopped for longer than its lease commits nothing under it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.datasets import Leader, Lease, SystemData

from .conftest import Place
from .support.invariants import violations
from .support.leading import NAME, write_under
from .support.ledger import entries

ROOT = Path(__file__).parents[3]


class LeadingProcess:
    """A process that leads, and the lines that it exchanges with the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on_to(self, wanted: str) -> None:
        """Let it go on, and expect its next line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self.line() == wanted

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def first(place: Place) -> Iterator[LeadingProcess]:
    """Return a process that leads, and is about to commit its first write."""
    command = [sys.executable, "-m", "tests.datasets.concurrency.support.leading", place.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        leading = LeadingProcess(process)
        assert leading.line() == "leading 1"
        assert leading.line() == "committing"
        yield leading
        process.kill()


def owners(system: SystemData) -> list[str]:
    """Return the owners that wrote, in the order of their writes."""
    with system.transaction(read_only=True) as s:
        found = [(int(str(one.facts["number"])), str(one.facts["owner"])) for one in entries(s.tx, "leased")]
    return [owner for _, owner in sorted(found)]


@pytest.mark.parametrize("shared_place", ["leveldb", "postgresql"], indirect=True)
@pytest.mark.parametrize("inside", [False, True], ids=["between_transactions", "inside_a_transaction"])
def test_stopped_leader_commits_nothing(place: Place, first: LeadingProcess, inside: bool) -> None:
    """It is stopped when it has checked its lease and is about to commit, or before it checks again."""
    first.go_on_to("committed")
    if inside:
        first.go_on_to("committing")
    first.stop()
    with SystemData.open(place.storage) as system:

        def lead(lease: Lease) -> None:
            assert lease.token == 2
            write_under(system, lease)
            first.resume()
            first.go_on_to("lost")
            write_under(system, lease)

        Leader(system, NAME, owner="second", ttl=1).run(lead)
        assert owners(system) == ["first", "second", "second"]
        assert violations(system) == []
