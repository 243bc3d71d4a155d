"""The order of commits: one thread at a time validates and writes, for itself and for the threads that wait behind it.

A thread that finds the database free commits at once. Other threads queue up, and the first in the queue is woken to
commit the whole queue as one batch with one sync of the log. So a lone thread pays only for a lock, and many threads
share the syncs.

An exception from a signal's handler can leave a call at any point, but only in the main thread. So the main thread
holds the right through `with right` only, which always gives it back, for a commit of its own; other threads do
everything else (`uninterrupted`). An interrupted main thread may fail to wake the queue, so the queued threads look for
themselves from time to time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from structable.backends.ordered.engine import WriteSet
from structable.spi import CommitOutcomeUnknownError

from .commit_nodes import CommitNode


class Pending:
    """A commit in the queue, or, if `exclusive`, a thread that waits for `Committer.exclusive`."""

    __slots__ = ("changes", "done", "error", "exclusive", "marker", "node", "sync", "turn")

    def __init__(
        self,
        node: CommitNode | None,
        changes: WriteSet,
        sync: bool,
        marker: dict[bytes, bytes | None] | None,
        *,
        exclusive: bool = False,
    ) -> None:
        self.node = node  # the newest commit in the transaction's snapshot; None commits without a check
        self.changes = changes
        self.sync = sync  # the commit must survive a crash of the machine
        self.marker = marker  # written along with the changes
        self.exclusive = exclusive
        self.error: BaseException | None = None
        self.done = False
        self.turn: SimpleQueue[bool] | None = None
        """Wakes the waiting thread: True passes it the right to write, False makes it check the queue."""


_GATHER = 0.00015  # seconds
_LOOK = 0.05  # seconds
_NO_CHANGES = WriteSet()


class CommitQueue:
    """Passes the right to write from thread to thread.

    `write` commits a group, and sets `error` of each member that failed. It is called by one thread at a time.
    """

    def __init__(self, write: Callable[[list[Pending]], None]) -> None:
        self._write = write
        self.right = threading.Lock()
        """Held by the thread that may write."""
        self.crowd = 1
        """Estimate of the threads that commit at once."""
        self.queue: deque[Pending] = deque()
        """Commits that wait for the right."""
        self._gathered: SimpleQueue[bool] | None = None
        """Wakes the thread that gathers a group, once enough have queued up."""
        self.holder = 0
        """The thread that holds the right through `exclusive`, for longer than one commit."""

    def wake(self) -> None:
        """Make the first thread in the queue check again, after `right` was released."""
        try:
            _wake(self.queue[0], right=False)
        except IndexError:
            return  # the queue has been served

    def commit(self, pending: Pending) -> None:
        """Commit in a group, when the right was taken; never in the main thread."""
        if self.holder == threading.get_ident():
            self._write([pending])
        else:
            self._wait_for_turn(pending)
            if not pending.done:
                # This thread has the right to write now: it was free after all, or was passed on.
                self._lead(pending)
        if pending.error is not None:
            raise pending.error

    def _wait_for_turn(self, pending: Pending) -> None:
        """Return when the commit is done, or this thread has the right to write."""
        turn: SimpleQueue[bool] = SimpleQueue()
        pending.turn = turn
        self.queue.append(pending)
        gathered = self._gathered
        if gathered is not None and self._is_crowded():
            gathered.put(True)
        while not pending.done:
            if self.right.acquire(blocking=False):
                if pending.done:
                    self.release()
                return
            try:
                if turn.get(timeout=_LOOK):
                    return
            except Empty:
                continue

    def _lead(self, pending: Pending) -> None:
        group: list[Pending] = []
        later: list[Pending] = []
        try:
            if pending.sync:
                self._gather()
            while self.queue:
                member = self.queue.popleft()
                (later if member.exclusive else group).append(member)
            self.queue.extendleft(reversed(later))
            self.crowd = max(len(group), self.crowd - 1)
            self._write(group)
        except BaseException as error:
            for member in group:
                if member is not pending and member.error is None:
                    member.error = CommitOutcomeUnknownError(f"the thread that committed for this one ended: {error!r}")
            raise
        finally:
            for member in group:
                member.done = True
                if member is not pending:
                    _wake(member, right=False)
            self.release()

    def _gather(self) -> None:
        # The threads that the last sync served are about to commit again, and a sync is worth waiting for them.
        gathered: SimpleQueue[bool] = SimpleQueue()
        self._gathered = gathered
        if not self._is_crowded():
            with suppress(Empty):
                gathered.get(timeout=_GATHER)
        self._gathered = None

    def _is_crowded(self) -> bool:
        return len(self.queue) >= self.crowd - 1

    def release(self) -> None:
        """Pass the right to write to the first in the queue, or set it free."""
        while True:
            try:
                first = self.queue[0]  # only the thread with the right to write takes from the queue
            except IndexError:
                self.right.release()
                # A thread that queued up before the release found the lock taken, and relies on this thread.
                if not self.queue or not self.right.acquire(blocking=False):
                    return
            else:
                _wake(first, right=True)
                return

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold off all other commits; the holder itself may commit. Never in the main thread."""
        me = threading.get_ident()
        if self.holder == me:
            yield
            return
        pending = Pending(None, _NO_CHANGES, False, None, exclusive=True)
        self._wait_for_turn(pending)
        try:
            self.holder = me
            self.queue.remove(pending)
            yield
        finally:
            self.holder = 0
            self.release()

    @contextmanager
    def held_for_long(self) -> Iterator[None]:
        """Let the thread that holds the right to write make commits inside the block."""
        before = self.holder
        self.holder = threading.get_ident()
        try:
            yield
        finally:
            self.holder = before


def _wake(pending: Pending, *, right: bool) -> None:
    if pending.turn is not None:
        pending.turn.put(right)
