"""tools/nightly.py [--plan] [PART...]: prints the plan of the long tests, and runs the parts that are named, or all.

Each part takes an hour or more on two cores. A part that fails does not keep the next one from running.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["PARTS", "Part"]


class Part(NamedTuple):
    """Tests, the quantity that they try more of than `make test`, and pytest's arguments."""

    what: str
    sizes: dict[str, int | float]
    arguments: list[str]


_STORES = [f"tests/conformance/test_{store}.py" for store in ("memory", "leveldb", "postgresql", "hbase")]

PARTS = {
    "whole": Part("every test in every variant on every store, as `make test`", {}, ["tests"]),
    "suite": Part(
        "the contract with ten times the examples and rounds",
        {"SUITE_SHARE": 10, "CONTENDER_ROUNDS": 600},
        _STORES,
    ),
    "interruptions": Part(
        "signals at each point of a transaction, and at random for ten minutes",
        {"INTERRUPT_STEP": 1, "INTERRUPT_SECONDS": 600},
        [*_STORES, "-k", "interruption or interrupted or signal"],
    ),
    "fuzz": Part(
        "random calls, programs, merges and copies, compared on all stores",
        {"FUZZ_SECONDS": 3600, "FEED_ROUNDS": 200, "CHANGE_ROWS": 100_000, "COPY_SECONDS": 600},
        ["tests/differential"],
    ),
    "properties": Part(
        "a hundred times the examples of every property of the layers and datasets",
        {"EXAMPLES": 5000, "SCHEDULES": 200_000, "FOLDED_PROGRAMS": 200_000},
        ["tests/ordered", "tests/spi", "tests/access", "tests/datasets/records", "tests/spark/test_folding.py"],
    ),
    "datasets": Part(
        "random programs of datasets, and their invariants after many operations",
        {"DATASET_ROUNDS": 100, "OPERATIONS": 1000, "EXAMPLES": 300, "PUBLISHED": 500, "CONSUMER_KILL_STEP": 1},
        ["tests/datasets/test_differential.py", "tests/datasets/concurrency", "tests/datasets/machines"],
    ),
    "joins": Part(
        "random programs of foreign-key joins against the batch join, and workers killed under load",
        {"JOIN_PROGRAMS": 20_000, "JOIN_STORE_PROGRAMS": 500, "JOIN_SECONDS": 60},
        ["tests/joins"],
    ),
    "migrations": Part(
        "a table of many rows that is migrated while two versions of a program write and the runner is killed",
        {"MIGRATED_ROWS": 1_000_000, "MIGRATION_KILLS": 10, "EXAMPLES": 500},
        ["tests/migrations"],
    ),
    "leveldb": Part(
        "faults of files, crashes, damages, changes of owner, descriptors",
        {"FAULT_SEEDS": 500, "OWNER_CHANGES": 600, "SCANS": 10_000},
        ["tests/leveldb"],
    ),
    "postgresql": Part(
        "a connection lost at each statement, feeds under load, merges in SQL",
        {"EVERY_STATEMENT": 1, "FEED_COMMITS": 2000, "MERGED_ROWS": 100_000},
        ["tests/postgresql", "tests/conformance/test_postgresql_pooler.py"],
    ),
    "hbase": Part(
        "admin calls interrupted at each request, rows that are written often, server faults",
        {"ADMIN_FAULTS_STEP": 1, "HOT_UPDATES": 10_000},
        ["tests/hbase", "--ignore=tests/hbase/test_simulation.py"],
    ),
    "simulation": Part(
        "random interleavings and faults of HBase's protocol",
        {"SIMULATION_SEEDS": 20_000},
        ["tests/hbase/test_simulation.py"],
    ),
    "spark": Part(
        "random queries with and without pushdown, streams whose driver is killed",
        {"SQL_QUERIES": 200, "STREAM_RESTARTS": 10},
        ["tests/spark", "--ignore=tests/spark/tpch"],
    ),
    "tpch": Part("TPC-H on ten times the rows, each query on each store", {"TPCH_SCALE": 0.1}, ["tests/spark/tpch"]),
    "versions": Part(
        "the suite on each named version of PostgreSQL and HBase, and tests of Spark on each of PySpark",
        {"VERSION_SHARE": 1},
        ["tests/versions"],
    ),
}
_LONGEST = 6 * 3600
"""Seconds for one test, instead of minutes."""


def main(words: list[str]) -> int:
    """Print the plan, run its parts, and return 1 if one has failed."""
    names = [word for word in words if word != "--plan"]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"tools/nightly.py: no part is {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    chosen = {name: PARTS[name] for name in names or PARTS}
    for name, part in chosen.items():
        print(f"{name:14} {part.what}")
        print(f"{'':14} {' '.join([*settings(part), *part.arguments])}")
    if "--plan" in words:
        return 0
    outcomes: dict[str, str] = {}
    for name, part in chosen.items():
        print(f"\n==== {name}: {part.what}", flush=True)
        began = time.monotonic()
        status = run(part)
        outcomes[name] = f"{'passed' if status == 0 else f'FAILED ({status})'} in {time.monotonic() - began:.0f} s"
    print("\n" + "\n".join(f"{name:14} {outcome}" for name, outcome in outcomes.items()))
    return int(any("FAILED" in outcome for outcome in outcomes.values()))


def settings(part: Part) -> list[str]:
    """Return the variables of a part as a shell takes them."""
    return [f"STRUCTABLE_TEST_{name}={size}" for name, size in part.sizes.items()]


def run(part: Part) -> int:
    """Run a part, and return pytest's exit status."""
    root = Path(__file__).resolve().parent.parent
    limits = [f"--timeout={_LONGEST}", "-o", f"faulthandler_timeout={_LONGEST - 60}"]
    command = [".venv/bin/python", "-m", "pytest", "-q", "-n", os.environ.get("WORKERS", "2"), *limits]
    variables = {"STRUCTABLE_REQUIRE_ALL_BACKENDS": "1", **dict(word.split("=", 1) for word in settings(part))}
    return subprocess.run([*command, *part.arguments], cwd=root, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
