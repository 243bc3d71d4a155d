"""What LevelDB's table files say of themselves."""

from __future__ import annotations

from pathlib import Path

from structable.backends.leveldb.native.logs import read_number
from structable.backends.leveldb.native.manifest import read_manifest

_KINDS = {0: "none", 1: "snappy"}
_FOOTER = 48


def table_files(database: Path) -> set[int]:
    """Return the numbers of the live table files of a database."""
    return set(read_manifest(database).tables)


def compressions(database: Path) -> set[str]:
    """Return how the blocks of all live table files are written; the rows must be compressible."""
    return {kind for number in table_files(database) for kind in _of_file(database / f"{number:06}.ldb")}


def _of_file(path: Path) -> set[str]:
    # LevelDB's `doc/table_format.md`: a footer of two handles; after each block, a byte that is its compression.
    content = path.read_bytes()
    footer = content[-_FOOTER:]
    offset = 0
    for _ in range(2):
        _, offset = read_number(footer, offset)
    begin, offset = read_number(footer, offset)
    size, _ = read_number(footer, offset)
    index, found = content[begin : begin + size], content[begin + size]
    if found:
        return {_KINDS[found]}
    kinds = {_KINDS[found]}
    end = size - 4 - 4 * int.from_bytes(index[-4:], "little")
    offset = 0
    while offset < end:
        _, offset = read_number(index, offset)
        unshared, offset = read_number(index, offset)
        length, offset = read_number(index, offset)
        block, position = read_number(index, offset + unshared)
        size, _ = read_number(index, position)
        kinds.add(_KINDS[content[block + size]])
        offset += unshared + length
    return kinds
