"""How Spark starts Python processes for tests: from one that has imported already what the bridge needs.

Spark ends the processes of a task that fails; otherwise, the next ones would spend a second on importing it again.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["QUICK_PYTHON", "with_quick_python"]

_ROOT = Path(__file__).parent.parent.parent.parent

QUICK_PYTHON = ("spark.python.daemon.module", "tests.spark.support.daemon")
"""A setting, and its value, of a session whose Python processes find the tests' modules."""


def with_quick_python() -> dict[str, str]:
    """Return the environment of an application of its own, which takes the setting from it."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_SUBMIT_ARGS": f"--conf {'='.join(QUICK_PYTHON)} pyspark-shell"}
