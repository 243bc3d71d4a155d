"""A Python of Spark's workers that lacks structable is named when a session is registered."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from structable.spark_bridge.worker_python import warn_of_another_python


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
