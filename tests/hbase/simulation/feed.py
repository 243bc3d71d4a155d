"""A change feed: the gate through which the entries of commits go, their rows, and a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .cluster import Aborted, Bug, Cluster, Committed, Pending, Status, Steps, is_finished
from .history import Transaction

Place: TypeAlias = tuple[int, int]
"""A cell of the gate: a lane and -1, or a transaction and the number of an entry of its own row."""


class Gated(NamedTuple):
    """An entry in the gate."""

    tx: int
    chunk: int


Entry: TypeAlias = tuple[int, int, int]
"""Version, number in its commit, and transaction."""


@dataclass(frozen=True, slots=True)
class FeedRead:
    """What a reader got for (since, until], after it was told that `until` is stable."""

    since: int
    until: int
    entries: list[Entry]


class Gate:
    """A family of one version: of the puts of a cell the newest counts; a tombstone masks older ones."""

    def __init__(self) -> None:
        self._cells: dict[Place, tuple[int, Gated | None]] = {}
        self._masks: dict[Place, int] = {}

    def put(self, place: Place, at: int, content: Gated | None) -> None:
        """Put an entry, or a mark over one, for None."""
        if at > self._masks.get(place, 0) and at >= self._cells.get(place, (0, None))[0]:
            self._cells[place] = at, content

    def delete(self, place: Place, up_to: int) -> None:
        self._masks[place] = max(self._masks.get(place, 0), up_to)
        if self._cells.get(place, (up_to + 1, None))[0] <= up_to:
            del self._cells[place]

    def compact(self) -> None:
        self._masks.clear()

    def entries(self) -> dict[Place, Gated]:
        return {place: content for place, (_, content) in self._cells.items() if content is not None}


class Feed:
    """The steps of all clients and janitors with one feed."""

    def __init__(self, cluster: Cluster, transactions: Mapping[int, Transaction]) -> None:
        self.cluster = cluster
        self.bug = cluster.bug
        self.transactions = transactions
        self.gate = Gate()
        self.rows: dict[tuple[int, int], int] = {}  # version and number in the commit, to the transaction

    def _place(self, tx: int, chunk: int) -> Place:
        """The cell of the transaction's lane for a single entry; its own rows for several, and for those of a job."""
        if tx in self.cluster.lanes and self.transactions[tx].entries == 1:
            return self.cluster.lanes[tx], -1
        return tx, chunk

    # Commit

    def announce(self, tx: Transaction) -> Steps[None]:
        """Put the entries into the gate, before the commit timestamp is drawn."""
        for chunk in range(tx.entries):
            yield from self._put(tx.id, chunk, tx.start)

    def _put(self, tx: int, chunk: int, at: int) -> Steps[None]:
        place = self._place(tx, chunk)
        yield from self.cluster.repeatable(lambda: self.gate.put(place, at, Gated(tx, chunk)))

    # Afterwards

    def publish(self, tx: int, cts: int) -> Steps[None]:
        """Put the entries of a committed transaction in their rows, then empty its cells, as its owner."""
        chunks = range(self.transactions[tx].entries)
        if self.bug is Bug.GATE_EMPTIED_BEFORE_ENTRIES:
            for chunk in chunks:
                yield from self._empty(tx, chunk, cts)
        for chunk in chunks:
            yield from self._enter(tx, chunk, cts)
        for chunk in chunks:
            yield from self._empty(tx, chunk, cts)

    def move(self, tx: int, cts: int) -> Steps[None]:
        """Do the same for another's transaction: what is not in the gate any more is in its row."""
        yield
        for place, gated in self.gate.entries().items():
            if gated.tx == tx:
                if self.bug is Bug.GATE_EMPTIED_BEFORE_ENTRIES:
                    yield from self._empty_place(place, cts)
                yield from self._enter(tx, gated.chunk, cts)
                yield from self._empty_place(place, cts)

    def clear(self, tx: int, start: int) -> Steps[None]:
        """Empty the cells of an aborted transaction."""
        for chunk in range(self.transactions[tx].entries):
            yield from self._empty(tx, chunk, start + 1)

    def forget(self, tx: int, up_to: int) -> Steps[None]:
        """Remove the cell of a lane of an ended session."""
        place = self._place(tx, 0)
        yield from self.cluster.repeatable(lambda: self.gate.delete(place, up_to))

    def _enter(self, tx: int, chunk: int, cts: int) -> Steps[None]:
        yield from self.cluster.repeatable(lambda: self.rows.update({(cts, chunk): tx}))

    def _empty(self, tx: int, chunk: int, at: int) -> Steps[None]:
        yield from self._empty_place(self._place(tx, chunk), at)

    def _empty_place(self, place: Place, at: int) -> Steps[None]:
        if place[1] < 0:
            yield from self.cluster.repeatable(lambda: self.gate.put(place, at, None))
        else:
            yield from self.cluster.repeatable(lambda: self.gate.delete(place, at))

    # Reads

    def read(self, since: int, at: int) -> Steps[FeedRead]:
        """The entries of commits in (since, at], where `at` is the counter as it was read: it is stable afterwards."""
        if self.bug is Bug.ENTRIES_READ_BEFORE_GATE:
            stored = yield from self._stored(since, at)
            gated = yield from self._settled(at)
        else:
            gated = yield from self._settled(at)
            stored = yield from self._stored(since, at)
        entries = {(cts, chunk, tx) for cts, chunk, tx in gated if since < cts} | stored
        return FeedRead(since, at, sorted(entries))

    def _stored(self, since: int, at: int) -> Steps[set[Entry]]:
        """The rows, which are read page by page, and so not at one moment."""
        found: set[Entry] = set()
        position = (since + 1, 0)
        while True:
            yield
            page = sorted(key for key in self.rows if position <= key < (at + 1, 0))[:3]
            found |= {(cts, chunk, self.rows[cts, chunk]) for cts, chunk in page}
            if len(page) < 3:
                return found
            position = (page[-1][0], page[-1][1] + 1)

    def _settled(self, at: int) -> Steps[set[Entry]]:
        """The entries in the gate of commits up to `at`; from here on nobody in it commits there any more."""
        yield
        found: set[Entry] = set()
        statuses: dict[int, Status | None] = {}
        for gated in self.gate.entries().values():
            if gated.tx not in statuses:
                statuses[gated.tx] = yield from self._status(gated.tx, at)
            status = statuses[gated.tx]
            # What is finished has its entries in their rows, which are read afterwards.
            if isinstance(status, Committed) and status.at <= at and not is_finished(status):
                found.add((status.at, gated.chunk, gated.tx))
        return found

    def _status(self, tx: int, at: int) -> Steps[Status | None]:
        """The status of a transaction in the gate, which cannot commit at `at` or before from here on."""
        while True:
            status = yield from self.cluster.status(tx)
            if status is None:
                yield
                if all(gated.tx != tx for gated in self.gate.entries().values()):
                    return None
                if (yield from self.cluster.status(tx)) is None:
                    yield from self.cluster.cas(tx, None, Aborted(is_buried=True))
                continue
            if not isinstance(status, Pending) or status.minimum > at or self.bug is Bug.FEED_READER_DOES_NOT_PUSH:
                return status
            yield from self.cluster.cas(tx, status, status._replace(minimum=at + 1))
