"""The plan of `make nightly` names what there is."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NIGHTLY = ROOT / "tools" / "nightly.py"
PARTS = runpy.run_path(str(NIGHTLY))["PARTS"]
NO_SIZES = {
    "HBASE_URL",
    "HBASE_VERSION",
    "POSTGRESQL_URL",
    "POSTGRESQL_VERSION",
    "ROTATION",
    "SEED",
    "SNAPSHOTS",
    "VARIANTS",
}
"""Variables that make no test longer, beside the seeds of single ones."""


def test_each_size_of_a_test_is_larger_in_a_part() -> None:
    documented = set(re.findall(r"STRUCTABLE_TEST_([A-Z_]*[A-Z])\b", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    sizes = {name for name in documented - NO_SIZES if not name.endswith("_SEED")}
    assert {name for part in PARTS.values() for name in part.sizes} == sizes


def test_the_tests_of_each_part_exist() -> None:
    named = {
        word.removeprefix("--ignore=")
        for part in PARTS.values()
        for word in part.arguments
        if word.removeprefix("--ignore=").startswith("tests")
    }
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_plan_is_printed_and_an_unknown_part_refused() -> None:
    def told(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, NIGHTLY, *words], capture_output=True, text=True, check=False)

    plan = told("--plan", "fuzz", "tpch")
    assert plan.returncode == 0
    assert "STRUCTABLE_TEST_FUZZ_SECONDS=3600" in plan.stdout
    assert "tests/spark/tpch" in plan.stdout
    assert "simulation" not in plan.stdout
    refused = told("--plan", "tpcc")
    assert refused.returncode == 2
    assert "no part is tpcc" in refused.stderr
