"""The pipeline of examples/pipelines on real stores, killed twice."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.support.stores import url_of

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.xdist_group("spark-applications"), pytest.mark.slow]


@pytest.mark.parametrize("store", ["leveldb", "postgresql"])
def test_tables_are_those_of_the_model(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with url_of(store, tmp_path, request) as url:
        command = [sys.executable, "-m", "examples.pipelines", "--url", url, "--kills", "2", "--files", "4"]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("as the model has them") == 3
