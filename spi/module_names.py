"""Modules that a command line or a script names: `MODULE:NAME`, also of the working directory or another folder."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

__all__ = ["named_module"]


def named_module(target: str, example: str, folder: str | None = None) -> tuple[ModuleType, str]:
    """Import the module of `MODULE:NAME`, and return it with the name.

    Parameters
    ----------
    example : str
        What the message of a malformed target shows.
    folder : str, optional
        Where modules are looked for first; the working directory, where `python -m` looks too, if not given.

    Raises
    ------
    ValueError
        If the target is malformed or relative, or there is no such module. What the module's own imports raise stays as
        it is.
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
