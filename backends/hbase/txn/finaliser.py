"""`Finaliser`: puts what was committed in its place, in the background, in batches; or cleans up what was aborted."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue

from structable.backends.hbase.failpoints import failpoints, reach, stepwise
from structable.backends.hbase.layout import VALUE, Layout, intent_column
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Call, put_then_delete, split_rows
from structable.spi.errors import StorageUnavailableError, TransactionConflictError

from .intents import INCREMENT, LOCK, RowState
from .session import Session
from .status import COMMITTED, Status
from .status_table import Records
from .visibility import Resolver
from .write_set import Changes

__all__ = ["Ended", "Finaliser", "Finished", "Intents", "Placing"]

Intents = Mapping[bytes, Mapping[bytes, bytes]]
"""Space to row to intent."""

Ended = tuple[bytes, Status, Intents]
"""A transaction that has ended, its status, and its intents or some of them."""

_BATCH = 32
_MOST_WAITING = 512
_MOST_UNMARKED = 200
_UNMARKED = 0.2
"""How many transactions, and how many seconds, may pass before it is written that they are finalised."""
_PAUSE = 0.5
_LOOK = 0.002
_LONGEST_SILENCE = 1.0
"""Seconds."""

_log = logging.getLogger("structable.hbase")


@dataclass(slots=True)
class Finished:
    """A transaction that has ended, with what it has left to do.

    Parameters
    ----------
    session : Session
        Holds the transaction until it is finalised.
    txid : bytes
        The transaction.
    status : Status
        Committed or aborted.
    changes : Changes
        What it wrote.
    """

    session: Session
    txid: bytes
    status: Status
    changes: Changes

    @property
    def intents(self) -> Intents:
        """Its intents."""
        return {space: dict(one.intents()) for space, one in self.changes.spaces.items()}

    @property
    def ended(self) -> Ended:
        """What is to be placed."""
        return self.txid, self.status, self.intents

    def free_lane(self) -> None:
        """Give its column to the next transaction of its session; its intents are gone."""
        self.session.free_lane(self.txid, max(self.status.commit, self.status.start + 1))


class Placing:
    """Places rows: the same for the owner and for whoever does it in his stead, any number of times.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    resolver : Resolver
        Says what an increment made of a row.
    """

    def __init__(self, gateway: Gateway, layout: Layout, resolver: Resolver) -> None:
        self._gateway = gateway
        self._layout = layout
        self._resolver = resolver

    def calls(self, transactions: Sequence[Ended]) -> list[Call[None]]:
        """Return the calls that put every row in its place and take the intents away, in this order for each row."""
        merged = self._merged(transactions)
        return [call for one in transactions for call in self._calls(*one, merged)]

    def _merged(self, transactions: Sequence[Ended]) -> dict[bytes, Mapping[tuple[bytes, int], RowState]]:
        """Return, for each space, what increments make of their rows, each at its own timestamp.

        That is the row with all increments up to this one, whoever's they are, in their order.
        """
        committed = {txid: status for txid, status, _ in transactions if status.state == COMMITTED}
        rows: dict[bytes, dict[bytes, list[int]]] = {}
        for _, status, intents in transactions:
            if status.state != COMMITTED:
                continue
            for space, some in intents.items():
                for row, intent in some.items():
                    if intent[0] == INCREMENT:
                        rows.setdefault(space, {}).setdefault(row, []).append(status.commit)
        # A hot row is in many of them: it is read once, for the intents on it are many, too.
        return {
            space: self._resolver.history(self._layout.table(space), some, committed) for space, some in rows.items()
        }

    def _calls(
        self,
        txid: bytes,
        status: Status,
        intents: Intents,
        merged: Mapping[bytes, Mapping[tuple[bytes, int], RowState]],
    ) -> list[Call[None]]:
        column = intent_column(txid)
        found: list[Call[None]] = []
        for space, rows in intents.items():
            table = self._layout.table(space)
            if status.state != COMMITTED:
                found += self._removals(table, rows, column, status.start + 1)  # a job's are one later
                continue
            puts: dict[bytes, Mapping[bytes, bytes]] = {}
            for row, intent in rows.items():
                if intent[0] == INCREMENT:
                    state = merged[space].get((row, status.commit))
                    if state is not None and state.version == status.commit:
                        puts[row] = {VALUE: state.version_cell}
                elif intent[0] != LOCK:
                    puts[row] = {VALUE: intent}
            if locked := [row for row in rows if row not in puts]:
                # A lock leaves no version behind: who is still pending must commit later than it did.
                self._resolver.read(table, locked, status.commit, {txid: status})
            for part in split_rows(puts, 1 if failpoints else ROWS_AT_ONCE):
                found.append(put_then_delete(table, part, {row: [column] for row in part}, status.commit))
            found += self._removals(table, [row for row in rows if row not in puts], column, status.commit)
        return found

    @staticmethod
    def _removals(
        table: str, rows: Mapping[bytes, bytes] | Sequence[bytes], column: bytes, at: int
    ) -> list[Call[None]]:
        names = list(rows)
        count = 1 if failpoints else ROWS_AT_ONCE
        return [
            put_then_delete(table, {}, {row: [column] for row in names[begin : begin + count]}, at)
            for begin in range(0, len(names), count)
        ]

    def place(self, txid: bytes, status: Status, intents: Intents) -> None:
        """Place the rows of one transaction, leaving out tables that are there no longer."""
        for space, rows in intents.items():
            try:
                self._gateway.flight(self.calls([(txid, status, {space: rows})]), retry=True)
            except TableMissingError:
                continue


class Finaliser:
    """A thread that finalises the transactions of this process.

    That a transaction is finalised matters to the janitor alone. So it is written for many of them at once, after some
    tenths of a second, and until then their session holds them.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    records : Records
        The statuses.
    placing : Placing
        Does the work.
    delay : float
        Seconds that rows stay intents at least.
    """

    def __init__(self, gateway: Gateway, records: Records, placing: Placing, delay: float) -> None:
        self._gateway = gateway
        self._records = records
        self._placing = placing
        self._delay = delay
        self._waiting: deque[Finished] = deque()
        self._unmarked: dict[bytes, tuple[Session, Status]] = {}
        self._mark_at = 0.0
        self._hurrying_until = 0.0
        # No condition: `add` is called by the main thread, where an interruption might leave its lock taken.
        self._words: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._is_working = threading.Lock()

    def add(self, finished: Finished) -> None:
        """Take over a transaction."""
        self._waiting.append(finished)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="structable-finaliser", daemon=True)
            thread.start()
            self._thread = thread
        self._words.put(None)

    def has(self, txid: bytes) -> bool:
        """Tell whether a transaction was taken over, and is not finalised yet."""
        return txid in self._unmarked or any(one.txid == txid for one in list(self._waiting))

    def keep_up(self) -> None:
        """Wait while too much is waiting: commits that come faster than they are finalised make all reads slow."""
        if self._delay or len(self._waiting) < _MOST_WAITING:
            return
        deadline = time.monotonic() + 5.0
        while not self._stopping and len(self._waiting) >= _MOST_WAITING and time.monotonic() < deadline:
            time.sleep(_LOOK)

    @property
    def backlog(self) -> int:
        """How many transactions wait."""
        return len(self._waiting) + len(self._unmarked)

    def drain(self, timeout: float) -> bool:
        """Wait until nothing waits; false if that took too long."""
        deadline = time.monotonic() + timeout
        self._hurrying_until = max(self._hurrying_until, deadline)
        self._words.put(None)
        while self.backlog and time.monotonic() < deadline:
            time.sleep(_LOOK)
        self._hurrying_until = 0.0  # an interruption lets it run out
        return not self.backlog

    @property
    def _hurrying(self) -> bool:
        return time.monotonic() < self._hurrying_until

    def close(self, timeout: float) -> None:
        """Finish what waits, for at most `timeout` seconds; others finish the rest."""
        if not self._delay:
            self.drain(timeout)
        self._stopping = True
        self._words.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _work(self) -> None:
        if not self._is_working.acquire(False):
            return  # the caller that started the other one was interrupted before it had noted so
        alone = 0
        while self._wait():
            batch = list(islice(self._waiting, 1 if alone else _BATCH))
            try:
                self._finalise(batch)
            except (StorageUnavailableError, TransactionConflictError):
                self._pause()
                batch.clear()
            except Exception:
                if len(batch) > 1:
                    alone = len(batch)  # to find the one that is to blame
                    continue
                # It stays as it is, for the doctor to tell: what can be read is read from the intents.
                _log.exception("finalising transaction %s failed; it stays committed", batch[0].txid.hex())
                for one in batch:
                    one.session.let_go(one.txid)
            alone = max(0, alone - len(batch))
            for _ in batch:
                self._waiting.popleft()
            if self._unmarked and self._is_time_to_mark():
                self._mark()

    def _pause(self, seconds: float = _PAUSE) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._listen(left)

    def _listen(self, seconds: float) -> None:
        """Wait for a word; not too long, for an interruption may have kept it back."""
        try:
            self._words.get(timeout=min(seconds, _LONGEST_SILENCE))
            while True:
                self._words.get_nowait()
        except Empty:
            return

    def _wait(self) -> bool:
        """Wait for something to do; false if nothing more is to be done."""
        while not (self._waiting or self._stopping or (self._unmarked and self._hurrying)):
            left = self._mark_at - time.monotonic() if self._unmarked else _LONGEST_SILENCE
            if left <= 0:
                break
            self._listen(left)
        if self._delay and self._waiting:
            self._pause(self._delay)
        return not self._stopping

    def _finalise(self, batch: Sequence[Finished]) -> None:
        # Others do it where the session was declared dead: then what replaced these rows may be gone already, too.
        mine = [one for one in batch if not one.session.over]
        if mine:
            self._place(mine)
        if not self._unmarked:
            self._mark_at = time.monotonic() + _UNMARKED
        for one in mine:
            one.free_lane()
            if one.status.state == COMMITTED:
                self._unmarked[one.txid] = one.session, one.status
        for one in batch:
            if one.txid not in self._unmarked:
                one.session.let_go(one.txid)

    def _place(self, batch: Sequence[Finished]) -> None:
        for one in batch:
            one.session.require_alive()
        reach("before_finalise")
        try:
            calls = self._placing.calls([one.ended for one in batch])
            if failpoints:
                stepwise(self._gateway.flight, calls, dict.fromkeys(range(len(calls) - 1), "mid_finalise"))
            else:
                self._gateway.flight(calls, retry=True)
        except TableMissingError:
            for one in batch:
                self._placing.place(*one.ended)
        reach("after_finalise")

    def _is_time_to_mark(self) -> bool:
        if self._hurrying and not self._waiting:
            return True
        return len(self._unmarked) >= _MOST_UNMARKED or time.monotonic() >= self._mark_at

    def _mark(self) -> None:
        """Write which transactions are finalised, but for those of dead sessions, whose records may be gone already."""
        try:
            for session in {session for session, _ in self._unmarked.values()}:
                with suppress(TransactionConflictError):
                    session.require_alive()
            done = {txid: status for txid, (session, status) in self._unmarked.items() if not session.over}
            self._gateway.flight(self._records.mark_finalised(done), retry=True)
            reach("after_finalised")
        except StorageUnavailableError:
            self._pause()
            return
        except Exception:
            _log.exception("marking transactions as finalised failed; the janitor does it")
        for txid, (session, _) in self._unmarked.items():
            session.let_go(txid)
        self._unmarked.clear()
