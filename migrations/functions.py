"""The functions that scripts name as "module:function"."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import MigrationError

__all__ = ["function_named", "put_on_path"]


def put_on_path(folder: Path) -> None:
    """Let the modules beside a folder of revisions be imported before others of their names."""
    parent = str(folder.resolve().parent)
    if sys.path[:1] != [parent]:
        sys.path.insert(0, parent)


# Any: what the function takes and returns is its operation's matter.
def function_named(name: str, folder: Path) -> Callable[..., Any]:
    """Import a function.

    Raises
    ------
    MigrationError
        If there is no such module or function.
    """
    put_on_path(folder)
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MigrationError(f"the function {name!r} of a revision cannot be imported: {error}") from error
    if not callable(found):
        raise MigrationError(f"{name!r}, which a revision names as a function, is none")
    return found  # type: ignore[no-any-return]
