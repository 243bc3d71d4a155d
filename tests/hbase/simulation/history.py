"""The operations of all clients with their reported outcomes, and the oracle that judges them at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from .cells import LIMIT, Folded, Intent, Kind, Row, fold

if TYPE_CHECKING:
    from .feed import FeedRead

KEYS = 4
COLOURS = 2
ENTRY = Row(0, 0, 0, 0)
"""The value of an index entry."""


def table_of(key: int) -> int:
    return key // 2


def row_of(key: int) -> str:
    return f"row/{key}"


def marker_of(table: int) -> str:
    return f"schema/{table}"


def entry_of(colour: int, key: int) -> str:
    return f"index/{colour}/{key}"


ROWS = [row_of(key) for key in range(KEYS)]
MARKERS = [marker_of(table) for table in range(table_of(KEYS - 1) + 1)]
ENTRIES = [entry_of(colour, key) for colour in range(COLOURS) for key in range(KEYS)]
EVERYTHING = [*ROWS, *MARKERS, *ENTRIES]


def index_changes(key: int, old: Row | None, new: Row | None) -> dict[str, Intent]:
    """The index entries that go and come when a row changes."""
    changes = {}
    if old is not None and (new is None or new.colour != old.colour):
        changes[entry_of(old.colour, key)] = Intent(Kind.TOMBSTONE)
    if new is not None and (old is None or new.colour != old.colour):
        changes[entry_of(new.colour, key)] = Intent(Kind.PUT, ENTRY)
    return changes


class Outcome(Enum):
    """The outcome reported to a client, RUNNING if there was no report."""

    RUNNING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Transaction:
    """One transaction, as its client knows it."""

    id: int
    start: int
    is_bulk: bool = False
    reads: list[tuple[str, Row | None]] = field(default_factory=list)
    writes: dict[str, Intent] = field(default_factory=dict)  # rows that conflict
    derived: dict[str, Intent] = field(default_factory=dict)  # index entries
    tables: set[int] = field(default_factory=set)  # whose schema must not change meanwhile
    entries: int = 0  # that it appends to the feed
    locked: dict[str, Row | None] = field(default_factory=dict)  # by a bulk transaction: the values it went by
    outcome: Outcome = Outcome.RUNNING
    reported: int | None = None  # at this time
    cts: int | None = None  # as its client knows it

    def intents(self) -> dict[str, Intent]:
        return self.writes | self.derived


@dataclass(frozen=True, slots=True)
class BlindRead:
    """A read of one row outside a transaction: it claims to be the row as of `at`."""

    row: str
    began: int
    ended: int
    at: int
    value: Row | None
    newest: int
    """The counter when it ended: no commit above it has been seen."""


class Violation(AssertionError):
    """The history breaks a promise."""


def _check(condition: bool, *message: object) -> None:
    if not condition:
        raise Violation(" ".join(map(str, message)))


class Oracle:
    """The committed history, and every promise that is made about it."""

    def __init__(self, transactions: Mapping[int, Transaction], decided: Mapping[int, int]) -> None:
        self.transactions = transactions
        self.decided = decided
        self.history: dict[str, list[tuple[int, int, Intent]]] = {row: [] for row in EVERYTHING}
        for tx, cts in sorted(decided.items(), key=lambda item: item[1]):
            for row, intent in transactions[tx].intents().items():
                self.history[row].append((cts, tx, intent))

    def value(self, row: str, at: int) -> Row | None:
        changes = ((cts, intent) for cts, _, intent in self.history[row] if cts <= at)
        return fold(Folded(0, None, 0), changes).row

    def _between(self, row: str, after: int, before: int) -> Iterable[tuple[int, Intent]]:
        return ((tx, intent) for cts, tx, intent in self.history[row] if after < cts < before)

    def check_feed(self, reads: Iterable[FeedRead]) -> None:
        """Each read has every entry of the commits in its range, once, in the order of commits; so states agree."""
        for read in reads:
            expected = [
                (cts, chunk, tx)
                for tx, cts in sorted(self.decided.items(), key=lambda item: item[1])
                for chunk in range(self.transactions[tx].entries)
                if read.since < cts <= read.until
            ]
            _check(read.entries == expected, "feed", read, "not", expected)

    def check_copy(self, reads: Iterable[FeedRead]) -> None:
        """Where every commit is in the feed, a state and the changes after it are the later state."""
        for read in reads:
            for row in ROWS:
                changes = [
                    (cts, intents[row])
                    for cts, _, tx in read.entries
                    if row in (intents := self.transactions[tx].intents())
                ]
                copy = fold(Folded(read.since, self.value(row, read.since), 0), changes).row
                expected = self.value(row, read.until)
                _check(copy == expected, "copy of", row, "by", read, "is", copy, "not", expected)

    def check(self, mode_validates_reads: bool, blind: Iterable[BlindRead], last: Mapping[str, Row | None]) -> None:
        for tx in self.transactions.values():
            self._check_outcome(tx)
            for row, value in tx.reads:
                expected = self.value(row, tx.start)
                _check(value == expected, "tx", tx.id, "at", tx.start, "read", row, value, "not", expected)
            if tx.id in self.decided:
                self._check_overlaps(tx, self.decided[tx.id], mode_validates_reads)
        self._check_every_moment()
        self._check_blind_reads(list(blind))
        for row, value in last.items():
            expected = self.value(row, max(self.decided.values(), default=0))
            _check(value == expected, "in the end", row, "is", value, "not", expected)

    def _check_outcome(self, tx: Transaction) -> None:
        if tx.outcome is Outcome.COMMITTED and tx.intents():
            _check(self.decided.get(tx.id) == tx.cts, "tx", tx.id, "reported as", tx.cts, "is", self.decided.get(tx.id))
        if tx.outcome is Outcome.ABORTED:
            _check(tx.id not in self.decided, "tx", tx.id, "reported as aborted")

    def _check_overlaps(self, tx: Transaction, cts: int, reads_too: bool) -> None:
        """No other transaction changed its written rows, or its reads if serializable, between snapshot and commit."""
        for row, value in tx.locked.items():
            _check(value == self.value(row, cts - 1), "bulk", tx.id, "at", cts, "went by", row, value)
        for row, mine in tx.writes.items():
            for other, intent in self._between(row, tx.start, cts) if row not in tx.locked else ():
                harmless = intent.kind is Kind.LOCK or (mine.kind is intent.kind is Kind.INCREMENT)
                _check(harmless, "tx", tx.id, "and", other, "both wrote", row, "mine", tx.start, cts, mine)
        for table in tx.tables:
            for other, _ in self._between(marker_of(table), tx.start, cts):
                _check(other == tx.id, "tx", tx.id, "ignored the change of schema", other)
        if reads_too:
            for row, _ in tx.reads:
                for other, intent in self._between(row, tx.start, cts):
                    _check(intent.kind is Kind.LOCK, "tx", tx.id, "at", cts, "read", row, "before", other)

    def _check_every_moment(self) -> None:
        """After every commit the numbers are within their bounds, and the index agrees with the rows."""
        values: dict[str, Folded] = dict.fromkeys(EVERYTHING, Folded(0, None, 0))
        for tx, cts in sorted(self.decided.items(), key=lambda item: item[1]):
            for changed, intent in self.transactions[tx].intents().items():
                values[changed] = fold(values[changed], [(cts, intent)])
            for key in range(KEYS):
                row = values[row_of(key)].row
                _check(row is None or abs(row.number) <= LIMIT, "row", key, "is out of bounds at", cts, row)
                for colour in range(COLOURS):
                    is_there = values[entry_of(colour, key)].row is not None
                    must_be = row is not None and row.colour == colour
                    _check(is_there == must_be, "index entry", colour, key, "is wrong at", cts)

    def _check_blind_reads(self, reads: list[BlindRead]) -> None:
        """Each is a state of its row that was not yet outdated when it began: the reads of a row are linearizable."""
        for read in reads:
            _check(
                read.value == self.value(read.row, read.at), "blind read", read, "not", self.value(read.row, read.at)
            )
            known = [
                cts
                for cts, tx, _ in self.history[read.row]
                if (reported := self.transactions[tx].reported) is not None and reported < read.began
            ]
            known += [other.at for other in reads if other.row == read.row and other.ended < read.began]
            newest = max(known, default=0)
            # Garbage collection makes a deleted row one that never was, which may be read as of an older moment: the
            # row was deleted by then, or later, by a commit whose client may have got no answer.
            later = [cts for cts, _, _ in self.history[read.row] if newest < cts <= read.newest]
            fresh = newest <= read.at or any(read.value == self.value(read.row, at) for at in (newest, *later))
            _check(fresh, "blind read", read, "is older than", newest)
