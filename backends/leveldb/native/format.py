"""The format record, which marks a database as structable's.

Format 2 differs from 1 by tables with types, which software that only knows 1 would damage: the first of them raises
the format.
"""

from __future__ import annotations

from structable.spi.errors import DataCorruptionError, StorageUnavailableError

from .database import FIRST_KEY, LAST_KEY, Database, WriteFailedError

__all__ = ["EPOCH_KEY", "FORMAT_KEY", "FORMAT_VERSION", "NEWEST_FORMAT", "prepare"]

FORMAT_VERSION = 2
EPOCH_KEY = FIRST_KEY + b"\x02epoch"

FORMAT_KEY = FIRST_KEY + b"\x01format"
_NAME = b"structable"
_FIRST_FORMAT = b"%b 1" % _NAME
NEWEST_FORMAT = b"%b %d" % (_NAME, FORMAT_VERSION)


def prepare(database: Database) -> int:
    """Check the format, or write it into a new database, and return the schema epoch.

    Raises `DataCorruptionError` if the database is not structable's, or was made by a newer version.
    """
    found = database.get(FORMAT_KEY)
    if found is None:
        if next(database.scan(b"", LAST_KEY), None) is not None or database.get(LAST_KEY) is not None:
            raise DataCorruptionError(f"{database.path} holds a LevelDB database that is not structable's")
        try:
            database.write(({FORMAT_KEY: _FIRST_FORMAT, LAST_KEY: b"end"},), True)
        except WriteFailedError as failure:
            raise StorageUnavailableError(f"the database in {database.path} cannot be written: {failure}") from failure
    else:
        name, _, version = found.partition(b" ")
        if name != _NAME or not version.isdigit():
            raise DataCorruptionError(f"{database.path} has the format {found!r}, which is not structable's")
        if int(version) > FORMAT_VERSION:
            raise DataCorruptionError(
                f"{database.path} has format {int(version)} of a newer structable; this version reads {FORMAT_VERSION}"
            )
    epoch = database.get(EPOCH_KEY)
    return int.from_bytes(epoch, "big") if epoch else 0
