"""`STRUCTABLE_TEST_VARIANTS` leaves out variants of wide tests, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests import variants

ROOT = Path(__file__).parent.parent
WIDE = "tests/cli/test_where.py"
NARROW = "tests/ordered/test_key_codec.py"
FAULTS = "tests/hbase/test_faults.py"
SPARK = "tests/spark/test_casts.py"
QUERIES = "tests/spark/tpch/test_queries.py"
SUITES = "tests/conformance/test_leveldb.py"
LONG = "tests/hbase/test_server.py"


@cache
def collected(*names: str, most: str = "", rotation: int = 0) -> list[str]:
    environment = {**os.environ, "STRUCTABLE_TEST_VARIANTS": most, "STRUCTABLE_TEST_ROTATION": str(rotation)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *names]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if "::" in line]


def functions(names: list[str]) -> Counter[str]:
    return Counter(name.partition("[")[0] for name in names)


def test_some_variants_of_wide_tests() -> None:
    every, some = collected(WIDE, NARROW, FAULTS), collected(WIDE, NARROW, FAULTS, most="2")
    assert set(some) < set(every)
    before, after = functions(every), functions(some)
    assert before.keys() == after.keys()
    for name, count in before.items():
        most = 2 if name.startswith((WIDE, FAULTS)) else count
        assert after[name] == min(count, max(most, -(-count // 10)))


def test_each_variant_of_spark_on_one_store() -> None:
    every, some = collected(SPARK, QUERIES), collected(SPARK, QUERIES, most="2")
    assert set(some) < set(every)
    before, after = functions(every), functions(some)
    assert before.keys() == after.keys()
    assert all(after[name] <= 2 for name in after if name.startswith(SPARK))
    assert sum(after[name] for name in after if name.startswith(QUERIES)) == 22
    used = {store for store in ("leveldb", "postgresql", "hbase") if any(store in name for name in some)}
    assert len(used) == 3


def test_each_rule_on_one_of_two_suites_of_a_store() -> None:
    every, some = (
        Counter(name.partition("[")[0].rpartition("::")[2] for name in collected(SUITES, most=most))
        for most in ("", "1")
    )
    assert some == {name: -(-count // 10) for name, count in every.items()}


def test_rotations_differ_and_long_tests_have_their_turn() -> None:
    some = [set(collected(WIDE, LONG, most="1", rotation=rotation)) for rotation in range(2)]
    every = set(collected(WIDE, LONG))
    assert some[0] < every > some[1] != some[0]
    long = [name for name in every if name.startswith(LONG) and not all(name in one for one in some)]
    assert f"{LONG}::test_server_survives_stops_and_kills_without_losing_a_put" in long
    assert [sum(name in one for name in long) for one in some] == [1, 1]


@pytest.mark.parametrize("count", [1, 3, 10, 20])
def test_ten_rotations_try_all_seeds(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS_OF_TEST", str(count))
    tried: set[int] = set()
    for rotation in range(7, 17):
        monkeypatch.setattr(variants, "ROTATION", rotation)
        tried.update(variants.seeds("SEEDS_OF_TEST", 20))
    assert tried == set(range(20))


def test_more_seeds_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS_OF_TEST", "30")
    assert variants.seeds("SEEDS_OF_TEST", 20) == list(range(30))


def test_named_tests_are_all_run() -> None:
    every = collected(FAULTS)
    name = next(name for name in every if name.endswith("]")).partition("[")[0]
    assert collected(name, most="1") == [one for one in every if one.partition("[")[0] == name] != []
