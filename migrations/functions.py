"""The functions that scripts name as "module:function"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from structable.spi.imports import named_module

from .errors import MigrationError

__all__ = ["function_named", "object_named"]


def object_named(name: str, folder: Path) -> Any:  # noqa: ANN401 - whatever it is
    """Return what "module:name" names, of a module beside a folder of revisions before others of its name.

    Raises
    ------
    ImportError, AttributeError, ValueError
        If there is none.
    """
    module, attribute = named_module(name, '"module:name"', str(folder.resolve().parent))
    return getattr(module, attribute)


# Any: what the function takes and returns is its operation's matter.
def function_named(name: str, folder: Path) -> Callable[..., Any]:
    """Import a function.

    Raises
    ------
    MigrationError
        If there is no such module or function.
    """
    try:
        found = object_named(name, folder)
    except (ImportError, AttributeError, ValueError) as error:
        raise MigrationError(f"the function {name!r} of a revision cannot be imported: {error}") from error
    if not callable(found):
        raise MigrationError(f"{name!r}, which a revision names as a function, is none")
    return found  # type: ignore[no-any-return]
