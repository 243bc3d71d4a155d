"""A library of an extra that is not installed is one error, which names the extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
        "from structable.spi.conformance import BackendConformance",
        "the conformance suite needs {}",
        ["pytest", "hypothesis", "pyarrow"],
        "conformance",
    ),
    "runner": (
        "from structable.spi.conformance import run",
        "the conformance suite needs {}",
        ["pytest"],
        "conformance",
    ),
    "schema": ("from structable.spi import arrow_schema", "Arrow batches need {}", ["pyarrow"], "arrow"),
    "aggregates": ("from structable.spi import partial_aggregates", "Arrow batches need {}", ["pyarrow"], "arrow"),
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
    pytest.param(program, needs, library, extra, id=f"{name}-{library}")
    for name, (program, needs, libraries, extra) in WITHOUT.items()
    for library in libraries
]


@pytest.mark.parametrize(("program", "needs", "library", "extra"), CASES)
def test_missing_library_is_an_error_that_names_the_extra(program: str, needs: str, library: str, extra: str) -> None:
    hidden = f"import sys; sys.modules[{library!r}] = None\n"
    run = subprocess.run([sys.executable, "-c", hidden + program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: {needs.format(library)}, which is not installed: pip install 'structable[{extra}]'"
    )
