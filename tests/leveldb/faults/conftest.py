"""Fixtures of the fault tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.preload import Worker, build

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(build(tmp_path_factory.mktemp("library")))
    yield worker
    worker.close()


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a file system, which only saves time."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        yield Path(folder)
