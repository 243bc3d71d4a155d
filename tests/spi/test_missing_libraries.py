"""A library of an extra that is not installed is one error, with a command that installs the libraries alone."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from structable.spi import _imports as imports
from structable.spi.authors import remedy
from tests.page_code import ROOT

STORE = """
from structable.spi import Field, TableSpecification, connect
storage = connect("memory://")
storage.admin.create(TableSpecification("t", [Field.long("id")], ["id"], options={"changelog-producer": "lookup"}))
storage.table("t").insert({"id": 1})
feed = storage.changes("t")
"""
WITHOUT = {
    "datasets": ("import structable.datasets", "datasets need {}", ["msgspec"], "datasets"),
    "suite": (
        "from structable.testing.conformance import BackendConformance",
        "the conformance suite needs {}",
        ["pytest", "hypothesis", "pyarrow"],
        "conformance",
    ),
    "runner": (
        "from structable.testing.conformance import run",
        "the conformance suite needs {}",
        ["pytest"],
        "conformance",
    ),
    "schema": ("from structable.spi.arrow import arrow_schema", "Arrow batches need {}", ["pyarrow"], "arrow"),
    "aggregates": (
        "from structable.spi.arrow import partial_aggregates",
        "Arrow batches need {}",
        ["pyarrow"],
        "arrow",
    ),
    "split": (
        STORE + "[*storage.read_split(storage.plan_scan('t').splits[0])]",
        "Arrow batches need {}",
        ["pyarrow", "numpy"],
        "arrow",
    ),
    "changes": (
        STORE + "[*storage.read_split(feed.plan(feed.earliest()).splits[0])]",
        "Arrow batches need {}",
        ["pyarrow", "numpy"],
        "arrow",
    ),
    "stage": (
        STORE + "storage.stage(storage.begin_write('t', mode='patch', job_id='job'), 0, 0, [])",
        "Arrow batches need {}",
        ["pyarrow", "numpy"],
        "arrow",
    ),
}
CASES = [
    pytest.param(program, what, library, extra, id=f"{name}-{library}")
    for name, (program, what, libraries, extra) in WITHOUT.items()
    for library in libraries
]


@pytest.mark.parametrize(("program", "what", "library", "extra"), CASES)
def test_missing_library_is_an_error_that_names_the_extra(program: str, what: str, library: str, extra: str) -> None:
    hidden = f"import sys; sys.modules[{library!r}] = None\n"
    run = subprocess.run([sys.executable, "-c", hidden + program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: {what.format(library)}, which is not installed; {remedy(extra, library)}"
    )


NAME: Any = re.compile(r"[\w-]+")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_remedy_names_the_libraries_and_never_structable(extra: str) -> None:
    """An index may have another's package of the name structable."""
    said, _, wanted = remedy(extra, "nothing").partition(" needs: pip install ")
    assert said == f"install what structable[{extra}]"
    names = [NAME.match(one)[0] for one in shlex.split(wanted)]
    own = {NAME.match(one)[0] for one in PROJECT["optional-dependencies"][extra]} - {"structable"}
    assert own <= set(names)
    assert len(shlex.split(wanted)) == len(set(shlex.split(wanted)))
    assert not any(name.startswith("structable") for name in names)


def test_remedy_with_unknown_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs from its sources has no metadata; the missing module is all that is known."""

    def absent(distribution: str) -> list[str]:
        raise PackageNotFoundError(distribution)

    monkeypatch.setattr(imports, "requires", absent)
    assert remedy("leveldb", "plyvel") == "install what structable[leveldb] needs: pip install plyvel"
