"""An asynchronous table keeps its promises over every store."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.support.owner import owned, owner_process

from .support.cases import StoreCases


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
    with owner_process() as process:
        yield process


class TestLevelDBOfAnotherProcess(StoreCases):
    """Another process owns the database: every connection of a test is a client's."""

    @pytest.fixture
    def url(self, tmp_path: Path, owner: subprocess.Popen[str]) -> Iterator[str]:
        with owned(owner, f"leveldb://{tmp_path}/store") as url:
            yield url


class TestPostgreSQL(StoreCases):
    @pytest.fixture
    def url(self, postgresql_url: str) -> str:
        return postgresql_url


class TestHBase(StoreCases):
    rounds = 60

    @pytest.fixture
    def url(self, hbase_url: str) -> str:
        return hbase_url
