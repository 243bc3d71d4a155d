"""A share of the suite on each named version of PostgreSQL, HBase, PySpark, Python and pandas, in a pytest of its own.

CI runs one version of each, and `make nightly ARGS=versions` all of the suite on all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from tests.page_code import ROOT
from tests.servers.fetching import cache, fetch, filled_once
from tests.variants import ROTATION
from tests.versions.interpreters import installed_structable, interpreter
from tests.versions.named import HBASE, PANDAS, POSTGRESQL, PYSPARK, PYTHON

pytestmark = pytest.mark.xdist_group("versions")

SHARE = float(os.environ.get("STRUCTABLE_TEST_VERSION_SHARE", "0.02"))
"""Of the tests that a version runs; consecutive rotations run others."""
SPARK = [f"tests/spark/test_{name}.py" for name in ("catalog_statements", "pushdown", "reading", "types", "writing")]


class RunShare(Protocol):
    def __call__(self, *tests: str, python: Path = ..., share: float = ..., **variables: str) -> str:
        """Run a share of tests with an interpreter and variables, and return what pytest printed."""


@pytest.fixture
def run_share(tmp_path: Path) -> RunShare:
    def run(*tests: str, python: Path = Path(sys.executable), share: float = SHARE, **variables: str) -> str:
        usual = {"STRUCTABLE_TEST_SUITE_SHARE": "0.1"} if SHARE < 1 else {}
        given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**usual, **given, **variables}

        def pytest_says(*arguments: str) -> str:
            pytest_run = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-m", "not slow"]
            done = subprocess.run(
                [*pytest_run, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return str(done.stdout)

        every = [line for line in pytest_says("-q", "--collect-only", *tests).splitlines() if "::" in line]
        step = max(1, round(1 / share))
        chosen = tmp_path / "chosen"
        chosen.write_text("\n".join(every[ROTATION % step :: step]))
        said = pytest_says("-rs", f"@{chosen}")
        assert re.search(r"\b\d+ passed", said)
        return said

    return run


@pytest.mark.parametrize("version", POSTGRESQL.values(), ids=POSTGRESQL)
def test_postgresql(version: str, run_share: RunShare) -> None:
    run_share("tests/conformance/test_postgresql.py", STRUCTABLE_TEST_POSTGRESQL_VERSION=version)


@pytest.mark.parametrize("version", HBASE.values(), ids=HBASE)
def test_hbase(version: str, run_share: RunShare) -> None:
    run_share("tests/conformance/test_hbase.py", STRUCTABLE_TEST_HBASE_VERSION=version)


@pytest.mark.parametrize("version", PYSPARK.values(), ids=PYSPARK)
def test_pyspark(version: str, run_share: RunShare) -> None:
    def install(folder: Path) -> None:
        fetch("PySpark", [sys.executable, "-m", "pip", "-q", "install", "--target", folder, f"pyspark=={version}"])

    # Ahead of the environment's own, also for the Python processes that Spark starts.
    folder = filled_once(cache() / f"pyspark-{version}", install)
    said = run_share(
        *SPARK,
        "-k",
        "not hbase and not postgresql",
        PYTHONPATH=str(folder),
        PYTEST_ADDOPTS="-p no:unraisableexception",  # PySpark 4.1 leaves sockets unclosed
    )
    assert f"pyspark {version}" in said


@pytest.mark.parametrize("version", PYTHON.values(), ids=PYTHON)
def test_python(version: str, run_share: RunShare, tmp_path: Path) -> None:
    installed = installed_structable(tmp_path)
    said = run_share("tests/conformance/test_memory.py", python=interpreter(version), PYTHONPATH=str(installed))
    assert f"Python {version.partition('-')[0]}" in said


@pytest.mark.parametrize("version", PANDAS.values(), ids=PANDAS)
def test_pandas(version: str, run_share: RunShare) -> None:
    def install(folder: Path) -> None:
        pip_install = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(folder)]
        fetch("pandas", [*pip_install, f"pandas=={version}"])

    folder = str(filled_once(cache() / f"pandas-{version}", install))
    shown = [sys.executable, "-c", "import pandas; print(pandas.__version__)"]
    assert subprocess.check_output(shown, env={**os.environ, "PYTHONPATH": folder}, text=True).strip() == version
    run_share("tests/spi/test_frames.py", share=1, PYTHONPATH=folder)
