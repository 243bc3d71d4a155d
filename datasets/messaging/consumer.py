"""`Consumer` and `Batch`: how the active member of a group gets messages, and commits or retries them."""

from __future__ import annotations

import datetime as dt
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

from structable.datasets.coordination.beats import Watch, check_ttl
from structable.datasets.coordination.polling import Polling
from structable.datasets.errors import LeaseLostError
from structable.datasets.identifiers import check_name
from structable.datasets.session import Session
from structable.datasets.system.context import Context
from structable.datasets.system.messages import GroupSource, Message
from structable.datasets.tables.messaging import Subscription
from structable.spi import (
    CommitOutcomeUnknownError,
    Listener,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    Transaction,
    TransactionClosedError,
    TransactionError,
)

from .fetching import Fetched, Fetcher
from .groups import GroupMember, MovedError
from .reading import OpenFeed

_log = logging.getLogger("structable.datasets")

Body = TypeVar("Body")
Handler = Callable[[Session, Sequence[Message[Body]]], object]

_MOST_ATTEMPTS = 2**31 - 1


class Batch(Generic[Body]):
    """Messages of one poll; false if there are none. `Consumer.poll` makes it.

    Attributes
    ----------
    messages : sequence of Message
        The messages, in their order.
    """

    def __init__(self, group: GroupMember[Body], fetched: Fetched[Body] | None) -> None:
        self.messages: Sequence[Message[Body]] = [] if fetched is None else fetched.messages
        self._group = group
        self._fetched = fetched

    def __bool__(self) -> bool:
        return bool(self.messages)

    def __repr__(self) -> str:
        return f"<{len(self.messages):,} messages for the {self._group.lease}>"

    def commit(self, tx: Transaction | None = None) -> None:
        """Move the group behind the batch: in a transaction of its own, or in the caller's.

        In the caller's transaction the effects of the messages happen exactly once, otherwise at least once. An empty
        batch moves nothing.

        Raises
        ------
        LeaseLostError
            If another member has taken over, the group was moved, or the batch was committed before.
        """
        if tx is None:
            self._group.run(self._move)
        else:
            self._move(self._group.context(tx))

    def retry(self, error: BaseException | str) -> None:
        """Deliver the messages again later, one at a time; a message that fails too often goes to the dead letters.

        Raises
        ------
        LeaseLostError
            As `commit` does.
        """
        one = self._fetched
        try:
            if one is not None:
                self._group.fail(one.begin, one.end, one.items, error, alone=one.alone)
        except MovedError:
            raise LeaseLostError(self._group.lease) from None

    def _move(self, context: Context) -> None:
        if self._fetched is not None:
            try:
                row = self._group.mine(context, self._fetched.begin)
            except MovedError:
                raise LeaseLostError(self._group.lease) from None
            self._group.move(context, row, self._fetched.end)


