"""`LevelDBEngine`: the engine of a storage that reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from structable.backends.ordered.engine import Pair, RawRows, SharedSplits, SplitPlan
from structable.spi import CompactionProgress, Traffic

from .compaction import compact
from .membership import Membership
from .routed_engine import DatabaseSettings, RoutedEngine
from .shared_traffic import NO_TRAFFIC, SharedTraffic
from .splits import SharedCheckpoint, estimate, plan_splits, read_planned, read_rows, read_split

__all__ = ["LevelDBEngine"]


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
        return compact(self.folder, lambda keys: self.route.compact(compression, keys))

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
