"""What threads in the background do with errors: they tell of them, and go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from structable.backends.hbase.failpoints import reach
from structable.spi.errors import StructableError

__all__ = ["surviving", "tell"]


@contextmanager
def surviving() -> Iterator[None]:
    """Let a thread go on after an error: the next round may succeed, and snapshots notice a session that is silent.

    What is none of structable's errors is told as Python tells of a thread's end.
    """
    try:
        yield
    except StructableError:
        reach("housekeeping_failed")
    except Exception as error:
        tell(error)


def tell(error: Exception) -> None:
    """Tell of an error that nobody expected, by `threading.excepthook`."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
