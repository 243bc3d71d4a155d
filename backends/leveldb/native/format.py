"""The format record, which marks a database as structable's.

The format rises with the first table that older software would damage: to 2 with the first table of a type, to 3 with
the first change feed. Opening a database changes nothing.
"""

from __future__ import annotations

from structable.spi import DataCorruptionError, StorageUnavailableError

from .database import FIRST_KEY, LAST_KEY, Database, WriteFailedError

FORMAT_VERSION = 3
EPOCH_KEY = FIRST_KEY + b"\x02epoch"

FORMAT_KEY = FIRST_KEY + b"\x01format"
_NAME = b"structable"
_FIRST, _TYPES = 1, 2


def format_with(*, feeds: bool) -> int:
    """Return the format of a database that has tables of a type, and perhaps change feeds."""
    return FORMAT_VERSION if feeds else _TYPES


def format_record(number: int) -> bytes:
    """Return the record of a format."""
    return b"%b %d" % (_NAME, number)


def format_number(record: bytes | None) -> int:
    """Return the number of the format of a record that `prepare` has accepted."""
    return int((record or b"").partition(b" ")[2] or 0)


def prepare(database: Database) -> int:
    """Check the format, or write it into a new database, and return the schema epoch.

    Raises `DataCorruptionError` if the database is not structable's, or was made by a newer version.
    """
    found = database.get(FORMAT_KEY)
    if found is None:
        if next(database.scan(b"", LAST_KEY), None) is not None or database.get(LAST_KEY) is not None:
            raise DataCorruptionError(f"{database.path} holds a LevelDB database that is not structable's")
        try:
            database.write(({FORMAT_KEY: format_record(_FIRST), LAST_KEY: b"end"},), True)
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
