"""Workers killed under writers, on real stores, while a reader compares every state that it sees: `examples/joins`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.support.stores import url_of

ROOT = Path(__file__).parents[2]
SECONDS = os.environ.get("STRUCTABLE_TEST_JOIN_SECONDS", "5")


@pytest.mark.parametrize("store", ["leveldb", "postgresql", "hbase"])
def test_the_result_is_the_join_whenever_it_is_read(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with url_of(store, tmp_path, request) as url:
        options = ["--url", url, "--seconds", SECONDS, "--workers", "5", "--kill", "1"]
        command = [sys.executable, "-m", "examples.joins", *options]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = re.search(r"(\d+) reads at (\d+) positions, (\d+) workers killed\n\d+ rows .* 0 differ", ended.stdout)
    assert found is not None, ended.stdout
    assert min(map(int, found.groups())) >= 1
