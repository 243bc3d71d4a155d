"""`Finaliser`: resolves the intents of this process's transactions, in the background and in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from structable.backends.hbase.failpoints import failpoints, reach, stepwise
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.spi import StorageUnavailableError, TransactionConflictError

from .context import PrefixContext
from .gate import Gate
from .intent_resolution import EndedIntents, IntentResolution
from .intent_set import IntentSet
from .session import ProcessSession
from .status import COMMITTED, Status

_BATCH = 32
_MOST_WAITING = 512
MOST_UNMARKED = 200
MARK_DELAY = 0.2
"""Limits, in transactions and in seconds, after which finalised transactions are marked."""
_PAUSE = 0.5
_LOOK = 0.002
_LONGEST_SILENCE = 1.0
"""The maximum number of seconds between two wake-ups of the thread."""

_log = logging.getLogger("structable.hbase")


@dataclass(slots=True)
class EndedTransaction:
    """A committed or aborted transaction whose intents await resolution; its session holds it until then."""

    session: ProcessSession
    txid: bytes
    status: Status
    intents: IntentSet

    @property
    def ended(self) -> EndedIntents:
        return self.txid, self.status, {space: dict(one.intents()) for space, one in self.intents.spaces.items()}

    def free_lane(self) -> None:
        """Free the transaction's column for the next one of its session, once the intents are gone."""
        self.session.free_lane(self.txid, max(self.status.commit, self.status.start + 1))


