"""A warning where the Python of Spark's workers lacks structable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings

from pyspark import SparkContext

__all__ = ["warn_of_another_python"]

_PROGRAM = "import structable.spark_bridge.source"
_SECONDS = 60


def warn_of_another_python(context: SparkContext) -> None:
    """Warn if the workers of this machine run a Python that cannot import structable; others cannot be looked at."""
    program = context.pythonExec
    found = shutil.which(program)
    # By its path: environments share one program by links.
    if found is None or os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    tried = subprocess.run([found, "-c", _PROGRAM], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2]
        warnings.warn(
            f"Spark's workers run {program}, which cannot import structable ({reason}): set the environment variable "
            f"PYSPARK_PYTHON to {sys.executable} before the session is made",
            stacklevel=2,
        )
