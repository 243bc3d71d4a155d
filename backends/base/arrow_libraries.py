"""`require_arrow`: the libraries with which stores read and write Arrow batches."""

from __future__ import annotations

from structable.spi.imports import needing

__all__ = ["require_arrow"]


def require_arrow() -> None:
    """Check that the libraries are installed.

    Raises
    ------
    ModuleNotFoundError
        If one is missing; it names the extra to install.
    """
    with needing("Arrow batches need", "arrow"):
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
