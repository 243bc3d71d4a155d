"""Processes that are killed at one of their writes, and write jobs of few rows that have several chunks."""

from __future__ import annotations

import pytest

from structable.backends.ordered.jobs import rows

CHUNK_ROWS = 20
COUNT_WRITES = f"""
from structable.backends.ordered.jobs import rows
rows._CHUNK_ROWS = {CHUNK_ROWS}
from structable.backends.leveldb.native.database import Database
real, left = Database.write, 1000
def write(self, parts, sync):
    global left
    if not left:
        os.kill(os.getpid(), 9)
    left -= 1
    real(self, parts, sync)
Database.write = write
"""
"""The beginning of such a process: it ends at the write when `left` is 0."""
OPEN = (
    COUNT_WRITES
    + """
from structable.spi import connect
left = 1
connect(f"leveldb://{folder}")
"""
)
"""A process that opens the database, and is killed at its second write."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks of as few rows as in the processes that are killed, which this one may have to complete."""
    monkeypatch.setattr(rows, "_CHUNK_ROWS", CHUNK_ROWS)
