"""`needing`: a library that is not installed is an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needing"]


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Name an extra of structable in the error of an import that the block makes in vain.

    Parameters
    ----------
    what : str
        The beginning of the message: "datasets need".
    extra : str
        The extra that has the library.

    Raises
    ------
    ModuleNotFoundError
        If a library is missing.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"{what} {missing.name}, which is not installed: pip install 'structable[{extra}]'", name=missing.name
        ) from None
