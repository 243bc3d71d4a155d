"""Checkpoints: copies of a live database that share its table files by hard links."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from structable.spi import DataCorruptionError, StorageUnavailableError

from .database import COMPRESSION
from .manifest import parsed_manifest
from .recovery import UNSYNCED

_ATTEMPTS = 50
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
"""Errors of file systems without hard links, across file systems, and for files of other users."""


def copy_checkpoint(database: Path, target: Path) -> None:
    """Copy the files of an open database into a new folder, while nothing is committed.

    LevelDB's compaction may still run: it adds table files, records them in the manifest, and deletes old ones. A copy
    is valid if the manifest is the same before and after. The folder is removed again after a failure; a manifest that
    keeps changing is a `StorageUnavailableError`, and one that cannot be read a `DataCorruptionError`.
    """
    for _ in range(_ATTEMPTS):
        try:
            target.mkdir(mode=0o700)
            if link_copy(database, target):
                return
        except FileNotFoundError as error:
            if not target.is_dir():
                raise StorageUnavailableError(f"a checkpoint cannot be made in {target}: {error}") from error
            # otherwise compaction has deleted a file during the copy
        except (OSError, DataCorruptionError) as error:
            shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, DataCorruptionError):
                raise
            raise StorageUnavailableError(f"a checkpoint cannot be made in {target}: {error}") from error
        shutil.rmtree(target, ignore_errors=True)
    raise StorageUnavailableError(
        f"a checkpoint of {database} failed: compaction replaced its files in each of {_ATTEMPTS} attempts"
    )


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def link_copy(source: Path, target: Path) -> bool:
    """Link the table files of a database into an existing folder, and copy the files that LevelDB writes to.

    Only tables in the manifest are linked. A compaction may be writing another one, whose number the copy would use for
    a table of its own, and so write into the shared file.

    Returns false if the database has changed during the copy, which makes the copy useless. Raises `OSError` if a file
    cannot be linked or copied, or was deleted, and `DataCorruptionError` if the manifest cannot be read.
    """
    current = (source / "CURRENT").read_bytes()
    manifest = current.decode().strip()
    content = (source / manifest).read_bytes()
    for table in parsed_manifest(source / manifest, content).tables:
        name = f"{table:06}.ldb"
        try:
            _link(source / name, target / name)
        except FileNotFoundError:
            if target.is_dir() and (source / manifest).stat().st_size == len(content):
                raise DataCorruptionError(f"the LevelDB database in {source} has lost its file {name}") from None
            raise
    for name in os.listdir(source):
        if name.endswith(".log") or name in (UNSYNCED, COMPRESSION):
            shutil.copyfile(source / name, target / name)
    (target / manifest).write_bytes(content)
    (target / "CURRENT").write_bytes(current)
    return (source / manifest).stat().st_size == len(content) and (source / "CURRENT").read_bytes() == current
