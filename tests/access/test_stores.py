"""An asynchronous table keeps its promises over every store."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.cases import StoreCases

ROOT = Path(__file__).parents[2]


class TestMemory(StoreCases):
    processes = False

    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"


class TestLevelDB(StoreCases):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"


@pytest.fixture(scope="module")
def owner() -> Iterator[subprocess.Popen[str]]:
    """Start one process that owns the databases of all tests that request it."""
    command = [sys.executable, "-m", "tests.conformance.support.owner"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


class TestLevelDBOfAnotherProcess(StoreCases):
    """Another process owns the database: every connection of a test is a client's."""

    @pytest.fixture
    def url(self, tmp_path: Path, owner: subprocess.Popen[str]) -> Iterator[str]:
        url = f"leveldb://{tmp_path}/store"
        assert self.tell(owner, url) == "held"
        yield url
        assert self.tell(owner, url) == "closed"

    def tell(self, owner: subprocess.Popen[str], url: str) -> str:
        """Let the process open or close a database; return its answer."""
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(f"{url}\n")
        owner.stdin.flush()
        return owner.stdout.readline().strip()


class TestPostgreSQL(StoreCases):
    @pytest.fixture
    def url(self, postgresql_url: str) -> str:
        return postgresql_url


class TestHBase(StoreCases):
    rounds = 60

    @pytest.fixture
    def url(self, hbase_url: str) -> str:
        return hbase_url
