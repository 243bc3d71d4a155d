"""Spark's Python workers: a warning where they lack structable, and modules that are never collected."""

import gc
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from structable.spark_bridge.base.python_workers import collecting_rarely, freeze_imports, warn_of_another_python


def warn(program: object) -> None:
    context: Any = SimpleNamespace(pythonExec=str(program))
    warn_of_another_python(context)


def test_another_python_without_structable(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'structable'\" >&2\nexit 1\n")
    other.chmod(0o755)
    with pytest.warns(UserWarning, match=rf"set the environment variable PYSPARK_PYTHON to {sys.executable} before"):
        warn(other)


def test_pythons_that_have_it(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for program in (sys.executable, other, tmp_path / "none"):
            warn(program)


@pytest.mark.parametrize(("reused", "spared"), [(True, True), (False, False)], ids=["reused", "own"])
def test_imported_modules_are_frozen_in_reused_processes(
    monkeypatch: pytest.MonkeyPatch, reused: bool, spared: bool
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    if reused:
        monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    before = gc.get_freeze_count()
    try:
        freeze_imports.__wrapped__()
        assert (gc.get_freeze_count() > before) is spared
    finally:
        gc.unfreeze()


def test_a_batch_is_not_collected() -> None:
    before = gc.get_threshold()
    with collecting_rarely():
        collections = gc.get_stats()[0]["collections"]
        rows = [(number,) for number in range(50_000)]
        assert gc.get_stats()[0]["collections"] == collections
    assert len(rows) == 50_000
    assert gc.get_threshold() == before


@pytest.mark.parametrize("most", [700, 0, 200_000])
def test_blocks_that_overlap_leave_the_collection_as_it_was(most: int) -> None:
    """The task of a look-up reads that of another one, which ends first."""
    own = gc.get_threshold()
    gc.set_threshold(most, *own[1:])
    try:
        with ExitStack() as last, collecting_rarely():
            last.enter_context(collecting_rarely())
            assert gc.get_threshold()[0] == (100_000 if most == 700 else most)
        assert gc.get_threshold()[0] == most
    finally:
        gc.set_threshold(*own)
