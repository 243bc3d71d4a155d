"""`HBaseEngine`: an `Engine` over the tables of one prefix, with transactions of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import (
    SPACE_BYTES,
    BulkApplication,
    BulkCommit,
    Engine,
    EngineSnapshot,
    EngineTraits,
    Pair,
    SchemaChangedError,
    SharedSplits,
    Spaces,
    StagedRun,
    Upcalls,
    WriteSet,
)
from structable.spi import Finding, Traffic

from .layout import FAMILY, FEEDS_FORMAT, MARKER, TYPES_FORMAT, VALUE, Layout
from .splits import Splits
from .staging import StagingTable
from .tables import PrefixTables
from .thrift.errors import TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import Cells, get_row, get_rows
from .txn.context import ProtocolSettings
from .txn.intents import PUT, STEPS, base_of, intents_of
from .txn.schema_lease import SchemaLeases
from .txn.session import now, refuse_older_sessions, require_no_older
from .txn.snapshot import HBaseSnapshot
from .txn.transactions import Transactions
from .txn.unchecked_writes import UncheckedWrites
from .upkeep.background import UpkeepThreads
from .upkeep.diagnosis import Diagnosis
from .upkeep.janitor import Janitor

_LEAVING = 5.0
"""Seconds for each step of closing; other processes take a step that is not done in time."""


class HBaseEngine(Engine):
    """One connection to the tables of a prefix; `start` creates missing ones, `close` also closes the gateway."""

    traits = EngineTraits(
        BulkApplication.AT_ONCE,
        epoch_lags=True,
        table_types=True,
        plans_hold_everything=True,
        takes_operands=True,
        keeps_versions=True,
    )

    def __init__(self, gateway: Gateway, layout: Layout, settings: ProtocolSettings) -> None:
        self.gateway = gateway
        self.layout = layout
        self._settings = settings
        self._process = os.getpid()
        self._closed = False
        self._epoch = 0
        self._leases = SchemaLeases()
        self.tables = PrefixTables(gateway, layout)
        self.transactions = Transactions(gateway, layout, settings, lambda: self.upcalls)
        context = self.transactions.context
        self._unchecked = UncheckedWrites(gateway, layout)
        self._splits = Splits(gateway, layout, self.transactions.reader)
        self._staging = StagingTable(gateway, layout, self.tables)
        self.janitor = Janitor(context)
        self.background = UpkeepThreads(self.janitor, settings)
        self._diagnosis = Diagnosis(context, self.tables)

    def start(self, upcalls: Upcalls) -> None:
        """Create or check the tables of the prefix, as `Tables.prepare` does, and begin a session."""
        super().start(upcalls)
        uninterrupted(self._start)

    def _start(self) -> None:
        self.tables.prepare(create=self._settings.create)
        self.transactions.start()
        if not self._settings.read_only:
            self.background.start(lambda: self.transactions.current_session)

    @property
    def epoch(self) -> int:
        return self._epoch

    def _noticed(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch

    def get(self, key: bytes) -> bytes | None:
        self.transactions.session.require_alive()
        space = key[:SPACE_BYTES]
        row, marker = self.layout.row(key), self.layout.row(space + MARKER)
        table = self.layout.table(space)
        leases = self._leases
        try:
            if leases.may_outlast_call(space):
                cells = self.gateway.call(get_row(table, row, [FAMILY]))
                if leases.holds(space):
                    return self._newest(key, table, row, cells)
            asked = now()
            # One call reads both, though not at one moment. A schema change that is missed came during the read or
            # later, and every change must allow for an older row under a newer schema.
            found = dict(self.gateway.call(get_rows(table, [marker, row], [FAMILY])))
        except TableMissingError:
            self.begin(True).close()
            raise SchemaChangedError from None
        cells = found.get(marker, {})
        if len(cells) == 1:
            changed = base_of(cells).version
        else:
            changed = (
                self.transactions.visibility.states(table, [(marker, cells)], None)[marker].version if cells else 0
            )
        if changed > self._epoch:
            self._noticed(changed)
            raise SchemaChangedError
        if len(cells) == 1 and VALUE in cells:
            leases.renew(space, asked)
        return self._newest(key, table, row, found.get(row, {}))

    def _newest(self, key: bytes, table: str, row: bytes, cells: Cells) -> bytes | None:
        if len(cells) == 1 and (cell := cells.get(VALUE)) is not None and cell[0][0] == PUT:
            return cell[0][1:]
        if any(intent[0] in STEPS for _, intent in intents_of(cells)):
            # Only a timestamp defines which of several steps count.
            with closing(self.begin(True)) as snapshot:
                return snapshot.get(key)
        state = self.transactions.visibility.states(table, [(row, cells)], None).get(row)
        return state.value if state is not None else None

    def begin(self, read_only: bool) -> HBaseSnapshot:
        snapshot = self.transactions.begin()
        self._noticed(snapshot.epoch)
        return snapshot

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        if snapshot is None:
            self._unchecked.write(changes)
            return
        assert isinstance(snapshot, HBaseSnapshot)
        self.transactions.commit(snapshot, changes)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self.transactions.commit_bulk(bulk)

    def create_space(self, space: bytes, *, feed: bool = False) -> None:
        self.tables.create_space(space, feed=feed)

    def exclude_older_software(self, *, feeds: bool = False) -> None:
        version = FEEDS_FORMAT if feeds else TYPES_FORMAT
        # Before and after: an older process that began in between has read the lower format.
        require_no_older(self.gateway, self.layout, version)
        self.tables.raise_format(version)
        refuse_older_sessions(self.gateway, self.layout, version)
        require_no_older(self.gateway, self.layout, version)

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        return self._unchecked.discard(beginning, stopped)

    def drop_entries(self, feed: bytes, since: int, until: int, stopped: Callable[[], bool]) -> bool:
        return self.transactions.feeds.drop(feed, since, until, stopped)

    def share_snapshot(self) -> SharedSplits:
        return self._splits.share(self.begin(True))

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        return self._splits.estimate(begin, end)

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        return self._splits.read(state, intervals)

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._splits.values(state, keys)

    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        return self._staging.write(owner, pairs)

    def read_run(self, state: bytes) -> Iterator[Pair]:
        return self._staging.read(state)

    def find_runs(self, owner: str = "") -> list[StagedRun]:
        return self._staging.find(owner)

    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        self._staging.drop(runs)

    def diagnose(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        return self._diagnosis.findings(self.transactions.session, spaces)

    def repair(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        return self._diagnosis.repair(self.transactions.session, spaces)

    @property
    def closed(self) -> bool:
        return self._closed or os.getpid() != self._process

    def traffic(self) -> Traffic:
        return self.gateway.traffic()

    def close(self) -> None:
        uninterrupted(self._close)

    def _close(self) -> None:
        if self._closed:
            return
        if os.getpid() == self._process:
            self.background.stop(_LEAVING)
            self.transactions.finaliser.close(min(self._settings.timeout, _LEAVING))
            self._closed = True
            self.transactions.close(_LEAVING)
        self._closed = True
        self.gateway.close()
