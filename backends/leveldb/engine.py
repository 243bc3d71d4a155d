"""`LevelDBEngine`: the engine of a storage that reads and writes, and the compaction that any process begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from structable.backends.ordered.engine import Pair, RawRows, SharedSplits, SplitPlan
from structable.spi import CompactionProgress, StorageUnavailableError, Traffic

from .folder import DatabaseFolder
from .membership import Membership
from .native.format import FORMAT_KEY
from .native.manifest import TableFile, read_manifest
from .routed_engine import DatabaseSettings, RoutedEngine
from .shared_traffic import NO_TRAFFIC, SharedTraffic
from .splits import SharedCheckpoint, estimate, plan_splits, read_planned, read_rows, read_split

_PART_BYTES = 16 << 20
"""The size of the table files in one request. LevelDB then rewrites about four times as much, in about a second."""


class LevelDBEngine(RoutedEngine):
    """A database folder, made if it is missing, and used by this process's membership in it.

    Whenever this process becomes the owner, the procedure "recover" is called with an empty argument before any client
    is served. The first engine of this process on the folder decides LevelDB's own settings.
    """

    def __init__(self, folder: Path, settings: DatabaseSettings) -> None:
        super().__init__(folder, settings)
        self.membership: Membership | None = None
        self._traffic: SharedTraffic | None = None

    def _start(self) -> None:
        if not self._settings.create:
            self.folder.require_database()
        self.folder.prepare()
        self.membership = Membership.join(self.folder, self._settings, self)
        self._traffic = self.membership.traffic

    def _leave(self) -> None:
        membership, self.membership = self.membership, None
        if membership is not None:
            membership.leave(self)

    def traffic(self) -> Traffic:
        """Return the traffic with the process that owns the database; none if this process does."""
        return NO_TRAFFIC if self._traffic is None else self._traffic.of(self)

    def compact(self) -> Iterator[CompactionProgress]:
        compression = self._settings.database.compression
        return _compact(self.folder, lambda keys: self.route.compact(compression, keys))

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        return plan_splits(self.folder, self.route.checkpoint, lambda: self.epoch, begin, end, count)

    def share_snapshot(self) -> SharedSplits:
        return SharedCheckpoint(self.folder, self.route.checkpoint)

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        return estimate(self.folder, self.route.checkpoint, begin, end)

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        return read_split(self.folder, state, intervals)

    def read_rows(
        self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None, *, keyed: bool
    ) -> Iterator[RawRows]:
        return read_rows(self.folder, state, intervals, keyed=keyed)

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return read_planned(self.folder, state, keys)


def _compact(folder: DatabaseFolder, rewrite: Callable[[Sequence[bytes]], bool]) -> Iterator[CompactionProgress]:
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
                yield from _compact(folder, rewrite)  # a new owner has written files with the former compression
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
            return read_manifest(folder.database).tables  # LevelDB had just replaced the manifest
