"""Errors of the bridge reach the user of Spark as one line instead of a Python traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from structable.spi import StructableError

__all__ = ["one_line_errors"]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Have Spark show errors of the contract without a traceback; unexpected ones keep theirs.

    For Spark's own Python processes, which end after they have reported an error.
    """
    try:
        yield
    except (StructableError, ValueError):
        # Spark reads this setting of its own when it reports the error. Nothing else runs in this process afterwards.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
