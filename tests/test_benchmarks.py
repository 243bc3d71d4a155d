"""The benchmarks run, and know every goal. What they measure is for `make bench`, on a machine with no other work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

GOALS = {
    "points": [1.8, 2.3, 1.8, 2.0],
    "bulk": [4.0, 8.0],
    "scans": [6.0, 2.5],
    "group_commit": [0.35],
    "client": [3.0, 3.0, 0.5, 0.5, 0.5],
    "spark": [2.5],
    "memory": [400.0, 400.0, 400.0, 400.0],
}


@pytest.mark.parametrize(
    "area", [pytest.param(area, marks=pytest.mark.xdist_group("spark") if area == "spark" else ()) for area in GOALS]
)
def test_benchmarks_run(area: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--quick", "--only", area, "--json", str(figures), "--folder", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(figures.read_text())["measurements"]
    assert {one["area"] for one in measured} == {area}
    assert [one["goal"] for one in measured if one["goal"] is not None] == GOALS[area]
    assert all(one["ours"] > 0 for one in measured if area != "memory")
