"""The LevelDB store keeps the contract, with several processes on one database, in the owner and in clients."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi.conformance import BackendConformance
from tests.conformance.support.sizes import examples, share_of

ROOT = Path(__file__).parent.parent.parent


class TestLevelDB(BackendConformance):
    max_examples = examples(BackendConformance.max_examples)
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"


@pytest.fixture(scope="module")
def owner() -> Iterator[subprocess.Popen[str]]:
    """Start one process that owns the databases of all tests that request it."""
    command = [sys.executable, "-m", "tests.conformance.support.owner"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


class TestLevelDBOfAnotherProcess(BackendConformance):
    """Another process owns the database: every connection of a test is a client's."""

    max_examples = examples(30)  # the class above tries more
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self, tmp_path: Path, owner: subprocess.Popen[str]) -> Iterator[str]:
        url = f"leveldb://{tmp_path}/store"
        assert self.tell(owner, url) == "held"
        assert json.loads((tmp_path / "store" / "owner").read_text())["process"] == owner.pid
        yield url
        assert json.loads((tmp_path / "store" / "owner").read_text())["process"] == owner.pid
        assert self.tell(owner, url) == "closed"

    @pytest.fixture
    def absent_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/absent"

    def tell(self, owner: subprocess.Popen[str], url: str) -> str:
        """Let the process open or close a database; return its answer."""
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(f"{url}\n")
        owner.stdin.flush()
        return owner.stdout.readline().strip()
