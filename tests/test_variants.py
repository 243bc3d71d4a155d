"""`STRUCTABLE_TEST_VARIANTS` leaves out variants of wide tests, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDE = "tests/cli/test_where.py"
NARROW = "tests/ordered/test_key_codec.py"
FAULTS = "tests/hbase/test_faults.py"
SPARK = "tests/spark/test_casts.py"
QUERIES = "tests/spark/tpch/test_queries.py"
SUITES = "tests/conformance/test_leveldb.py"
LONG = "tests/hbase/test_server.py"


@cache
def collected(*names: str, most: str = "") -> list[str]:
    environment = {**os.environ, "STRUCTABLE_TEST_VARIANTS": most}
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
        assert after[name] == min(count, 2 if name.startswith(WIDE) else 4 if name.startswith(FAULTS) else count)


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
    rules = Counter(name.partition("[")[0].rpartition("::")[2] for name in collected(SUITES, most="1"))
    assert set(rules.values()) == {1}
    assert rules.keys() == {name.partition("[")[0].rpartition("::")[2] for name in collected(SUITES)}


def test_long_tests_are_left_out() -> None:
    left_out = set(collected(LONG)) - set(collected(LONG, most="1"))
    assert f"{LONG}::test_server_survives_stops_and_kills_without_losing_a_put" in left_out
    assert collected(f"{LONG}::test_gateways_have_their_own_port_and_settings", most="1")


def test_named_tests_are_all_run() -> None:
    every = collected(FAULTS)
    name = next(name for name in every if name.endswith("]")).partition("[")[0]
    assert collected(name, most="1") == [one for one in every if one.partition("[")[0] == name] != []
