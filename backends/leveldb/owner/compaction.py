"""Rewriting table files while the database is in use."""

from __future__ import annotations

from collections.abc import Sequence

from structable.backends.leveldb.native.database import WriteFailedError

from .committer import Committer
from .database_handle import DatabaseHandle

__all__ = ["compact_keys"]


def compact_keys(handle: DatabaseHandle, committer: Committer, compression: str | None, keys: Sequence[bytes]) -> bool:
    """Rewrite table files, as `Route.compact` does; never in the main thread.

    LevelDB leaves the files of the deepest level alone that nothing above overlaps. So each key is written again, with
    the value that it has: on its way down it is merged with every file that it lies in.
    """
    with committer.exclusive():
        changed = compression is not None and handle.write_tables(compression)
        database = handle.healthy_database()
        if handle.unsynced:
            handle.sync_earlier()
        same = {key: database.get(key) for key in keys}
        try:
            database.write((same,), True)
        except WriteFailedError as failure:
            raise handle.failed(failure, (same,)) from failure
    database.compact(keys[0], keys[-1])
    return changed
