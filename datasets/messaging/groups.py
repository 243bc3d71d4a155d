"""`GroupMember`: the row of a group, as its active member reads and writes it, also after a message fails."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from structable.datasets.coordination.beats import Beating, Watch, member_name
from structable.datasets.errors import LeaseLostError, NotFoundError
from structable.datasets.system.context import Context
from structable.datasets.system.job_moves import error_text, run_body
from structable.datasets.system.messages import GroupSource
from structable.datasets.tables.messaging import (
    DEAD_LETTERS,
    GROUP_BEATS,
    SUBSCRIPTIONS,
    DeadLetterRow,
    GroupBeat,
    Subscription,
)
from structable.spi import FeedPosition, FieldSizeLimitError, Storage, Transaction

from .reading import Numbered, Place

Body = TypeVar("Body")
Result = TypeVar("Result")

BEATS = 3
"""The number of a member's beats in its ttl."""
LONGEST_DELAY = 300
"""The longest delay of messages that failed, in seconds."""
_MOST_DOUBLINGS = 9
"""The number of doublings after which the delay stops growing: a power of many attempts would be huge."""


class MovedError(Exception):
    """The group has moved since its row was read: read it again."""


class GroupMember(Generic[Body]):
    """A group and one member of it; each call without a context is a transaction of its own.

    The group's row guards the writes of the active member: each transaction checks that owner and epoch of the row are
    the member's, and writes the row. Only the active member, a takeover and a seek write it; beats are separate rows.

    Parameters
    ----------
    storage : Storage
        The store.
    contexts : callable
        Returns the datasets' context of a transaction.
    source : GroupSource
        The topic or feed that the group reads.
    name : str
        The group.
    max_attempts, ttl : int
        The settings of this member.
    watch : Watch
        The beats of groups that this process has seen.
    now : callable
        Returns the time.
    """

    def __init__(
        self,
        storage: Storage,
        contexts: Callable[[Transaction], Context],
        source: GroupSource[Body],
        name: str,
        *,
        max_attempts: int,
        ttl: int,
        watch: Watch,
        now: Callable[[], dt.datetime],
    ) -> None:
        self.source = source
        self.name = name
        self.member = member_name()
        self.lease = f"group {name!r} of {source.subject!r}"
        self.context = contexts
        self.now = now
        self.epoch: int | None = None
        """The epoch of this member's takeover; None while it stands by."""
        self.took_over = False
        """Whether the member before this one stopped without leaving: it may have delivered messages."""
        self._storage = storage
        self._key = (source.subject, name)
        self._max_attempts = max_attempts
        self._ttl = ttl
        self._watch = watch
        self._beating: Beating | None = None
        self._taking = False
        """Whether a takeover began whose outcome is unknown."""
        self._counted: Place | None = None
        """The place of the message whose attempt was counted and has not ended."""

    def run(self, body: Callable[[Context], Result]) -> Result:
        """Run a body in transactions, until one commits."""
        return self._storage.run(lambda tx: run_body(self.context(tx), body))

    def ensure(self, start: str, position: Callable[[], FeedPosition]) -> None:
        """Create the group at a position, unless it exists."""

        def make(context: Context) -> None:
            rows = context.records(SUBSCRIPTIONS)
            if rows.get(*self._key) is None:
                topic, group = self._key
                made = Subscription(
                    topic=topic,
                    group=group,
                    position=str(position()),
                    start=start,
                    max_attempts=self._max_attempts,
                    created=context.now(),
                )
                rows.put(made)

        self.run(make)

    def acquire(self) -> Subscription | None:
        """Become active and return the row if no member is active, or the active one's beat has stopped; else None.

        Messages that a dead member had taken are delayed.
        """
        now = self._watch.monotonic()

        def take(context: Context) -> tuple[Subscription, bool] | None:
            row, beats = self._row(context), context.records(GROUP_BEATS)
            held = row.owner not in (None, self.member)  # by this member after a takeover whose outcome was unknown
            found = beats.get(*self._key) if held else None
            beat = 0 if found is None else found.beat
            if held and not self._watch.expired(self._key, row.epoch, beat, self._ttl, now):
                return None
            after = msgspec.structs.replace(
                row, owner=self.member, epoch=row.epoch + 1, max_attempts=self._max_attempts
            )
            if self._max_attempts < row.max_attempts:  # a message that failed in a batch is tried alone first
                after = msgspec.structs.replace(after, attempts=min(row.attempts, self._max_attempts - 1))
            if held:
                # Written although unchanged, so that a beat that commits first conflicts with this takeover.
                beats.put(found or GroupBeat(topic=row.topic, group=row.group, beat=0))
                retry_at = context.now() + _delay(row.attempts)
                retry_at = retry_at if row.retry_at is None else max(retry_at, row.retry_at)
                after = msgspec.structs.replace(after, retry_at=retry_at, error=f"the member {row.owner!r} stopped")
            context.records(SUBSCRIPTIONS).put(after)
            return after, row.owner is not None

        self._taking = True
        taken = self.run(take)
        if taken is None:
            self._taking = False
            return None
        row, self.took_over = taken
        self.stop_beating()  # of an interrupted takeover
        self._beating = Beating(self.lease, self._beat)
        self._beating.start(self._ttl / BEATS)
        self.epoch = row.epoch  # last: an active member always beats
        self._taking = False
        self._watch.forget(self._key)
        return row

    def _beat(self) -> None:
        """Show other processes that this member is alive; never conflicts with the handling of messages."""

        def count(context: Context) -> None:
            row, beats = self.mine(context), context.records(GROUP_BEATS)
            found = beats.get(*self._key)
            beats.put(GroupBeat(topic=row.topic, group=row.group, beat=1 if found is None else found.beat + 1))

        self.run(count)

    def stand_by(self) -> None:
        """Stop being the active member."""
        self.stop_beating()
        self.epoch = self._counted = None

    def stop_beating(self) -> None:
        """End the heartbeat thread."""
        if self._beating is not None:
            self._beating.stop()

    def release(self) -> None:
        """Let others take over at once; does nothing if this member is not the active one."""

        def leave(context: Context) -> None:
            row = self._row(context)
            if row.owner != self.member:
                return  # another member has the group
            # The attempt of a message that was neither handled nor failed does not count.
            attempts = row.attempts - (self._counted == Place.of(row))
            context.records(SUBSCRIPTIONS).put(msgspec.structs.replace(row, owner=None, attempts=max(0, attempts)))

        try:
            if self.epoch is not None or self._taking:
                self.run(leave)
        except NotFoundError:
            pass  # the group is gone with its topic
        finally:
            self.stand_by()

    def mine(self, context: Context, at: Place | None = None) -> Subscription:
        """Return the row, after checking that this member is active and the group is at this place.

        Raises
        ------
        LeaseLostError
            If another member has taken over.
        MovedError
            If the group is at another place.
        """
        row = self._row(context)
        if row.epoch != self.epoch or row.owner != self.member:
            raise LeaseLostError(self.lease)
        if at is not None and Place.of(row) != at:
            raise MovedError
        return row

    def move(self, context: Context, row: Subscription, to: Place) -> Subscription:
        """Write and return the group's row after the messages up to a place were handled or given up."""
        after = moved(row, to)
        context.records(SUBSCRIPTIONS).put(after)
        return after

    def pass_over(self, at: Place, to: Place) -> None:
        """Move to a place behind messages that the group does not handle."""
        self._change(at, lambda _, row: moved(row, to))

    def restart(self, at: Place, to: Place) -> None:
        """Move to a place behind messages that are lost."""
        self._change(at, lambda _, row: msgspec.structs.replace(moved(row, to), isolate=None))

    def isolate(self, at: Place, until: str) -> None:
        """Handle messages one at a time until an id is passed."""
        self._change(at, lambda _, row: msgspec.structs.replace(row, isolate=until))

    def count(self, at: Place, attempts: int) -> None:
        """Count an attempt, in a transaction before its message is delivered: it counts even if the process dies."""
        if self._counted != at or attempts == 0:
            self._change(at, lambda _, row: msgspec.structs.replace(row, attempts=row.attempts + 1))
            self._counted = at

    def fail(
        self, at: Place, end: Place, items: Sequence[Numbered], error: BaseException | str, *, alone: bool
    ) -> None:
        """Delay messages that failed, and isolate them; after the last attempt of one that was alone, give it up.

        Parameters
        ----------
        at, end : Place
            The places before and behind the messages.
        items : sequence of Numbered
            The messages.
        error : BaseException or str
            The error, or its text.
        alone : bool
            Whether they are the smallest unit: one message, or one commit where messages have no number.
        """
        counted, text = self._counted == at, error_text(error)

        def fail(context: Context, row: Subscription) -> Subscription:
            attempts = max(1, row.attempts + (not counted))
            if alone and attempts >= row.max_attempts:
                self._bury(context, items, attempts, text)
                return moved(row, end)
            return msgspec.structs.replace(
                row,
                # The first of several messages is tried alone before it is given up, even if it may fail only once.
                attempts=attempts if alone else min(attempts, row.max_attempts - 1),
                retry_at=context.now() + _delay(attempts),
                error=text,
                isolate=row.isolate or items[-1].id,
            )

        self._change(at, fail)
        self._counted = None

    def give_up(self, at: Place, end: Place, items: Sequence[Numbered]) -> None:
        """Add messages to the dead letters whose last attempt ended with the member's death."""

        def give_up(context: Context, row: Subscription) -> Subscription:
            self._bury(context, items, row.attempts, row.error)
            return moved(row, end)

        self._change(at, give_up)

    def _bury(self, context: Context, items: Sequence[Numbered], attempts: int, error: str | None) -> None:
        letters = [self._letter(context, item, attempts, error) for item in items]
        context.records(DEAD_LETTERS).put_many(letters)

    def _letter(self, context: Context, item: Numbered, attempts: int, error: str | None) -> DeadLetterRow:
        topic, group = self._key
        key, body, headers = self.source.stored(item.change)
        letter = DeadLetterRow(
            topic=topic,
            group=group,
            version=item.version,
            number=item.number,
            key=key,
            body=body,
            headers=headers,
            attempts=attempts,
            error=error,
            died=context.now(),
        )
        try:
            context.check(DEAD_LETTERS, [letter])
        except FieldSizeLimitError:
            # With the error it exceeds the row limit; it must not block the group.
            excerpt = self.source.excerpt(item.change)
            letter = msgspec.structs.replace(letter, key=None, body=excerpt, headers=None)
        return letter

    def _change(self, at: Place, change: Callable[[Context, Subscription], Subscription]) -> None:
        def write(context: Context) -> None:
            context.records(SUBSCRIPTIONS).put(change(context, self.mine(context, at)))

        self.run(write)

    def _row(self, context: Context) -> Subscription:
        rows = context.records(SUBSCRIPTIONS)
        row = rows.get(*self._key)
        if row is None:
            raise NotFoundError(rows.table.specification.name, self._key)
        return row


def moved(row: Subscription, to: Place) -> Subscription:
    """Return the row of a group that has finished the messages before a place."""
    return msgspec.structs.replace(
        row,
        position=str(to.position),
        number=to.number,
        isolate=None if row.isolate is None or to.passed(row.isolate) else row.isolate,
        attempts=0,
        retry_at=None,
        error=None,
    )


def _delay(attempts: int) -> dt.timedelta:
    return dt.timedelta(seconds=min(LONGEST_DELAY, 2 ** min(attempts, _MOST_DOUBLINGS)))