class Finaliser:
    """A thread that finalises the transactions of this process.

    Only the janitor needs to know that a transaction is finalised. Transactions are therefore marked in groups, after
    some tenths of a second, and until then their session holds them.
    """

    def __init__(self, context: PrefixContext) -> None:
        self._gateway = context.gateway
        self._status_table = context.status_table
        self._resolution = IntentResolution(context)
        self._gate = Gate(context)
        self.waiting: deque[EndedTransaction] = deque()
        self.unmarked: dict[bytes, tuple[ProcessSession, Status]] = {}
        self._mark_at = 0.0
        self._hurrying_until = 0.0
        # No condition: the main thread calls `add`, where an interruption might leave the lock taken.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self.thread: threading.Thread | None = None
        self._is_working = threading.Lock()

    def add(self, ended: EndedTransaction) -> None:
        self.waiting.append(ended)
        if self.thread is None:
            thread = threading.Thread(target=self._work, name="structable-finaliser", daemon=True)
            thread.start()
            self.thread = thread
        self._wakes.put(None)

    def has(self, txid: bytes) -> bool:
        """Return whether a transaction was taken over and is not finalised yet."""
        return txid in self.unmarked or any(one.txid == txid for one in list(self.waiting))

    def keep_up(self) -> None:
        """Wait while the backlog is long: commits that outpace their finalisation slow down all reads."""
        if len(self.waiting) < _MOST_WAITING:
            return
        deadline = time.monotonic() + 5.0
        while not self._stopping and len(self.waiting) >= _MOST_WAITING and time.monotonic() < deadline:
            time.sleep(_LOOK)

    @property
    def backlog(self) -> int:
        """The number of transactions that wait for finalisation or marking."""
        return len(self.waiting) + len(self.unmarked)

    def drain(self, timeout: float) -> bool:
        """Wait until the backlog is empty; False if that takes too long."""
        deadline = time.monotonic() + timeout
        self._hurrying_until = max(self._hurrying_until, deadline)
        self._wakes.put(None)
        while self.backlog and time.monotonic() < deadline:
            time.sleep(_LOOK)
        self._hurrying_until = 0.0  # after an interruption, it expires
        return not self.backlog

    @property
    def _hurrying(self) -> bool:
        return time.monotonic() < self._hurrying_until

    def close(self, timeout: float) -> None:
        """Finalise the backlog, for at most `timeout` seconds; other processes finish the rest."""
        self.drain(timeout)
        self._stopping = True
        self._wakes.put(None)
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _work(self) -> None:
        if not self._is_working.acquire(False):
            return  # the caller that started the other thread was interrupted before recording it
        alone = 0
        failing = False
        while self._wait():
            # By position: an iterator would fail when another thread appends meanwhile.
            batch = [self.waiting[place] for place in range(min(1 if alone else _BATCH, len(self.waiting)))]
            try:
                self._finalise(batch)
            except (StorageUnavailableError, TransactionConflictError) as error:
                if not failing:
                    _log.warning("finalising transactions failed and will be repeated: %s", error)
                failing = True
                self._pause()
                batch.clear()
            except Exception:
                if len(batch) > 1:
                    alone = len(batch)  # to find the failing one
                    continue
                # It stays unfinalised, as the doctor reports; readers take its values from the intents.
                _log.exception("finalising transaction %s failed; its intents stay", batch[0].txid.hex())
                for one in batch:
                    one.session.release(one.txid)
            else:
                failing = False
            alone = max(0, alone - len(batch))
            for _ in batch:
                self.waiting.popleft()
            if self.unmarked and self._is_time_to_mark():
                self._mark()

    def _pause(self) -> None:
        end = time.monotonic() + _PAUSE
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._listen(left)

    def _listen(self, seconds: float) -> None:
        """Wait briefly for a wake-up, which an interruption may have prevented."""
        try:
            self._wakes.get(timeout=min(seconds, _LONGEST_SILENCE))
            while True:
                self._wakes.get_nowait()
        except Empty:
            return

    def _wait(self) -> bool:
        """Wait for work; False if the finaliser was closed."""
        while not (self.waiting or self._stopping or (self.unmarked and self._hurrying)):
            left = self._mark_at - time.monotonic() if self.unmarked else _LONGEST_SILENCE
            if left <= 0:
                break
            self._listen(left)
        return not self._stopping

    def _finalise(self, batch: Sequence[EndedTransaction]) -> None:
        # If the session was declared dead, others finalise: versions that replaced these may already be removed.
        mine = [one for one in batch if not one.session.over]
        if mine:
            self.resolve(mine)
        if not self.unmarked:
            self._mark_at = time.monotonic() + MARK_DELAY
        for one in mine:
            one.free_lane()
            if one.status.state == COMMITTED:
                self.unmarked[one.txid] = one.session, one.status
        for one in batch:
            if one.txid not in self.unmarked:
                one.session.release(one.txid)

    def resolve(self, batch: Sequence[EndedTransaction]) -> None:
        for one in batch:
            one.session.require_alive()
        reach("before_finalise")
        try:
            self._resolve(batch)
        except TableMissingError:
            for one in batch:
                self._resolution.resolve(*one.ended)
                self._gate.resolve(one.txid, one.status, one.intents.appends)
        reach("after_finalise")

    def _resolve(self, batch: Sequence[EndedTransaction]) -> None:
        resolving = self._resolution.calls([one.ended for one in batch])
        publishing = [call for one in batch for call in self._gate.publishing(one.status, one.intents.appends)]
        # In a flight of its own, once all entries are in their rows: calls of a flight run even after one has failed.
        emptying = [call for one in batch for call in self._gate.emptying(one.txid, one.status, one.intents.appends)]
        if not failpoints:
            self._gateway.flight([*resolving, *publishing], retry=True)
            self._gateway.flight(emptying, retry=True)
            return
        stepwise(self._gateway.flight, resolving, dict.fromkeys(range(len(resolving) - 1), "mid_finalise"))
        stepwise(self._gateway.flight, publishing, dict.fromkeys(range(len(publishing)), "mid_feed_finalise"))
        if publishing:
            reach("entries_put")
        stepwise(self._gateway.flight, emptying, dict.fromkeys(range(len(emptying)), "mid_feed_finalise"))

    def _is_time_to_mark(self) -> bool:
        if self._hurrying and not self.waiting:
            return True
        return len(self.unmarked) >= MOST_UNMARKED or time.monotonic() >= self._mark_at

    def _mark(self) -> None:
        """Mark transactions as finalised, except in dead sessions, whose records may already be removed."""
        try:
            for session in {session for session, _ in self.unmarked.values()}:
                with suppress(TransactionConflictError):
                    session.require_alive()
            done = {txid: status for txid, (session, status) in self.unmarked.items() if not session.over}
            self._gateway.flight(self._status_table.mark_finalised(done), retry=True)
            reach("after_finalised")
        except StorageUnavailableError:
            self._pause()
            return
        except Exception:
            _log.exception("marking transactions as finalised failed; the janitor does it")
        for txid, (session, _) in self.unmarked.items():
            session.release(txid)
        self.unmarked.clear()
