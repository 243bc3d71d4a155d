"""Garbage collection in Spark's Python processes."""

from __future__ import annotations

import gc
import os
from functools import lru_cache

__all__ = ["freeze_imports"]


@lru_cache(maxsize=1)
def freeze_imports() -> None:
    """Exclude all objects that exist now from garbage collection, in a process that Spark reuses for further tasks.

    Such a process collects garbage after each task. A full collection visits all imported modules, for some 30 ms on
    the cores that the query needs, and finds nothing: modules stay until the process ends.
    """
    if "SPARK_REUSE_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
