"""Garbage collection in Spark's Python processes."""

from __future__ import annotations

import gc
import os
from functools import lru_cache

__all__ = ["spare_imports"]


@lru_cache(maxsize=1)
def spare_imports() -> None:
    """Let the collector pass over what there is by now, in a process that Spark uses for more than one task.

    After each task such a process collects garbage before it takes the next one. That goes through all modules, for
    some 30 ms, while on the same cores the query goes on, and finds nothing: what was imported stays to the end.
    """
    if "SPARK_REUSE_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
