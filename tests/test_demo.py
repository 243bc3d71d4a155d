"""The demo runs on a sample, from files to a chart."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["default", "postgresql"])
def store(request: pytest.FixtureRequest) -> list[str]:
    """Return the arguments for the store: none, for a temporary folder, or a server's URL."""
    return [] if request.param == "default" else ["--url", request.getfixturevalue("postgresql_url")]


@pytest.mark.timeout(3000)  # it takes some minutes on a busy machine, and may run again
@pytest.mark.xdist_group("spark-applications")
def test_demo_of_two_days(tmp_path: Path, store: list[str]) -> None:
    arguments = ["--days", "2", "--processes", "2", "--transactions", "60", "--chart", "chart.png", *store]
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "1,785 flights, 16 airlines, 1,458 airports, 3,322 planes, 139 weather" in done.stdout
    assert "2 processes made 600 look-ups, 12 scans by an index and 120 transactions" in done.stdout
    assert "flights, running totals and processes agree" in done.stdout
    assert "each written once; 1,785 flights counted, copies equal" in done.stdout
    assert re.search(r"United Air Lines Inc\. +│ +335 │", done.stdout)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "chart.png") in done.stdout
    assert store[-1:] == [] or f"{urlsplit(store[-1]).password}@" not in done.stdout
