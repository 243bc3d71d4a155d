"""The benchmarks run, and know every goal. `make bench` measures, on a machine with no other work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sessions import JDBC_DRIVER
from tests.hbase.support.shared import URL_VARIABLE as HBASE_URL_VARIABLE
from tests.postgresql.support.shared import URL_VARIABLE

ROOT = Path(__file__).parent.parent

GOALS = {
    "points": [1.8, 2.3, 1.8, 2.0],
    "bulk": [4.0, 8.0],
    "scans": [6.0, 2.5, 0.5],
    "group_commit": [0.35],
    "client": [3.0, 3.0, 0.5, 0.5],
    "postgresql": [1.1, 0.75, 1.1, 0.5, 0.25, 1.1, 0.9, 1.0, 1.0],
    "hbase": [1.3, 1.5, 1.3, 4.5, 4.5, 3.0, 3.0, 0.5],
    "spark": [2.5],
    "memory": [400.0, 400.0, 400.0, 400.0],
}

USE_SPARK = {"postgresql", "spark"}


@pytest.mark.parametrize(
    "area", [pytest.param(area, marks=pytest.mark.xdist_group("spark") if area in USE_SPARK else ()) for area in GOALS]
)
def test_benchmarks_run(area: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    goals, environment = GOALS[area], dict(os.environ)
    if area == "postgresql":
        environment[URL_VARIABLE] = request.getfixturevalue("postgresql_conninfo")
        if not JDBC_DRIVER.exists():
            goals = goals[:-3]  # Spark's, which has no floor then
    if area == "hbase":
        environment[HBASE_URL_VARIABLE] = request.getfixturevalue("hbase_server").address
    figures = tmp_path / "figures.json"
    arguments = ["--quick", "--only", area, "--json", str(figures), "--folder", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(figures.read_text())["measurements"]
    assert {one["area"] for one in measured} == {area}
    assert [one["goal"] for one in measured if one["goal"] is not None] == goals
    assert all(one["ours"] > 0 for one in measured if area != "memory")
