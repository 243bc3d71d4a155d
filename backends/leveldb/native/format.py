"""The format record, which marks a database as structable's."""

from __future__ import annotations

from structable.spi.errors import DataCorruptionError, StorageUnavailableError

from .database import FIRST_KEY, LAST_KEY, Database, WriteFailedError

__all__ = ["EPOCH_KEY", "FORMAT_VERSION", "prepare"]

FORMAT_VERSION = 1
EPOCH_KEY = FIRST_KEY + b"\x02epoch"

_FORMAT_KEY = FIRST_KEY + b"\x01format"
_NAME = b"structable"


def prepare(database: Database) -> int:
    """Check the format, or write it into a new database, and return the schema epoch.

    Raises `DataCorruptionError` if the database is not structable's, or was made by a newer version.
    """
    found = database.get(_FORMAT_KEY)
    if found is None:
        if next(database.scan(b"", LAST_KEY), None) is not None or database.get(LAST_KEY) is not None:
            raise DataCorruptionError(f"{database.path} holds a LevelDB database that is not structable's")
        try:
            database.write(({_FORMAT_KEY: b"%b %d" % (_NAME, FORMAT_VERSION), LAST_KEY: b"end"},), True)
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
