"""Rewriting all table files of a database, a few at a time, from any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from structable.spi import CompactionProgress
from structable.spi.errors import StorageUnavailableError

from .folder import DatabaseFolder
from .native.format import FORMAT_KEY
from .native.manifest import TableFile, read_manifest

__all__ = ["compact"]

_PART_BYTES = 16 << 20
"""The size of the table files in one request. LevelDB then rewrites about four times as much, in about a second."""


def compact(folder: DatabaseFolder, rewrite: Callable[[Sequence[bytes]], bool]) -> Iterator[CompactionProgress]:
    """Rewrite all table files that a database has now; `rewrite` is `Route.compact`, whichever process is the owner.

    Files written from now on have higher numbers and need no rewrite. The deepest level comes first: rewriting its
    files includes the files above them.
    """
    yield CompactionProgress(0.0, _size(_tables(folder)))
    rewrite((FORMAT_KEY,))  # which also moves all rows from the log to table files
    tables = _tables(folder)
    newest, whole = max(tables, default=0), _size(tables)
    before: dict[int, TableFile] = {}
    while old := {number: table for number, table in tables.items() if number <= newest}:
        if old == before:
            raise StorageUnavailableError(
                f"LevelDB left {len(old):,} table files in {folder.database} as they were; try again"
            )
        deepest = max(table.level for table in old.values())
        ahead = sorted((table, number) for number, table in old.items() if table.level == deepest)
        above = _size(old) - sum(table.size for table, _ in ahead)
        while True:
            left = above + sum(table.size for table, _ in ahead)
            yield CompactionProgress(1 - left / whole, _size(tables))
            part = _next_part(folder.database, ahead)
            if not part:
                break
            if rewrite([*(table.first for table in part), part[-1].last]):
                yield from compact(folder, rewrite)  # a new owner has written files with the former compression
                return
        before, tables = old, _tables(folder)
    yield CompactionProgress(1.0, _size(tables))


def _next_part(database: Path, ahead: list[tuple[TableFile, int]]) -> list[TableFile]:
    """Take neighbours from the head of a list, without files that LevelDB has rewritten since the list was made."""
    part: list[TableFile] = []
    while ahead and sum(table.size for table in part) < _PART_BYTES:
        table, number = ahead[0]
        if (database / f"{number:06}.ldb").exists():
            part.append(table)
        elif part:
            break
        del ahead[0]
    return part


def _size(tables: dict[int, TableFile]) -> int:
    return sum(table.size for table in tables.values())


def _tables(folder: DatabaseFolder) -> dict[int, TableFile]:
    with folder.usable():
        try:
            return read_manifest(folder.database).tables
        except FileNotFoundError:
            return read_manifest(folder.database).tables  # LevelDB had begun another manifest
