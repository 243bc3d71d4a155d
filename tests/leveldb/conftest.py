"""Fixtures of the LevelDB store's tests."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.engine import LevelDBEngine

from .support.engines import open_engine
from .support.processes import SERVE, Process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a test a temporary folder of its own, for it and the processes that it starts."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def engine(folder: Path) -> Iterator[LevelDBEngine]:
    engine = open_engine(folder)
    yield engine
    engine.close()


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[[str], Process]]:
    """Start processes that are killed at the end."""
    started: list[Process] = []

    def start(script: str) -> Process:
        started.append(Process(script, folder))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def client(folder: Path, run: Callable[[str], Process]) -> LevelDBEngine:
    """An engine whose database another process owns."""
    assert run(SERVE).receive() == "ready"
    engine = open_engine(folder)
    assert isinstance(engine.route, Client)
    return engine


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)
