"""`BulkCommitter`: the commit of a write job as one transaction, whatever its size.

A chunk's rows are locked before they are read: an intent that changes nothing is placed, whoever else writes the row is
waited for or aborted, and from then on nobody can commit a write of it without meeting the intent. So what is read is
the newest state and stays it, and nothing has to be checked again at the end. The real intents follow at a timestamp
one later, so that a lock which arrives late cannot hide them. A job is older than every other transaction: those that
meet it give way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import groupby

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.layout import FAMILY, MARKER, Layout, intent_column
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Call, Cells, get_rows, put_column
from structable.backends.ordered.codec.keys import ROW_MARK
from structable.backends.ordered.engine import SPACE_BYTES, BulkCommit, EngineSnapshot, Pair
from structable.backends.ordered.schema.catalog import CATALOG_SPACE
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .bulk_search import bulk_intents
from .commit import Committer
from .conflicts import Conflicts, Place
from .finaliser import Placing
from .intents import LOCK, write_intent
from .prewrite import Attempt, Sender, draw
from .reader import dropped
from .recent_writes import Digest
from .session import Session, read_clock
from .status import ABORTED, PENDING, Status, encode_writes
from .status_table import Records
from .visibility import Resolver

__all__ = ["BulkCommitter"]

_CONNECTIONS = 3
_LOCK = bytes([LOCK])


class BulkCommitter:
    """Commits write jobs.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    resolver : Resolver
        Reads the newest states.
    conflicts : Conflicts
        Deals with whoever else writes.
    sender : Sender
        Shows life.
    committer : Committer
        Decides.
    placing : Placing
        Finalises.
    """

    def __init__(
        self,
        gateway: Gateway,
        layout: Layout,
        records: Records,
        resolver: Resolver,
        conflicts: Conflicts,
        sender: Sender,
        committer: Committer,
        placing: Placing,
    ) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._resolver = resolver
        self._conflicts = conflicts
        self._sender = sender
        self._committer = committer
        self._placing = placing

    def commit(self, session: Session, bulk: BulkCommit) -> None:
        """Commit all of a job, or nothing; see `Engine.commit_bulk`."""
        session.require_alive()
        txid = session.next_transaction()
        try:
            session.hold(txid, session.clock)
            start = read_clock(self._gateway, self._layout)
            session.hold(txid, start)
            self._commit(session, bulk, txid, start)
        finally:
            session.let_go(txid)

    def _commit(self, session: Session, bulk: BulkCommit, txid: bytes, start: int) -> None:
        spaces: dict[bytes, dict[bytes, int]] = {bulk.space: {}, CATALOG_SPACE: {}}
        status = Status(PENDING, start, bulk=True, unlisted=True, writes=encode_writes(spaces))
        attempt = Attempt(txid, start, None, status)
        try:
            self._gateway.call(session.recent.enter(txid, Digest(frozenset(spaces))))
            reach("after_listed")
            found = self._records.change(txid, None, status)
            if found != status:
                raise TransactionConflictError("another process took this transaction for dead before it had begun")
            locked = _Locked(self, attempt, session)
            locked.get(bulk.space + MARKER)  # nobody changes the table meanwhile
            bulk.check(locked)
            with ThreadPoolExecutor(_CONNECTIONS, "structable-job") as pool:
                self._place_all(attempt, session, bulk, locked, pool)
            reach("bulk_placed")
            session.require_alive()
            attempt.timestamp = self._gateway.call(draw(self._layout))
            self._committer.decide(session, attempt, None)
        except CommitOutcomeUnknownError:
            raise
        except BaseException as error:
            committed = self._committer.is_committed_after_all(attempt)
            if not committed or not isinstance(error, Exception):
                if attempt.status.state == ABORTED:
                    with suppress(StorageUnavailableError):  # the janitor does it later
                        self._clean_up(attempt)
                if isinstance(error, TableMissingError):
                    raise dropped() from error
                raise
        finally:
            attempt.note_end(session)
        reach("bulk_committed")
        session.tell()  # as long as the job is listed as open, all who write the table look at all their rows
        with suppress(StructableError):  # it is committed; the janitor finishes it
            self._clean_up(attempt)
            self._records.change(txid, attempt.status, attempt.status.with_finalised())

    def _place_all(
        self, attempt: Attempt, session: Session, bulk: BulkCommit, locked: _Locked, pool: ThreadPoolExecutor
    ) -> None:
        """Place the intents, over several connections while the next chunk is worked out."""
        running: set[Future[None]] = set()
        try:
            for changes in bulk.chunks(locked):
                reach("bulk_locked")
                locked.show_life()
                running.add(pool.submit(self._place, attempt, changes))
                if len(running) >= _CONNECTIONS:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        one.result()
            self._place(attempt, bulk.completion)
            for one in running:
                one.result()
        finally:
            wait(running)

    def _place(self, attempt: Attempt, changes: Mapping[bytes, bytes | None]) -> None:
        """Place the intents of a chunk, and make sure that those rows are not somebody else's that were not read."""
        column = intent_column(attempt.txid)
        rows: dict[bytes, dict[bytes, bytes]] = {}
        for key, value in changes.items():
            rows.setdefault(key[:SPACE_BYTES], {})[self._layout.row(key)] = write_intent(value)
        puts: list[Call[None]] = []
        reads: list[Call[object]] = []
        spaces: list[bytes] = []
        for space, intents in rows.items():
            table = self._layout.table(space)
            puts += put_column(table, column, intents, attempt.start + 1)
            checked = [row for row in intents if space == CATALOG_SPACE or row.startswith(ROW_MARK)]
            for begin in range(0, len(checked), ROWS_AT_ONCE):
                spaces.append(space)
                reads.append(get_rows(table, checked[begin : begin + ROWS_AT_ONCE], [FAMILY]))
        results = self._gateway.flight([*puts, *reads], retry=True)
        unsettled: dict[Place, tuple[bytes, Cells]] = {}
        for space, found in zip(spaces, results[len(puts) :], strict=True):
            assert isinstance(found, list)
            for row, cells in found:
                unsettled[space, row] = rows[space][row], cells
        self._conflicts.settle(attempt.txid, attempt.start, unsettled, bulk=True)

    def lock(self, attempt: Attempt, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Lock rows of one space and return their newest values."""
        column = intent_column(attempt.txid)
        space = keys[0][:SPACE_BYTES]
        table = self._layout.table(space)
        rows = {self._layout.row(key): key for key in keys}
        names = list(rows)
        puts: list[Call[None]] = list(put_column(table, column, dict.fromkeys(rows, _LOCK), attempt.start))
        reads: list[Call[object]] = [
            get_rows(table, names[begin : begin + ROWS_AT_ONCE], [FAMILY])
            for begin in range(0, len(names), ROWS_AT_ONCE)
        ]
        results = self._gateway.flight([*puts, *reads], retry=True)
        seen: dict[Place, tuple[bytes, Cells]] = {}
        for found in results[len(puts) :]:
            assert isinstance(found, list)
            for row, cells in found:
                seen[space, row] = _LOCK, cells
        settled = self._conflicts.settle(attempt.txid, attempt.start, seen, bulk=True)
        states = self._resolver.states(table, [(row, cells) for (_, row), cells in settled.items()], None)
        return {key: state.value if (state := states.get(row)) is not None else None for row, key in rows.items()}

    def _clean_up(self, attempt: Attempt) -> None:
        """Finalise, or take the intents away; whoever repeats it finds what is left."""
        for space, intents in bulk_intents(self._gateway, self._layout, attempt.txid, attempt.status):
            reach("mid_bulk_cleanup")
            self._placing.place(attempt.txid, attempt.status, {space: intents})

    def show_life(self, attempt: Attempt) -> None:
        """Renew the lease if it is time."""
        self._sender.show_life(attempt)


class _Locked(EngineSnapshot):
    """The newest state of rows, locked by reading them."""

    epoch = 0

    def __init__(self, committer: BulkCommitter, attempt: Attempt, session: Session) -> None:
        self._committer = committer
        self._attempt = attempt
        self._session = session

    def show_life(self) -> None:
        """Give a sign of life if it is time."""
        self._session.require_alive()
        self._committer.show_life(self._attempt)

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.show_life()
        values: list[bytes | None] = []
        for _, group in groupby(keys, key=lambda key: key[:SPACE_BYTES]):
            some = list(group)
            found = self._committer.lock(self._attempt, some)
            values += [found[key] for key in some]
        return values

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        raise UnsupportedOperationError("what a write job reads while it is committed, it locks row by row")

    def close(self) -> None:
        return None
