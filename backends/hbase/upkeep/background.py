"""How background threads outlive errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from structable.backends.hbase.failpoints import reach
from structable.spi.errors import StructableError

__all__ = ["surviving"]

_log = logging.getLogger("structable.hbase")


@contextmanager
def surviving(work: str) -> Iterator[None]:
    """Log an error and go on: the next round may succeed, and snapshots notice a session without heartbeat.

    Parameters
    ----------
    work : str
        The name of the work in the log.
    """
    try:
        yield
    except StructableError as error:
        _log.warning("%s failed and will be repeated: %s", work, error)
        reach("housekeeping_failed")
    except Exception:
        _log.exception("%s failed unexpectedly and will be repeated", work)
