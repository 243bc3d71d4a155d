"""`HBaseEngine`: an `Engine` over the tables of one prefix, with transactions of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import (
    SPACE_BYTES,
    BulkCommit,
    Engine,
    EngineSnapshot,
    Increment,
    Pair,
    SchemaChangedError,
    Spaces,
    SplitPlan,
    Upcalls,
    WriteSet,
)
from structable.spi import Finding
from structable.spi.errors import StorageUnavailableError

from .layout import CLOCK, FAMILY, MARKER, TICK, VALUE, Layout
from .settings import Settings
from .splits import Splits
from .staging import Staging
from .tables import Tables
from .thrift.errors import TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import Cells, get_row, get_rows
from .txn.bulk import BulkCommitter
from .txn.clock import now
from .txn.commit import Committer
from .txn.conflicts import Conflicts
from .txn.finaliser import Finaliser, Placing
from .txn.intents import INCREMENT, PUT, base_of, intents_of
from .txn.prewrite import Sender
from .txn.reader import Reader
from .txn.schema_lease import SchemaTrust
from .txn.session import Session
from .txn.snapshot import HBaseSnapshot
from .txn.status_table import Records
from .txn.unchecked_writes import Direct
from .txn.unheld import UnheldSession, UnheldSnapshot
from .txn.visibility import Resolver
from .upkeep.diagnosis import Diagnosis
from .upkeep.heartbeat import Housekeeping
from .upkeep.janitor import Janitor

__all__ = ["HBaseEngine"]

_LEAVING = 5.0
"""Seconds to finish at most what is not needed: others would do it."""


class HBaseEngine(Engine):
    """One connection to the tables of a prefix. `start` makes what is missing.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is; closed with the engine.
    layout : Layout
        The names.
    settings : Settings
        How to use it.
    """

    epoch_lags = True
    plans_hold_everything = True

    def __init__(self, gateway: Gateway, layout: Layout, settings: Settings) -> None:
        self._gateway = gateway
        self._layout = layout
        self._settings = settings
        self._process = os.getpid()
        self._closed = False
        self._epoch = 0
        self._trust = SchemaTrust()
        self._session: Session | None = None
        self._renewing = threading.Lock()

        def merge(raw: bytes | None, increments: Sequence[Increment]) -> bytes:
            return self.upcalls.merge(raw, increments)

        self.tables = Tables(gateway, layout)
        self.records = Records(gateway, layout, min(5.0, settings.late_writes / 2))
        resolver = Resolver(gateway, self.records, merge)
        placing = Placing(gateway, layout, resolver)
        conflicts = Conflicts(gateway, layout, self.records, merge, settings.lease)
        self._resolver = resolver
        self._reader = Reader(gateway, layout, resolver)
        self.finaliser = Finaliser(gateway, self.records, placing, settings.finalisation_delay)
        sender = Sender(gateway, layout, self.records, conflicts, settings)
        self._committer = Committer(gateway, layout, self.records, conflicts, sender, self.finaliser, settings.patience)
        self._bulk = BulkCommitter(gateway, layout, self.records, resolver, conflicts, sender, self._committer, placing)
        self._direct = Direct(gateway, layout)
        self._splits = Splits(gateway, layout, self._reader)
        self._staging = Staging(gateway, layout, self.tables)
        self.janitor = Janitor(gateway, layout, self.records, placing, settings)
        self._housekeeping = Housekeeping(self.janitor, settings)
        self._diagnosis = Diagnosis(
            gateway,
            layout,
            self.records,
            self.tables,
            Janitor(gateway, layout, self.records, placing, settings),
            settings,
        )

    def start(self, upcalls: Upcalls) -> None:
        """Make or check the tables of the prefix, and begin a session.

        Raises
        ------
        StoreNotFoundError
            If there are none, and none must be made.
        StorageUnavailableError
            If HBase cannot be reached.
        DataCorruptionError
            If a newer version made the tables, or something else did.
        """
        super().start(upcalls)
        uninterrupted(self._start)

    def _start(self) -> None:
        self.tables.prepare(create=self._settings.create)
        self._session = self._new_session()
        if not self._settings.read_only:
            self._housekeeping.start(lambda: self._session)

    def _new_session(self) -> Session:
        if self._settings.read_only:
            return UnheldSession(self._layout)
        return Session(self._gateway, self._layout, self._settings.session_timeout)

    @property
    def session(self) -> Session:
        """The session of this process: a new one where others have ended the last."""
        session = self._session
        if session is not None and session.over and not self.closed:
            with self._renewing:
                session = self._session
                if session is not None and session.over:
                    session = self._session = self._new_session()
        if session is None or self.closed:
            raise StorageUnavailableError(
                "the HBase store was not started, was closed, or belongs to the process that forked this one"
            )
        return session

    @property
    def epoch(self) -> int:
        return self._epoch

    def _noticed(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch

    def get(self, key: bytes) -> bytes | None:
        session = self.session
        session.require_alive()
        space = key[:SPACE_BYTES]
        row, marker = self._layout.row(key), self._layout.row(space + MARKER)
        table = self._layout.table(space)
        trust = self._trust
        try:
            if trust.may_ask(space):
                cells = self._gateway.call(get_row(table, row, [FAMILY]))
                if trust.holds(space):
                    return self._newest(key, table, row, cells)
            asked = now()
            # In one call, though not in one state: a change of the schema that is missed came after the row was read
            # or during it, and an older row under a newer schema is what the change has to live with anyway.
            found = dict(self._gateway.call(get_rows(table, [marker, row], [FAMILY])))
        except TableMissingError:
            self.begin(True).close()
            raise SchemaChangedError from None
        cells = found.get(marker, {})
        if len(cells) == 1:
            changed = base_of(cells).version
        else:
            changed = self._resolver.states(table, [(marker, cells)], None)[marker].version if cells else 0
        if changed > self._epoch:
            self._noticed(changed)
            raise SchemaChangedError
        if len(cells) == 1 and VALUE in cells:
            trust.renew(space, asked)
        return self._newest(key, table, row, found.get(row, {}))

    def _newest(self, key: bytes, table: str, row: bytes, cells: Cells) -> bytes | None:
        """Return the newest committed value of a row that was read."""
        if len(cells) == 1 and (cell := cells.get(VALUE)) is not None and cell[0][0] == PUT:
            return cell[0][1:]
        if any(intent[0] == INCREMENT for _, intent in intents_of(cells)):
            # Which of several increments count is clear at a timestamp only.
            with closing(self.begin(True)) as snapshot:
                return snapshot.get(key)
        state = self._resolver.states(table, [(row, cells)], None).get(row)
        return state.value if state is not None else None

    def begin(self, read_only: bool) -> HBaseSnapshot:
        session = self.session
        if self._settings.read_only:
            snapshot: HBaseSnapshot = UnheldSnapshot(self._reader, session, self._gateway, self._layout)
        else:
            snapshot = HBaseSnapshot(self._reader, session)
        # Held before the counter is read: whoever cleans up reads the counter before he reads the sessions.
        session.hold(snapshot.holder, session.clock)
        cells = self._gateway.call(get_row(self._layout.transactions, CLOCK, [TICK, FAMILY]))
        snapshot.timestamp = timestamp = int.from_bytes(cells.pop(TICK)[0])
        session.hold(snapshot.holder, timestamp)
        session.clock = max(session.clock, timestamp)
        if len(cells) > 1:
            epoch = self._resolver.states(self._layout.transactions, [(CLOCK, cells)], timestamp)[CLOCK].version
        else:
            epoch = base_of(cells).version
        snapshot.epoch = epoch
        self._noticed(epoch)
        session.require_alive()
        return snapshot

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        if snapshot is None:
            self._direct.write(changes)
            return
        assert isinstance(snapshot, HBaseSnapshot)
        self._committer.commit(snapshot.session, snapshot.timestamp, changes)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self._bulk.commit(self.session, bulk)

    def create_space(self, space: bytes) -> None:
        self.tables.create_space(space)

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        return self._direct.discard(beginning, stopped)

    def plan_splits(self, begin: bytes, end: bytes, count: int) -> SplitPlan:
        snapshot = self.begin(True)
        return self._splits.plan(snapshot, begin, end, count)

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        return self._splits.read(state, intervals)

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._splits.values(state, keys)

    def write_run(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        return self._staging.write(job_id, pairs)

    def read_run(self, state: bytes) -> Iterator[Pair]:
        return self._staging.read(state)

    def drop_runs(self, job_id: str) -> None:
        self._staging.drop(job_id)

    def jobs_with_runs(self) -> dict[str, float]:
        return self._staging.jobs()

    def diagnose(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        return self._diagnosis.findings(self.session, spaces)

    def repair(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        return self._diagnosis.repair(self.session, spaces)

    @property
    def closed(self) -> bool:
        return self._closed or os.getpid() != self._process

    def close(self) -> None:
        uninterrupted(self._close)

    def _close(self) -> None:
        if self._closed:
            return
        if os.getpid() == self._process:
            self._housekeeping.stop(_LEAVING)
            self.finaliser.close(min(self._settings.patience, _LEAVING))
            self._closed = True
            session, self._session = self._session, None
            if session is not None:
                # Where HBase cannot be reached, nobody waits for that: others will find the session silent.
                leaving = threading.Thread(target=_end, args=(session,), name="structable-leaving", daemon=True)
                leaving.start()
                leaving.join(_LEAVING)
                self._gateway.close()
                leaving.join(_LEAVING)
        self._closed = True
        self._gateway.close()


def _end(session: Session) -> None:
    with suppress(StorageUnavailableError):
        session.close()
