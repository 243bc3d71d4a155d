"""The order of commits: one thread at a time validates and writes, for itself and for those that wait behind it.

Whoever finds the database free commits at once. Whoever does not queues up, and the first in the queue is woken to
commit the whole queue as one batch with one sync of the log. So a lone thread pays for a lock and nothing else, and
many threads share the syncs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structable.backends.ordered.engine import WriteSet
from structable.spi.errors import CommitOutcomeUnknownError

from .history import CommitNode

__all__ = ["Committer", "Pending"]


class Pending:
    """A commit on its way.

    Parameters
    ----------
    node : CommitNode or None
        Where the snapshot of the transaction stands; None commits without a check.
    changes : WriteSet
        What to write.
    sync : bool
        Whether it must survive the machine.
    marker : dict
        Written along with it.
    exclusive : bool
        It is no commit, but a place in the queue for `Committer.exclusive`.
    """

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
        self.node = node
        self.changes = changes
        self.sync = sync
        self.marker = marker
        self.exclusive = exclusive
        self.error: BaseException | None = None
        self.done = False
        self.turn: threading.Lock | None = None


_GATHER = 0.00015  # seconds
_NO_CHANGES = WriteSet()


class Committer:
    """Passes the right to write from thread to thread.

    Parameters
    ----------
    write : callable
        Commits a group; sets `error` of each member that failed. Called by one thread at a time.
    """

    def __init__(self, write: Callable[[list[Pending]], None]) -> None:
        self._write = write
        self._free = threading.Lock()
        self.acquire: Callable[[bool], bool] = self._free.acquire
        """`acquire(False)` takes the right to write, if nobody has it."""
        self.crowd = 1
        """About how many threads commit at once."""
        self._queue: deque[Pending] = deque()
        self.holder = 0
        """The thread that holds the right for longer than a commit, by `exclusive`."""

    def commit(self, pending: Pending) -> None:
        """Commit in a group, when the right was not to be had at once.

        Raises
        ------
        Exception
            What went wrong with this commit.
        """
        if self.holder == threading.get_ident():
            self._write([pending])
        else:
            self._queue_up(pending)
        if pending.error is not None:
            raise pending.error

    def _queue_up(self, pending: Pending) -> None:
        interruption = self._wait_for_turn(pending)
        if not pending.done:
            # This thread has the right to write: it was free after all, or was passed on.
            self._lead(pending)
        if interruption is not None:
            raise interruption

    def _wait_for_turn(self, pending: Pending) -> BaseException | None:
        pending.turn = turn = threading.Lock()
        turn.acquire()
        self._queue.append(pending)
        if self._free.acquire(False):
            if not pending.done:
                return None
            self.release()
            return None
        interruption: BaseException | None = None
        while True:
            try:
                turn.acquire()
            except BaseException as error:  # Ctrl-C must not take the right to write away with it
                interruption = error
            else:
                return interruption

    def _lead(self, pending: Pending) -> None:
        group: list[Pending] = []
        later: list[Pending] = []
        try:
            if pending.sync:
                self._gather()
            while self._queue:
                member = self._queue.popleft()
                (later if member.exclusive else group).append(member)
            self._queue.extendleft(reversed(later))
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
                if member is not pending and member.turn is not None:
                    member.turn.release()
            self.release()

    def _gather(self) -> None:
        # Those that the last sync has served are about to commit again, and a sync is worth waiting for them.
        deadline = time.perf_counter() + _GATHER
        while len(self._queue) < self.crowd - 1 and time.perf_counter() < deadline:
            time.sleep(_GATHER / 8)

    def release(self) -> None:
        """Pass the right to write to the first in the queue, or set it free."""
        queue = self._queue
        while True:
            if not queue:
                self._free.release()
                # Whoever queued up before the release has seen the lock taken, and counts on this thread.
                if not queue or not self._free.acquire(False):
                    return
            else:
                first = queue[0]  # only the thread with the right to write takes from the queue
                if first.turn is not None:
                    first.turn.release()
                return

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold all other commits off; the holder itself may commit."""
        me = threading.get_ident()
        if self.holder == me:
            yield
            return
        place = Pending(None, _NO_CHANGES, False, None, exclusive=True)
        interruption = self._wait_for_turn(place)
        try:
            self.holder = me
            self._queue.remove(place)
            if interruption is not None:
                raise interruption
            yield
        finally:
            self.holder = 0
            self.release()

    @contextmanager
    def held_for_long(self) -> Iterator[None]:
        """Let the thread that holds the right to write call what commits."""
        before = self.holder
        self.holder = threading.get_ident()
        try:
            yield
        finally:
            self.holder = before
