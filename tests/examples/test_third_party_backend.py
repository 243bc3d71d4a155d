"""A third party's backend: installed from its own pyproject.toml, found by its entry point, and passing the suite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.variants import some_variants

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "sqlite_backend"

pytestmark = pytest.mark.xdist_group("third-party-backend")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example installed, separate from this environment."""
    # Built from a copy: setuptools leaves build/ behind, and reuses its contents.
    source = tmp_path_factory.mktemp("source") / "sqlite_backend"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("site-packages")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "install", *offline, "--target", str(folder), str(source)], None)
    return folder


def run(command: list[str], installed: Path | None) -> str:
    environment = dict(os.environ) if installed is None else {**os.environ, "PYTHONPATH": str(installed)}
    # In this order: pytest of this process would mark the one below as one of its workers.
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    finished = subprocess.run(
        command, cwd=EXAMPLE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if finished.returncode:
        pytest.fail(f"{' '.join(command)} ended with {finished.returncode}:\n{finished.stdout}", pytrace=False)
    return finished.stdout


def run_python(code: str, installed: Path) -> list[str]:
    return run([sys.executable, "-c", code], installed).splitlines()


def test_is_listed_with_its_provider(installed: Path) -> None:
    code = """
from structable.spi import installed_backends
for found in installed_backends():
    print(found.scheme, found.provider, found.problem or "works", sep=", ")
"""
    assert "sqlite, structable-sqlite 0.1.0, works" in run_python(code, installed)


def test_url_connects_through_the_entry_point(installed: Path, tmp_path: Path) -> None:
    code = f"""
from structable.spi import Field, TableSpecification, connect
with connect("sqlite://{tmp_path}/folder/tables.db") as storage:
    print(type(storage).__mro__[1].__name__, storage.url)
    spec = TableSpecification("t", fields=[Field.long("id")], primary_key=["id"])
    storage.admin.create(spec)
    storage.table("t").insert({{"id": 1}})
with connect("sqlite://{tmp_path}/folder/tables.db") as storage:
    print(storage.table("t").read((1,)))
"""
    assert run_python(code, installed) == [f"Storage sqlite://{tmp_path}/folder/tables.db", "Row(id=1)"]


@pytest.mark.parametrize(
    ("place", "error"),
    [("host/tables.db", "ValueError"), ("/", "ValueError"), ("/etc/passwd", "DataCorruptionError")],
)
def test_unusable_path_is_refused(installed: Path, place: str, error: str) -> None:
    code = f"""
from structable.spi import connect
try:
    connect("sqlite://{place}")
except Exception as error:
    print(type(error).__name__)
"""
    assert run_python(code, installed) == [error]


def test_passes_the_conformance_suite(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q"]
    rules = [line for line in run([*command, "--collect-only"], installed).splitlines() if "::" in line]
    chosen = tmp_path / "rules"
    chosen.write_text("\n".join(some_variants(rules, share=10)))
    output = run([*command, f"@{chosen}"], installed)
    assert " passed" in output
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert skipped
    reasons = (
        "capability table_types is not declared",
        "capability change_feeds is not declared",
        "the store does not count its traffic",
        # Rules of stores without them.
        "the store has statistics",
        "plans of the store can share a snapshot",
        "the store aggregates",
        "the store has rules of fields",
    )
    assert all(any(reason in line for reason in reasons) for line in skipped), output
