"""A library that is not installed is an error with the command that installs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires

__all__ = ["needing", "remedy"]

_EXTRA = re.compile(r"\bextra *== *['\"]([^'\"]*)['\"]")


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that names the extra, and the libraries to install.

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
            f"{what} {missing.name}, which is not installed; {remedy(extra, str(missing.name))}", name=missing.name
        ) from None


def remedy(extra: str, otherwise: str, *, distribution: str = "structable") -> str:
    """Return what to do where a library of an extra is missing: a command that installs the libraries alone.

    It never names structable: what an index has under this name need not be what is installed here.

    Parameters
    ----------
    extra : str
        The extra.
    otherwise : str
        What to install if the libraries of the extra are not known.
    distribution : str
        The installed distribution that has the extra.
    """
    wanted = " ".join(map(shlex.quote, _libraries(distribution, extra) or [otherwise]))
    return f"install what {distribution}[{extra}] needs: pip install {wanted}"


def _libraries(distribution: str, extra: str) -> list[str]:
    """Return the requirements of an extra, also those that it has by other extras of its distribution."""
    try:
        required = requires(distribution) or []
    except PackageNotFoundError:  # it runs from its sources
        return []
    found: list[str] = []
    for requirement, _, marker in (one.partition(";") for one in required):
        if extra not in _EXTRA.findall(marker):
            continue
        name, _, extras = requirement.strip().rstrip("]").partition("[")
        if name == distribution:
            found += (library for other in extras.split(",") for library in _libraries(distribution, other.strip()))
        else:
            found.append(requirement.strip())
    return list(dict.fromkeys(found))
