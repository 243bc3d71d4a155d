"""`STRUCTABLE_TEST_VARIANTS` leaves out variants of wide tests, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import core, settings

from tests import variants
from tests.conformance.support import planted_rules

Collected = Callable[..., list[str]]

ROOT = Path(__file__).parent.parent
WIDE = "tests/cli/test_where.py"
NARROW = "tests/ordered/test_key_codec.py"
FAULTS = "tests/hbase/test_faults.py"
SPARK = "tests/spark/test_casts.py"
QUERIES = "tests/spark/tpch/test_queries.py"
SUITES = "tests/conformance/test_leveldb.py"
LONG = "tests/hbase/test_server.py"


CAUGHT = "tests/conformance/test_suite.py::test_planted_bug_is_caught"
COLLECT = """
import json, sys, pytest

class Tests:
    def pytest_collection_finish(self, session):
        found = [(item.nodeid, [mark.name for mark in item.iter_markers()]) for item in session.items]
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)

sys.exit(pytest.main(["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Tests()]))
"""


@dataclass(frozen=True)
class Item:
    nodeid: str
    marks: frozenset[str]

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def found_by_pytest(path: Path, *names: str, most: str = "") -> list[Item]:
    environment = {**os.environ, "STRUCTABLE_TEST_VARIANTS": most, "STRUCTABLE_TEST_ROTATION": "0"}
    command = [sys.executable, "-c", COLLECT, str(path), *names]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [Item(name, frozenset(marks)) for name, marks in json.loads(path.read_text())]


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """Return all tests there are, collected once."""
    return found_by_pytest(tmp_path_factory.mktemp("collected") / "tests", "tests")


@pytest.fixture
def collected(tests: list[Item], monkeypatch: pytest.MonkeyPatch) -> Collected:
    """Return what gives the names of tests of some files that stay in a rotation."""

    def stay(*names: str, most: str = "", rotation: int = 0) -> list[str]:
        monkeypatch.setattr(variants, "ROTATION", rotation)
        some = [test for test in tests if test.nodeid.startswith(names)]
        without = variants.left_out(some, int(most)) if most else set()
        return [test.nodeid for test in some if test not in without]

    return stay


def functions(names: list[str]) -> Counter[str]:
    return Counter(name.partition("[")[0] for name in names)


def stores(names: list[str]) -> set[str]:
    return {store for store in ("leveldb", "postgresql", "hbase") if any(store in name for name in names)}


def test_some_variants_of_wide_tests(collected: Collected) -> None:
    every, some = collected(WIDE, NARROW, FAULTS), collected(WIDE, NARROW, FAULTS, most="2")
    assert set(some) < set(every)
    before, after = functions(every), functions(some)
    assert before.keys() == after.keys()
    for name, count in before.items():
        most = 2 if name.startswith((WIDE, FAULTS)) else count
        assert after[name] == min(count, max(most, -(-count // 10)))


def test_each_query_of_spark_on_the_one_store_of_a_rotation(collected: Collected) -> None:
    every, some = collected(SPARK, QUERIES), collected(SPARK, QUERIES, most="2")
    assert set(some) < set(every)
    before, after = functions(every), functions(some)
    assert before.keys() == after.keys()
    assert all(after[name] <= 2 for name in after if name.startswith(SPARK))
    assert sum(after[name] for name in after if name.startswith(QUERIES)) == 22
    queries = [stores(collected(QUERIES, most="1", rotation=rotation)) for rotation in range(3)]
    assert sorted(map(sorted, queries)) == [["hbase"], ["leveldb"], ["postgresql"]]


def test_each_rule_on_one_of_two_suites_of_a_store(collected: Collected) -> None:
    every, some = (
        Counter(name.partition("[")[0].rpartition("::")[2] for name in collected(SUITES, most=most))
        for most in ("", "1")
    )
    assert some == {name: -(-count // 10) for name, count in every.items()}


def test_rotations_differ_and_long_tests_have_their_turn(collected: Collected) -> None:
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


def test_ten_landings_run_every_test(collected: Collected) -> None:
    """With as few variants as CI has, whichever number the first of the landings has."""
    landings = [set(collected("tests/", most="1", rotation=rotation)) for rotation in range(3, 13)]
    assert sorted(set(collected("tests/")).difference(*landings)) == []
    assert max(map(len, landings)) < 1.2 * min(map(len, landings))


def test_every_landing_finds_every_planted_bug_of_the_suite(collected: Collected) -> None:
    """Each bug of the list is planted below every rule that has to find it, and CI leaves out none of these tests."""
    every = collected(CAUGHT)
    assert {name.partition("[")[2].removesuffix("]") for name in every} == {
        f"{bug}-{rule}" for bug, rules in planted_rules.CAUGHT.items() for rule in rules
    }
    assert all(set(every) <= set(collected("tests/conformance", most="1", rotation=number)) for number in range(10))


def test_hypothesis_has_the_seed_of_the_run(pytestconfig: pytest.Config) -> None:
    assert str(vars(core)["global_force_seed"]) == str(pytestconfig.getoption("--hypothesis-seed"))
    assert not settings().derandomize
    assert os.environ["STRUCTABLE_TEST_SEED"] == variants.SEED
    assert variants.chosen_seed("one") == variants.chosen_seed("one") != variants.chosen_seed("other")


def test_named_tests_are_all_run(tmp_path: Path, tests: list[Item]) -> None:
    name = next(test.nodeid for test in tests if test.nodeid.startswith(FAULTS) and "[" in test.nodeid).partition("[")[
        0
    ]
    found = found_by_pytest(tmp_path / "tests", name, most="1")
    assert found == [test for test in tests if test.nodeid.partition("[")[0] == name] != []
