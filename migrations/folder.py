"""`Folder`: the revisions of a program, a folder of scripts `NNNN_slug.py`, and the functions that scripts name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structable.spi.authors import named_module

from .errors import MigrationError, RevisionError
from .operations import Operation, RevisionOperations
from .recorder import Recorder

_FILE = re.compile(r"(\d{4})_([a-z0-9][a-z0-9_]*)\.py")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_]*")
_MOST = 9999


@dataclass(frozen=True, slots=True)
class Revision:
    """One script.

    Parameters
    ----------
    number : int
        Its number, from 1.
    name : str
        Its slug.
    file : Path
        The script.
    title : str
        The first line of its docstring.
    operations : RevisionOperations
        The operations that it records.
    """

    number: int
    name: str
    file: Path
    title: str
    operations: RevisionOperations


class Folder:
    """A folder of revisions. Nothing is cached: each call reads it.

    Parameters
    ----------
    path : str or Path
        The folder. Functions of scripts, "module:function", are imported with its parent first on the path.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def init(self) -> bool:
        """Make the folder, and return whether it was absent."""
        if self.path.is_dir():
            return False
        self.path.mkdir(parents=True)
        return True

    def revisions(self) -> list[Revision]:
        """Return the revisions by number.

        Raises
        ------
        RevisionError
            If there is no such folder, a number is missing or occurs twice, or a script breaks a rule.
        """
        files = self._files()
        return [_load(number, name, file) for number, (name, file) in enumerate(files, 1)]

    def write(self, slug: str, text: str) -> Path:
        """Write the next revision's script, and return its path.

        Raises
        ------
        RevisionError
            If the slug cannot be part of a name, or the folder breaks a rule.
        """
        if not _SLUG.fullmatch(slug):
            raise RevisionError(f"the slug {slug!r} is not allowed: lower case letters, digits and underscores are")
        number = len(self._files()) + 1
        if number > _MOST:
            raise RevisionError(f"the folder {self.path} has {_MOST} revisions, which is the limit")
        file = self.path / f"{number:04}_{slug}.py"
        file.write_text(text, encoding="utf-8")
        return file

    def _files(self) -> list[tuple[str, Path]]:
        if not self.path.is_dir():
            raise RevisionError(f"there is no folder {self.path}; 'structable migrate init' makes it")
        found: list[tuple[int, str, Path]] = []
        for file in sorted(self.path.iterdir()):
            if file.suffix != ".py" or file.name == "__init__.py":
                continue
            match = _FILE.fullmatch(file.name)
            if match is None:
                raise RevisionError(f"{file} is not a revision: its name must be like 0001_add_region.py")
            found.append((int(match[1]), match[2], file))
        before: Path | None = None
        for expected, (number, _, file) in enumerate(found, 1):
            if number != expected:
                if before is None:
                    raise RevisionError(f"{file} is the first, and a revision {expected:04} is missing before it")
                if number == expected - 1:
                    raise RevisionError(f"{before} and {file} have the same number; renumber one of them")
                raise RevisionError(f"{file} comes after {before}: a revision {expected:04} is missing between them")
            before = file
        return [(name, file) for _, name, file in found]


def _load(number: int, name: str, file: Path) -> Revision:
    namespace: dict[str, object] = {"__name__": f"revision_{file.stem}", "__file__": str(file)}
    try:
        source = file.read_bytes()
        exec(compile(source, str(file), "exec"), namespace)  # noqa: S102 - a script of the program's own
    except (Exception, SystemExit) as error:  # whatever the script raises
        raise RevisionError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    up = _recorded(file, namespace, "up")
    if up is None:
        raise RevisionError(f"{file} has no function up(op)")
    down = _recorded(file, namespace, "down")
    title = str(namespace.get("__doc__") or "").strip().partition("\n")[0]
    operations = RevisionOperations(up, _recorded(file, namespace, "contract") or (), down or (), down is not None)
    return Revision(number, name, file, title, operations)


def _recorded(file: Path, namespace: dict[str, object], function: str) -> tuple[Operation, ...] | None:
    body = namespace.get(function)
    if body is None:
        return None
    if not callable(body):
        raise RevisionError(f"{file}: {function} is not a function")
    recorder = Recorder(function)
    try:
        body(recorder)
    except RevisionError as error:
        raise RevisionError(f"{file}, {function}: {error}") from None
    except (Exception, SystemExit) as error:  # whatever the script raises
        raise RevisionError(f"{file}, {function}: {type(error).__name__}: {error}") from error
    return recorder.recorded


def object_named(name: str, folder: Path) -> Any:  # noqa: ANN401 - whatever it is
    """Return the object "module:name"; a module next to the folder of revisions comes before others of its name.

    Raises
    ------
    ValueError
        If there is none, or its module cannot be imported.
    """
    try:
        module, attribute = named_module(name, '"module:name"', str(folder.resolve().parent))
        return getattr(module, attribute)
    except (Exception, SystemExit) as error:  # including errors of the module's own code
        kind = "" if isinstance(error, ImportError | AttributeError | ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{kind}{error}") from error


# Any: arguments and result depend on the operation.
def function_named(name: str, folder: Path) -> Callable[..., Any]:
    """Import a function.

    Raises
    ------
    MigrationError
        If there is no such module or function.
    """
    try:
        found = object_named(name, folder)
    except ValueError as error:
        raise MigrationError(f"the function {name!r} of a revision cannot be imported: {error}") from error
    if not callable(found):
        raise MigrationError(f"{name!r}, which a revision names as a function, is not one")
    return found  # type: ignore[no-any-return]
