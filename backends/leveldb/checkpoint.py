"""Checkpoints: a copy of a live database that shares the table files, for which copying is a hard link."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from structable.spi.errors import StorageUnavailableError

__all__ = ["copy_checkpoint", "link_copy"]

_ATTEMPTS = 50


def copy_checkpoint(database: Path, target: Path) -> None:
    """Copy the files of an open database in which nothing is committed meanwhile.

    LevelDB's compaction may still be at work: it adds table files, notes them in the manifest, and deletes the old
    ones. A copy counts if the manifest is the same before and after.

    Parameters
    ----------
    database, target : pathlib.Path
        From where, and the new folder; it is removed again after a failure.

    Raises
    ------
    StorageUnavailableError
        If it cannot be written, or the manifest never comes to rest.
    """
    for _ in range(_ATTEMPTS):
        try:
            before = _manifest(database)
            target.mkdir(mode=0o700)
            link_copy(database, target)
            if _manifest(database) == before and (target / before[0]).stat().st_size == before[1]:
                return
        except FileNotFoundError:
            if not target.parent.is_dir():
                raise StorageUnavailableError(f"{target.parent} is gone") from None  # else a file was deleted meanwhile
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise StorageUnavailableError(f"a checkpoint cannot be made in {target}: {error}") from error
        shutil.rmtree(target, ignore_errors=True)
    raise StorageUnavailableError(f"LevelDB did not come to rest for a checkpoint of {database}")


def link_copy(source: Path, target: Path) -> None:
    """Link the table files of a database into an existing folder, and copy what LevelDB writes to.

    Raises
    ------
    OSError
        If it cannot be done.
    """
    for name in os.listdir(source):
        if name.endswith((".ldb", ".sst")):
            try:
                os.link(source / name, target / name)
            except PermissionError:  # a file system without hard links
                shutil.copyfile(source / name, target / name)
        elif name.startswith("MANIFEST-") or name.endswith(".log") or name == "CURRENT":
            shutil.copyfile(source / name, target / name)


def _manifest(database: Path) -> tuple[str, int]:
    name = (database / "CURRENT").read_text().strip()
    return name, (database / name).stat().st_size


def remove(folder: Path) -> None:
    """Remove a checkpoint; whatever is open stays readable."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
