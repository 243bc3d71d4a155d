"""Spark's Python workers: a warning where they lack structable, and modules that are never collected."""

import gc
import sys
import warnings
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
