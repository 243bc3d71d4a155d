"""`Fetcher`: the next messages of a group, and the writes that must come before they are delivered."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from structable.datasets.errors import MessagesLostError, RecordShapeError
from structable.datasets.system.messages import REDRIVEN, Message
from structable.datasets.tables.messaging import Subscription
from structable.spi import ChangesLostError

from .groups import LONGEST_DELAY, GroupMember, MovedError
from .reading import Numbered, OpenFeed, Place, Reading

_log = logging.getLogger("structable.datasets")

Body = TypeVar("Body")

_STANDBY_SECONDS = 1.0
"""The interval, in seconds, at which a member that stands by checks whether it has to take over."""
_IDLE_SHARE = 10
"""The share of the retention after which the position of a group that has read everything moves on."""


@dataclass(frozen=True, slots=True)
class Fetched(Generic[Body]):
    """Delivered messages, and the places before and behind them.

    Parameters
    ----------
    items : sequence of Numbered
        The changes of the messages.
    alone : bool
        Whether they are the smallest unit: one message, or one commit where messages have no number.
    """

    begin: Place
    end: Place
    items: Sequence[Numbered]
    messages: Sequence[Message[Body]]
    alone: bool


class Fetcher(Generic[Body]):
    """Fetches the messages of a group for one member.

    Parameters
    ----------
    feed : OpenFeed
        The feed.
    group : GroupMember
        The group and the member.
    skips_lost : bool
        Whether lost messages are only logged, instead of raised.
    """

    def __init__(self, feed: OpenFeed, group: GroupMember[Body], *, skips_lost: bool) -> None:
        self.row: Subscription | None = None
        """The row as this member has just committed it. It saves one fetch a read; the messages are then checked."""
        self._feed = feed
        self._group = group
        self._skips_lost = skips_lost
        self._reading: Reading | None = None
        self._moved_at = group.now()

    def fetch(self, limit: int) -> Fetched[Body] | float:
        """Return the next messages, or the maximum number of seconds until the next look.

        Raises
        ------
        LeaseLostError
            If another member has taken over.
        MessagesLostError
            If messages were lost.
        RecordShapeError
            If the next message does not fit the topic's type.
        """
        while True:
            earlier = self.row is not None or self._reading is not None
            row = self._current()
            if row is None:
                return _STANDBY_SECONDS
            if row.retry_at is not None:
                delay = (row.retry_at - self._group.now()).total_seconds()
                if 0 < delay <= LONGEST_DELAY:  # a time further ahead is of a clock that was wrong
                    return delay
            try:
                found = self._next(row, limit)
            except MovedError:
                continue
            if found is not None:
                return found
            if not earlier:  # else the row or the reading is from an earlier call
                return math.inf

    def close(self) -> None:
        """Release the reading of the feed."""
        self.row = None
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _current(self) -> Subscription | None:
        """Return the row of the group if this member is active or becomes active; else None."""
        row, self.row = self.row, None
        if row is None and self._group.epoch is not None:
            row = self._group.run(self._group.mine)
        if row is None:
            row = self._group.acquire()
            self._moved_at = self._group.now()
        return row

    def _next(self, row: Subscription, limit: int) -> Fetched[Body] | None:
        """Return the next messages, or None if there are none.

        Raises
        ------
        MovedError
            If the row was written, and must be read again.
        """
        at, group, isolated = Place.of(row), self._group, row.isolate is not None
        try:
            items, end = self._taken(at, 1 if isolated else limit)
            if not items:
                group.took_over = False  # the dead member had delivered nothing
                self._move_idle(at)
                return None
        except ChangesLostError as error:
            self._lose(at, error)
            raise MovedError from None
        if group.took_over and not isolated:
            group.isolate(at, items[-1].id)
            group.took_over = False
            raise MovedError
        group.took_over = False
        if isolated and row.attempts >= row.max_attempts:
            group.give_up(at, end, items)
            raise MovedError
        items, messages, end = self._decoded(at, items, end)
        if not items:
            group.pass_over(at, end)
            raise MovedError
        if isolated:
            group.count(at, row.attempts)
        self._moved_at = group.now()
        alone = items[0].version == items[-1].version if self._feed.whole_commits else len(items) == 1
        return Fetched(at, end, items, messages, alone)

    def _taken(self, at: Place, limit: int) -> tuple[list[Numbered], Place]:
        """Return the next changes, and the place behind them."""
        known = self._reading
        reading = self._reading_at(at)
        items = reading.take(limit)
        if reading is known and 0 < len(items) < limit and not self._feed.whole_commits:
            # The reading ends where the feed ended when it began; more may have been committed since.
            with suppress(ChangesLostError):
                later = self._feed.reading(reading.at)
                items += later.take(limit - len(items))
                reading.close()
                reading = self._reading = later
        return items, reading.at

    def _reading_at(self, at: Place) -> Reading:
        if self._reading is None or self._reading.at != at:
            self.close()
            self._reading = self._feed.reading(at)
        return self._reading

    def _decoded(
        self, at: Place, items: Sequence[Numbered], end: Place
    ) -> tuple[list[Numbered], list[Message[Body]], Place]:
        """Return the messages for the group, up to the first that does not fit the topic's type."""
        source, group = self._group.source, self._group.name
        kept: list[Numbered] = []
        messages: list[Message[Body]] = []
        for index, item in enumerate(items):
            try:
                message = source.message(item.id, item.change)
            except RecordShapeError as error:
                if index:
                    return kept, messages, at.behind(items[index - 1], item)
                behind = end if len(items) == 1 else at.behind(item, items[1])
                self._group.fail(at, behind, [item], error, alone=True)
                raise
            if message.headers.get(REDRIVEN, group) == group:
                kept.append(item)
                messages.append(message)
        return kept, messages, end

    def _lose(self, at: Place, error: ChangesLostError) -> None:
        self.close()
        self._group.restart(at, Place(error.earliest))
        if not self._skips_lost:
            raise MessagesLostError(at.position, error.earliest)
        _log.warning(
            "the %s continues after %s: messages after %s are lost", self._group.lease, error.earliest, at.position
        )

    def _move_idle(self, at: Place) -> None:
        """Move on from time to time if nothing is unread: the position would expire with the messages before it."""
        self.close()
        if (self._group.now() - self._moved_at).total_seconds() * _IDLE_SHARE < self._feed.retention:
            return
        latest = self._feed.changes.latest()
        reading = self._feed.reading(at)
        reading.close()
        if reading.following is None and latest > at.position:
            self._group.pass_over(at, Place(latest))
        self._moved_at = self._group.now()