class Consumer(Generic[Body]):
    """A member of a group: `system.consumer(topic, group=...)` makes it. A context manager, for one thread at a time.

    One member of a group is active, and the others stand by. One of them takes over when the active member leaves, or
    when it has seen no new beat of the active member for the ttl.
    """

    def __init__(self, feed: OpenFeed, group: GroupMember[Body], *, skips_lost: bool) -> None:
        self._feed = feed
        self._group = group
        self._fetcher = Fetcher(feed, group, skips_lost=skips_lost)
        self._polling = Polling(feed.storage)
        self._listener: Listener | None = None
        self._closed = threading.Event()
        weakref.finalize(self, group.stop_beating)  # the heartbeat thread does not keep the consumer alive

    def process(self, handle: Handler[Body], limit: int = 100, wait: float = 30.0) -> int:
        """Handle messages in one transaction with the group's move, and return their number.

        `handle(s, messages)` is called with the session of the transaction: its writes through `s` happen exactly once.
        The transaction is retried after conflicts, so effects outside of it may happen twice. If the handler raises, or
        its writes cannot be committed, none of them is written, the failure is recorded, and the error is raised.

        Parameters
        ----------
        handle : callable
            The handler.
        limit : int
            The maximum number of messages, at least 1. A feed that does not number its changes gives whole commits, at
            least one.
        wait : float
            Seconds to wait for messages; 0 looks once.

        Returns
        -------
        int
            The number of messages; 0 if none came in time, or another member is active.

        Raises
        ------
        LeaseLostError
            If another member has taken over; the next call stands by.
        MessagesLostError
            If messages expired before they were read; the next call continues with the earliest.
        RecordShapeError
            If the next message does not fit the topic's type; it fails as if its handler had raised.
        NotFoundError
            If the topic was deleted.
        TypeError
            If the handler is no function.
        Exception
            The handler's error.
        """
        if not callable(handle):
            raise TypeError(f"handle is {handle!r}; it must be a function of a session and a list of messages")
        deadline = _deadline(limit, wait)
        while True:
            fetched = self._fetched(limit, deadline)
            if fetched is None:
                return 0
            try:
                self._handle(fetched, handle)
            except MovedError:
                continue  # by a seek, or by a commit of these messages whose outcome was unknown
            return len(fetched.messages)

    def poll(self, limit: int = 100, wait: float = 30.0) -> Batch[Body]:
        """Return the next messages; each poll returns the same ones until the batch is committed.

        Parameters
        ----------
        limit, wait
            As `process` has them.

        Raises
        ------
        LeaseLostError, MessagesLostError, RecordShapeError, NotFoundError
            As `process` does.
        """
        deadline = _deadline(limit, wait)
        self._fetcher.row = None
        return Batch(self._group, self._fetched(limit, deadline))

    def close(self) -> None:
        """Leave the group, so that another member takes over at once, and end a wait for messages; idempotent."""
        self._closed.set()  # each step can be repeated: an interrupted call is completed by the next one
        self._fetcher.close()
        if self._listener is not None:
            self._listener.close()
        try:
            self._group.release()
        except (StorageUnavailableError, TransactionError):
            _log.warning("the %s could not be released; it ends by its ttl", self._group.lease, exc_info=True)

    def stop_beating(self) -> None:
        """End the heartbeat thread; the group is not left."""
        self._group.stop_beating()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<consumer {self._group.member!r} of the {self._group.lease}>"

    def _handle(self, fetched: Fetched[Body], handle: Handler[Body]) -> None:
        def body(context: Context) -> Subscription:
            row = self._group.mine(context, fetched.begin)
            handle(Session(context), fetched.messages)
            # After the handler: some stores lock the row from the write on, and a takeover would have to wait.
            return self._group.move(context, row, fetched.end)

        try:
            self._fetcher.row = self._group.run(body)
        except (MovedError, CommitOutcomeUnknownError, StorageUnavailableError):
            raise  # the row shows what happened
        except (Exception, SystemExit) as error:
            if isinstance(error, LeaseLostError) and error.lease == self._group.lease:
                self._group.stand_by()
            else:
                self._record(fetched, error)
            raise

    def _record(self, fetched: Fetched[Body], error: BaseException) -> None:
        """Record a failure, and only log a failure to record: the caller then raises the first error."""
        try:
            Batch(self._group, fetched).retry(error)
        except Exception:
            _log.warning("the failure of a message could not be recorded by the %s", self._group.lease, exc_info=True)

    def _fetched(self, limit: int, deadline: float) -> Fetched[Body] | None:
        """Return the next messages as soon as there are any; None after the deadline."""
        if self._closed.is_set():
            raise TransactionClosedError(f"the consumer of the {self._group.lease} is closed")
        self._polling.found()
        while not self._closed.is_set():  # a look would join the group again
            try:
                found = self._fetcher.fetch(limit)
            except LeaseLostError:
                self._group.stand_by()
                raise
            except TableNotFoundError as error:
                raise self._group.source.missing(error.table) from None
            if not isinstance(found, float):
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if found < math.inf:  # new commits change nothing
                self._polling.wait(self._closed, min(left, found))
            elif self._listener is None:
                self._listener = self._feed.listen()  # the listener misses an earlier commit: look again
            else:
                self._polling.wait(self._listener, left)
        return None


def consumer_of(
    storage: Storage,
    contexts: Callable[[Transaction], Context],
    topic: GroupSource[Body],
    group: str,
    *,
    prefix: str,
    start: str,
    max_attempts: int,
    on_lost: str,
    ttl: int,
    watch: Watch,
    now: Callable[[], dt.datetime],
) -> Consumer[Body]:
    """Implement `SystemData.consumer`."""
    check_name(group, "group")
    check_ttl(ttl)
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= _MOST_ATTEMPTS:
        raise ValueError(f"max_attempts is {max_attempts!r}; it must be an integer of 1 to {_MOST_ATTEMPTS:,}")
    for name, value, allowed in (("start", start, ("first", "end")), ("on_lost", on_lost, ("raise", "skip"))):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be {allowed[0]!r} or {allowed[1]!r}")
    feed = OpenFeed.of(storage, topic, prefix)
    member = GroupMember(storage, contexts, topic, group, max_attempts=max_attempts, ttl=ttl, watch=watch, now=now)
    member.ensure(start, feed.changes.earliest if start == "first" else feed.changes.latest)
    return Consumer(feed, member, skips_lost=on_lost == "skip")


def _deadline(limit: int, wait: float) -> float:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit is {limit!r}; it must be an integer from 1")
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < math.inf:
        raise ValueError(f"wait is {wait!r}; it must be a number of seconds, 0 or more, and finite")
    return time.monotonic() + wait
