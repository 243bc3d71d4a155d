"""The platform of examples/services: its processes on real stores, killed or not, and its invariants."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.support.stores import url_of

ROOT = Path(__file__).parents[2]


def never_done(url: str, seconds: int, kills: int) -> str:
    """Run the services for so long; return what none of them has done."""
    command = [sys.executable, "-m", "examples.services", "--url", url, "--seconds", str(seconds)]
    ended = subprocess.run([*command, "--kills", str(kills)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    *services, agreed = ended.stdout.splitlines()
    assert agreed.endswith("all agree")
    assert len(services) == 4
    wanted = ("deployed", "started", "stopped", "terms as leader")
    return ", ".join(done for done in wanted if not any(f" {done} " in line for line in services))


@pytest.mark.parametrize(("store", "kills"), [("leveldb", 0), ("leveldb", 6), ("postgresql", 6), ("hbase", 2)])
def test_four_processes_agree(store: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with url_of(store, tmp_path, request) as url:
        # On a busy machine they may start for longer than they are to run.
        assert "" in (never_done(url, seconds, kills) for seconds in (3 + kills, 15 + kills, 60))


@pytest.mark.parametrize("example", ["joins", "services"])
def test_stores_in_memory_are_refused(example: str) -> None:
    command = [sys.executable, "-m", f"examples.{example}", "--url", "memory://x"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "belongs to one process" in ended.stderr
