"""Kill or stall a bank operation in the middle, and check that the others can go on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from structable.backends.hbase.failpoints import failpoints
from structable.spi import Storage, Transaction

from .bank import require_sound, transfer
from .internals import collect_garbage

_ROOT = Path(__file__).parents[3]
_KILLED = -9
_TIMEOUT = 120

at_each_step_of_a_job = pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_listed", 1, False),
        ("bulk_locked", 1, False),
        ("bulk_locked", 2, False),
        ("bulk_prewritten", 1, False),
        ("before_commit", 1, False),
        ("after_commit", 1, True),
        ("bulk_committed", 1, True),
        ("mid_bulk_cleanup", 1, True),
        ("mid_bulk_cleanup", 2, True),
    ],
)
"""Where a job is killed, and whether it is then committed."""


def killed(what: str, url: str, point: str, number: int = 1) -> None:
    """Run a worker that must be killed at the point."""
    command = [sys.executable, "-m", "tests.hbase.support.bank_worker", what, url, point, str(number)]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert ended.returncode == _KILLED, f"it did not come by {point}: {ended.stdout}{ended.stderr}"


@contextmanager
def stalled_commit(transaction: Transaction, point: str) -> Iterator[Future[None]]:
    """Commit in a thread that waits at the point until the block ends; others pass it."""
    stalled, go_on = threading.Event(), threading.Event()

    def stall() -> None:
        if threading.current_thread().name.startswith("stalling"):
            stalled.set()
            assert go_on.wait(_TIMEOUT)

    with ThreadPoolExecutor(1, "stalling") as pool:
        failpoints[point] = stall
        try:
            committing = pool.submit(transaction.commit)
            assert stalled.wait(_TIMEOUT)
            del failpoints[point]
            yield committing
        finally:
            go_on.set()


def write_on(storage: Storage, accounts: int) -> None:
    """Write all rows that may have intents of the dead process, which is then cleaned up after."""
    storage.run(lambda transaction: transfer(transaction, "next", 0, 1, 1), max_attempts=1_000)
    storage.run(lambda transaction: transfer(transaction, "doomed or other", 1, 2, 2), max_attempts=1_000)
    assert {"next", "doomed or other"} <= require_sound(storage, accounts)
    while True:
        report = collect_garbage(storage)
        if report.pending == report.unfinalised == report.aborted == report.finalised == 0:
            break
    assert {"next", "doomed or other"} <= require_sound(storage, accounts)
