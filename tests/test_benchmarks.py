"""The benchmarks run, and know every goal. `make bench` measures, on a machine with no other work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sessions import JDBC_DRIVER
from benchmarks.stores import STORES_VARIABLE
from tests.hbase.support.shared import URL_VARIABLE as HBASE_URL_VARIABLE
from tests.postgresql.support.shared import URL_VARIABLE

ROOT = Path(__file__).parent.parent

GOALS = {
    "points": [1.8, 2.3, 1.8, 2.0],
    "bulk": [4.0, 8.0],
    "scans": [6.0, 1.3, 2.5, 0.5],
    "group_commit": [0.35],
    "client": [3.0, 3.0, 0.5, 0.5],
    "queues": [],
    "shares": [2.0],
    "merges": [1.3, 1.3, 1.3, 1.3, 0.5, 1.4, 1.2],
    "feeds": [
        *[1.5, 2.3, 1.2, 0.5, 1.6, 1.5, 1.5, 1.4, 1.6, 0.8],
        *[2.0, 0.75] * 2,
        *[3.2, 0.75] * 2,
        1.6,
        1.3,
        1.6,
        1.3,
    ],
    "streams": [0.6, 1.1, 1.3, 1.0, 0.7, 0.7],
    "pipelines": [*[15.0] * 5, 1.2, 0.15, 0.4, 1.3, 0.1],
    "access": [1.02, 1.15, 0.4, 1.15, 0.4, 0.25, 0.6],
    "joins": [*[3.0, 1.5], *[2.0, 1.5], *[0.25, 1.5, 1.5] * 2],
    "in-and-out": [1.05, 1.2, 1.1, 1.3, 2.5, 256.0],
    "datasets": [1.15, 1.25, 1.2, 1.03, 0.9, 1.5],
    "migrations": [6.0, 1.6, 4.0, 1.5],
    "messaging": [
        *[1.3] * 2,
        *[10_000.0, 30_000.0],
        *[1.5] * 2,
        *[10_000.0, 30_000.0],
        *[1.2, 1.5, 1 / 0.8, 1.0],
        *[1.5] * 2,
        *[1.0, 1 / 0.5],
    ],
    "postgresql": [1.1, 0.75, 1.3, 1.0, 1.0, 1.0, 1.0, 1.3, 1.1, 0.5, 0.25, 1.1, 0.9, 1.0, 1.0],
    "hbase": [1.3, 1.5, 1.3, 4.5, 4.5, 3.0, 3.0, 0.5],
    "spark": [2.5],
    "tpch": [3.0, 2.0, *[500.0] * 2, 0.2, 0.2, 1.0, 0.8],
    "memory": [400.0, 400.0, 400.0, 400.0, 2.0],
}

_LEVELDB, _PSYCOPG = [1.0, 1.0, 1 / 0.8], 1 / 0.9
WORKLOADS = {
    "leveldb": [*_LEVELDB, 1.0, *_LEVELDB, 1.0, *_LEVELDB, 1 / 1.5, *_LEVELDB, 1 / 1.5],
    "postgresql": [*[_PSYCOPG] * 6, 1.0, _PSYCOPG, *[_PSYCOPG] * 6, 1.0, _PSYCOPG],
    "memory": [],
    "hbase": [],
}
GROWTH = {
    "leveldb": [*[2.5, 1.1], *[1.3, 1.1], 1.1, *[1.4, 1.1], *[1.6, 1.1], 1.1, 1.1],
    "postgresql": [1.1] * 7,
    "hbase": [1.1] * 7,
}
BY_STORE = [
    (area, store, goals)
    for area, stores in (("workloads", WORKLOADS), ("growth", GROWTH))
    for store, goals in stores.items()
]
"""The goals of areas that can be measured on one store."""

USE_POSTGRESQL = {
    *("access", "datasets", "feeds", "joins", "merges", "messaging", "migrations", "pipelines", "postgresql"),
    *("streams", "tpch"),
}
USE_SPARK = {"joins", "pipelines", "postgresql", "spark", "streams", "tpch"}
BY_JDBC = {"pipelines": 1, "postgresql": 3, "streams": 4, "tpch": 2}
"""How many goals of an area, the last ones, have a floor that needs the JDBC driver."""


@pytest.mark.parametrize(
    "area",
    [
        pytest.param(area, marks=pytest.mark.xdist_group("spark-applications") if area in USE_SPARK else ())
        for area in GOALS
    ],
)
def test_benchmarks_run(area: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    goals, environment = GOALS[area], dict(os.environ)
    if area in USE_POSTGRESQL:
        environment[URL_VARIABLE] = request.getfixturevalue("postgresql_conninfo")
    if area in BY_JDBC and not JDBC_DRIVER.exists():
        goals = goals[: -BY_JDBC[area]]
    if area in ("hbase", "merges", "feeds", "tpch"):
        environment[HBASE_URL_VARIABLE] = request.getfixturevalue("hbase_server").address
    assert _goals(area, tmp_path, environment) == goals


@pytest.mark.parametrize(("area", "store", "goals"), BY_STORE)
def test_one_store_is_measured(
    area: str, store: str, goals: list[float], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = dict(os.environ) | {STORES_VARIABLE: store}
    if store == "postgresql":
        environment[URL_VARIABLE] = request.getfixturevalue("postgresql_conninfo")
    if store == "hbase":
        environment[HBASE_URL_VARIABLE] = request.getfixturevalue("hbase_server").address
    assert _goals(area, tmp_path, environment) == goals


def _goals(area: str, folder: Path, environment: dict[str, str]) -> list[float]:
    """Run an area quickly, and return its goals."""
    figures = folder / "figures.json"
    arguments = ["--quick", "--only", area, "--json", str(figures), "--folder", str(folder)]
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(figures.read_text())["measurements"]
    assert {one["area"] for one in measured} == {area}
    assert all(one["ours"] > 0 for one in measured if one["unit"] != "MB")
    return [one["goal"] for one in measured if one["goal"] is not None]
