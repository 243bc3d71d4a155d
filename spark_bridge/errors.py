"""How errors of the bridge reach the user of Spark: as one line instead of a Python traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from structable.spi import StructableError

__all__ = ["one_line_errors"]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Let Spark show errors that speak for themselves without the traceback; others keep theirs.

    For use in Spark's own Python processes, which end after they have reported an error.
    """
    try:
        yield
    except (StructableError, ValueError):
        # Spark's own switch, read when it reports the error. Nothing else runs in this process afterwards.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
