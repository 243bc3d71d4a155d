"""`BulkCommitter`: the commit of a write job as one transaction of any size.

The rows of a chunk are locked before they are read: each gets an intent that changes nothing. The job waits for other
writers of the row or aborts them. From then on no transaction can commit without meeting the intent, so the state read
is the newest, remains the newest, and needs no final check. The real intents follow at a timestamp one later, so
that a lock which arrives late cannot hide them. A job counts as older than every other transaction: transactions that
meet it give way.

The record of a large transaction does not list its rows: its intents and versions are found by searching tables.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import groupby

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.layout import FAMILY, GATE_ROWS, MARKER, VALUE, Layout, intent_column
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Cells, ThriftCall, get_rows, put_column
from structable.backends.ordered.codec.keys import ROW_MARK
from structable.backends.ordered.engine import SPACE_BYTES, BulkCommit, EngineSnapshot, Pair, stamped
from structable.backends.ordered.schema.catalog import CATALOG_SPACE
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, StructableError, TransactionConflictError

from .conflicts import Conflicts
from .context import PrefixContext
from .decision import Decision
from .feed_reader import FeedReader
from .gate import Gate
from .intent_resolution import IntentResolution
from .intents import LOCK, RowId, write_intent
from .prewrite import PendingCommit, draw_timestamp
from .reader import CommittedReader, table_dropped
from .recent_writes import Digest
from .session import ProcessSession, read_clock
from .snapshot import HBaseSnapshot
from .status import ABORTED, PENDING, Status
from .visibility import Visibility
from .written_rows import decode_rows, encode_rows

_ROWS_AT_ONCE = 1_000
_CONNECTIONS = 3
_LOCK = bytes([LOCK])


class BulkCommitter:
    """Commits write jobs."""

    def __init__(self, context: PrefixContext) -> None:
        self.context = context
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._visibility = Visibility(context)
        self.reader = CommittedReader(context, self._visibility)
        self.feeds = FeedReader(context, self.reader)
        self._conflicts = Conflicts(context)
        self._decision = Decision(context, self._conflicts)
        self._resolution = IntentResolution(context)
        self._gate = Gate(context)

    def commit(self, session: ProcessSession, bulk: BulkCommit) -> None:
        session.require_alive()
        txid = session.next_transaction()
        try:
            session.hold(txid, session.clock)
            start = read_clock(self._gateway, self._layout)
            session.hold(txid, start)
            self._commit(session, bulk, txid, start)
        finally:
            session.release(txid)

    def _commit(self, session: ProcessSession, bulk: BulkCommit, txid: bytes, start: int) -> None:
        spaces: dict[bytes, dict[bytes, int]] = {bulk.space: {}, CATALOG_SPACE: {}}
        gates = {} if bulk.feed is None else {bulk.feed: GATE_ROWS}
        status = Status(PENDING, start, bulk=True, unlisted=True, writes=encode_rows(spaces, gates))
        pending = PendingCommit(txid, start, None, status)
        try:
            self._gateway.call(session.recent.enter(txid, Digest(frozenset(spaces))))
            reach("after_listed")
            found = self._status_table.change(txid, None, status)
            if found != status:
                raise TransactionConflictError("another process aborted this write job before it had begun; retry it")
            locked = _Locked(self, pending, session)
            locked.get(bulk.space + MARKER)  # locks the table's schema
            bulk.check(locked)
            with ThreadPoolExecutor(_CONNECTIONS, "structable-job") as pool:
                self._write_all(pending, bulk, locked, pool)
            reach("bulk_prewritten")
            session.require_alive()
            pending.timestamp = self._gateway.call(draw_timestamp(self._layout))
            self._decision.commit(session, pending, None)
        except CommitOutcomeUnknownError:
            raise
        except BaseException as error:
            # Without its locks a job may have missed commits of another job since it read.
            lost = isinstance(error, StructableError) and self._is_aborted(txid)
            committed = self._decision.abort_or_get_commit(pending)
            if not committed or not isinstance(error, Exception):
                if pending.status.state == ABORTED:
                    with suppress(StorageUnavailableError):  # the janitor does it later
                        self._clean_up(pending)
                if isinstance(error, TableMissingError):
                    raise table_dropped() from error
                if lost:
                    raise TransactionConflictError("another process aborted this write job; retry it") from error
                raise
        finally:
            pending.note_end(session)
        reach("bulk_committed")
        session.publish_recent_writes()  # until then, every writer of the table reads its rows back
        with suppress(StructableError):  # it is committed; the janitor finishes it
            self._clean_up(pending)
            self._status_table.change(txid, pending.status, pending.status.with_finalised())

    def _is_aborted(self, txid: bytes) -> bool:
        """Return whether another process aborted the transaction; false if that cannot be known now."""
        try:
            status = self._status_table.status(txid)
        except StorageUnavailableError:
            return False
        return status is not None and status.state == ABORTED

    def _write_all(self, pending: PendingCommit, bulk: BulkCommit, locked: _Locked, pool: ThreadPoolExecutor) -> None:
        """Write the intents, over several connections while the next chunk is computed."""
        running: set[Future[None]] = set()
        now = time.time_ns() // 1_000
        try:
            for changes, appends, first in bulk.chunks(locked):
                reach("bulk_locked")
                locked.renew_lease()
                entries = {number: stamped(now, payload) for number, payload in enumerate(appends, first)}
                running.add(pool.submit(self._write, pending, changes, bulk.feed, entries))
                if len(running) >= _CONNECTIONS:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        one.result()
            self._write(pending, bulk.completion, None, {})
            for one in running:
                one.result()
        finally:
            wait(running)

    def _write(
        self,
        pending: PendingCommit,
        changes: Mapping[bytes, bytes | None],
        feed: bytes | None,
        entries: Mapping[int, bytes],
    ) -> None:
        """Write a chunk's intents and entries; check that no other transaction holds rows that were not locked."""
        if feed is not None and entries:
            for call in self._gate.entering_rows(pending.txid, pending.start, feed, entries):
                self._gateway.call(call)
        column = intent_column(pending.txid)
        rows: dict[bytes, dict[bytes, bytes]] = {}
        for key, value in changes.items():
            rows.setdefault(key[:SPACE_BYTES], {})[self._layout.row(key)] = write_intent(value)
        puts: list[ThriftCall[None]] = []
        reads: list[ThriftCall[object]] = []
        spaces: list[bytes] = []
        for space, intents in rows.items():
            table = self._layout.table(space)
            puts += put_column(table, column, intents, pending.start + 1)
            checked = [row for row in intents if space == CATALOG_SPACE or row.startswith(ROW_MARK)]
            for begin in range(0, len(checked), ROWS_AT_ONCE):
                spaces.append(space)
                reads.append(get_rows(table, checked[begin : begin + ROWS_AT_ONCE], [FAMILY]))
        results = self._gateway.flight([*puts, *reads], retry=True)
        unsettled: dict[RowId, tuple[bytes, Cells]] = {}
        for space, found in zip(spaces, results[len(puts) :], strict=True):
            assert isinstance(found, list)
            for row, cells in found:
                unsettled[space, row] = rows[space][row], cells
        self._conflicts.settle(pending.txid, pending.start, unsettled, bulk=True)

    def lock(self, pending: PendingCommit, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Lock rows of one space and return their newest values."""
        column = intent_column(pending.txid)
        space = keys[0][:SPACE_BYTES]
        table = self._layout.table(space)
        rows = {self._layout.row(key): key for key in keys}
        names = list(rows)
        puts: list[ThriftCall[None]] = list(put_column(table, column, dict.fromkeys(rows, _LOCK), pending.start))
        reads: list[ThriftCall[object]] = [
            get_rows(table, names[begin : begin + ROWS_AT_ONCE], [FAMILY])
            for begin in range(0, len(names), ROWS_AT_ONCE)
        ]
        results = self._gateway.flight([*puts, *reads], retry=True)
        seen: dict[RowId, tuple[bytes, Cells]] = {}
        for found in results[len(puts) :]:
            assert isinstance(found, list)
            for row, cells in found:
                seen[space, row] = _LOCK, cells
        settled = self._conflicts.settle(pending.txid, pending.start, seen, bulk=True)
        states = self._visibility.states(table, [(row, cells) for (_, row), cells in settled.items()], None)
        return {key: state.value if (state := states.get(row)) is not None else None for row, key in rows.items()}

    def _clean_up(self, pending: PendingCommit) -> None:
        """Resolve the remaining intents, and empty the gate; may be repeated."""
        self._gate.finish(pending.txid, pending.status, decode_rows(pending.status.writes).gates)
        for space, intents in bulk_intents(self._gateway, self._layout, pending.txid, pending.status):
            reach("mid_bulk_cleanup")
            self._resolution.resolve(pending.txid, pending.status, {space: intents})


class _Locked(EngineSnapshot):
    """The newest state of rows, locked by reading them."""

    epoch = 0

    def __init__(self, committer: BulkCommitter, pending: PendingCommit, session: ProcessSession) -> None:
        self._committer = committer
        self._pending = pending
        self._session = session

    def renew_lease(self) -> None:
        self._session.require_alive()
        self._pending.renew_lease(self._committer.context)

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.renew_lease()
        values: list[bytes | None] = []
        for _, group in groupby(keys, key=lambda key: key[:SPACE_BYTES]):
            some = list(group)
            found = self._committer.lock(self._pending, some)
            values += [found[key] for key in some]
        return values

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        return self.scan_intervals([(begin, end)], reverse=reverse)

    def scan_intervals(
        self,
        intervals: Sequence[tuple[bytes, bytes]],
        *,
        reverse: bool = False,
        limit: int | None = None,
        limit_each: int | None = None,
    ) -> Iterator[Pair]:
        """Yield the pairs of disjoint intervals, all locked; the rows that another transaction adds may be missing."""
        found: dict[bytes, bytes] = {}
        left = list(intervals)
        while left:
            present = self._newest().scan_intervals(left, reverse=reverse, limit=limit, limit_each=limit_each)
            keys = [key for key, _ in present if key not in found]
            gone: list[bytes] = []
            for key, value in zip(keys, self.get_many(keys), strict=True):
                if value is None:
                    gone.append(key)  # deleted after the scan: other rows may take its place
                else:
                    found[key] = value
            left = [(begin, end) for begin, end in left if any(begin <= key < end for key in gone)]
        locked = sorted(found.items())
        for begin, end in intervals:
            pairs = locked[bisect_left(locked, (begin,)) : bisect_left(locked, (end,))]
            yield from (pairs[::-1] if reverse else pairs)[:limit_each]

    def _newest(self) -> HBaseSnapshot:
        context = self._committer.context
        snapshot = HBaseSnapshot(self._committer.reader, self._committer.feeds, self._session)
        snapshot.timestamp = read_clock(context.gateway, context.layout)  # the session holds an earlier one
        return snapshot

    def close(self) -> None:
        return None


def bulk_intents(
    gateway: Gateway, layout: Layout, txid: bytes, status: Status
) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Yield the remaining intents of a large transaction, page by page: the space, and the intents by their rows.

    The region servers search whole tables for the column.
    """
    column = intent_column(txid)
    for space in decode_rows(status.writes).rows:
        with suppress(TableMissingError):
            pages = gateway.pages(layout.table(space), b"", b"", [column], before=None, page_rows=_ROWS_AT_ONCE)
            for page in pages:
                yield space, {row: cells[column][0] for row, cells in page if column in cells}


def bulk_versions(gateway: Gateway, layout: Layout, status: Status) -> Iterator[tuple[bytes, dict[bytes, int]]]:
    """Yield space, and row to the first byte of its version, page by page, for the rows of a large commit."""
    for space in decode_rows(status.writes).rows:
        with suppress(TableMissingError):
            pages = gateway.pages(
                layout.table(space),
                b"",
                b"",
                [FAMILY],
                before=None,
                page_rows=_ROWS_AT_ONCE,
                server_filter=f"TimestampsFilter({status.commit})",
            )
            for page in pages:
                found = {
                    row: cells[VALUE][0][0]
                    for row, cells in page
                    if VALUE in cells and cells[VALUE][1] == status.commit
                }
                yield space, found
