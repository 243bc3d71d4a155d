"""The LevelDB store keeps the contract, with several processes on one database, in the owner and in clients."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.testing.conformance import BackendConformance
from tests.conformance.support.owner import owned, owner_process
from tests.conformance.support.sizes import examples, share_of


class TestLevelDB(BackendConformance):
    max_examples = examples(BackendConformance.max_examples)
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"


@pytest.fixture(scope="module")
def owner() -> Iterator[subprocess.Popen[str]]:
    """Start one process that owns the databases of all tests that request it."""
    with owner_process() as process:
        yield process


class TestLevelDBOfAnotherProcess(BackendConformance):
    """Another process owns the database: every connection of a test is a client's."""

    max_examples = examples(30)  # the class above tries more
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self, tmp_path: Path, owner: subprocess.Popen[str]) -> Iterator[str]:
        with owned(owner, f"leveldb://{tmp_path}/store") as url:
            assert json.loads((tmp_path / "store" / "owner").read_text())["process"] == owner.pid
            yield url
            assert json.loads((tmp_path / "store" / "owner").read_text())["process"] == owner.pid

    @pytest.fixture
    def absent_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/absent"
