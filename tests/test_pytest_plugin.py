"""The fixtures that pytest offers wherever structable is installed, in sessions of pytest of their own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from structable.spi import Field, TableSpecification, connect

TESTS = """
from structable.spi import Field, TableSpecification

RUNS = TableSpecification("runs", [Field.string("app"), Field.long("rows")], primary_key=["app"])

def test_first(structable_storage):
    structable_storage.admin.create(RUNS)
    structable_storage.table("runs").upsert({"app": "etl", "rows": 1})

def test_second(structable_storage):
    assert structable_storage.admin.list() == []
    structable_storage.admin.create(RUNS)
    assert structable_storage.table("runs").count() == 0
    structable_storage.close()

def test_third(structable_storage):
    assert structable_storage.admin.list() == []
"""


def session(folder: Path, arguments: Sequence[str] = (), **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def outcome(finished: subprocess.CompletedProcess[str]) -> str:
    return finished.stdout.splitlines()[-1].strip("= ").rpartition(" in ")[0]


def test_each_test_has_an_empty_store_in_memory_without_any_driver(tmp_path: Path) -> None:
    conftest = """
import sys

for driver in ("hypothesis", "numpy", "plyvel", "psycopg", "pyarrow"):
    sys.modules[driver] = None
"""
    finished = session(tmp_path, ["-p", "no:hypothesispytest"], conftest=conftest, test_runs=TESTS)
    assert outcome(finished) == "3 passed", finished.stdout


def test_processes_of_xdist_share_nothing(tmp_path: Path) -> None:
    finished = session(tmp_path, ["-n2"], test_runs=TESTS, test_others=TESTS)
    assert outcome(finished) == "6 passed", finished.stdout


def test_url_comes_from_the_users_own_fixture(tmp_path: Path, postgresql_url: str) -> None:
    conftest = f"""
import pytest

@pytest.fixture(params=["leveldb", "memory", "postgresql"])
def structable_url(request, tmp_path):
    return {{
        "leveldb": f"leveldb://{{tmp_path}}/tables",
        "memory": "memory://named",
        "postgresql": {postgresql_url!r},
    }}[request.param]
"""
    finished = session(tmp_path, conftest=conftest, test_runs=TESTS)
    assert outcome(finished) == "9 passed", finished.stdout
    with connect(postgresql_url) as storage:
        assert storage.admin.list() == []


def test_store_with_tables_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/tables"
    tests = f"""
import pytest

@pytest.fixture
def structable_url():
    return {url!r}

def test_uses_it(structable_storage):
    raise AssertionError("it ran")
"""
    with connect(url) as storage:
        storage.admin.create(TableSpecification("runs", [Field.string("app")], primary_key=["app"]))
    finished = session(tmp_path, test_runs=tests)
    assert outcome(finished) == "1 error", finished.stdout
    assert "tables has tables already: runs. structable_url must name an empty store" in finished.stdout
    with connect(url) as storage:
        assert storage.admin.list() == ["runs"]


def test_sessions_that_use_no_fixture_do_not_import_structable(tmp_path: Path) -> None:
    tests = """
import sys

def test_imports(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("structable")
    assert [name for name in sys.modules if name.startswith(("structable.spi", "structable.backends"))] == []
"""
    finished = session(tmp_path, test_runs=tests)
    assert outcome(finished) == "1 passed", finished.stdout


@pytest.mark.parametrize("module", ["structable.spi", "structable.backends.memory", "structable.cli"])
def test_structable_needs_no_pytest(module: str) -> None:
    program = f"import sys; sys.modules['pytest'] = None; import {module}"
    subprocess.run([sys.executable, "-c", program], check=True)
