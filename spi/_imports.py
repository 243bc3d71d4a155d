"""Imports by name whose failure says what to do: a library of an extra, and a module named on a command line."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from types import ModuleType

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

    It never names structable: a package index may have another project under this name.

    Parameters
    ----------
    extra : str
        The extra.
    otherwise : str
        The packages to install if the libraries of the extra are not known.
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


def named_module(target: str, example: str, folder: str | None = None) -> tuple[ModuleType, str]:
    """Import the module of `MODULE:NAME`, and return it with the name.

    Parameters
    ----------
    example : str
        The form shown in the message about a malformed target.
    folder : str, optional
        The folder in which modules are looked for first; by default the working directory, as with `python -m`.

    Raises
    ------
    ValueError
        If the target is malformed or relative, or there is no such module. Errors of the module's own imports are not
        changed.
    """
    module, _, name = target.partition(":")
    if not module or module.startswith(".") or not name:
        raise ValueError(f"{target!r} must be {example}")
    folder = os.getcwd() if folder is None else folder
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module), name
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"there is no module {module!r} in {folder} or on Python's path") from error
