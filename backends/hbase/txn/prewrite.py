"""`Sender`: what a transaction sends before it is decided, and what it reads then, in one round trip.

The order of what is sent is the protocol. Every transaction is listed, has its record and has placed its intents before
it draws its commit timestamp, and looks for others after that: of two that overlap at least one sees the other,
whatever the timing.

Nobody needs to ask whether the record was made: it is put below every timestamp of HBase's own, so that it changes
nothing where others have put theirs first, to abort the transaction; its decision will tell. But it is sent only once.
What is sent again may come late by so much that the record was aborted and removed meanwhile, with the intents, and
would be there once more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from structable.backends.hbase.failpoints import failpoints, stepwise
from structable.backends.hbase.layout import CLOCK, MARKER, TICK, VALUE, Layout, intent_column
from structable.backends.hbase.settings import Settings
from structable.backends.hbase.thrift.errors import ConnectionLostError, ServerError, is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import Call, Cells, get_row, increment, put_column
from structable.backends.hbase.thrift.retry import pause
from structable.spi.errors import StorageUnavailableError, TransactionConflictError

from .conflicts import Conflicts, Place
from .intents import placed
from .recent_writes import Digest, read_lists
from .schema_lease import outlast_trust
from .session import Session
from .status import ABORTED, PENDING, Status
from .status_table import Records
from .write_set import Changes

__all__ = ["Attempt", "RecordLostError", "Seen", "Sender", "draw"]

_CALLS_AT_ONCE = 40
_ROWS_BETWEEN_SIGNS = 10_000


class RecordLostError(Exception):
    """Whether a transaction has a record cannot be told: it must be aborted, and another one take its place.

    Parameters
    ----------
    reason : StorageUnavailableError
        What happened on the way.
    """

    def __init__(self, reason: StorageUnavailableError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(slots=True)
class Attempt:
    """One transaction on its way.

    Parameters
    ----------
    txid, start : bytes and int
        The transaction, and the timestamp of its snapshot.
    changes : Changes or None
        What it writes; None if it is a job, whose rows nobody keeps.
    status : Status
        As last seen.
    timestamp : int
        The commit timestamp drawn for it.
    seen_alive : float
        When it last showed life, by `time.monotonic`.
    """

    txid: bytes
    start: int
    changes: Changes | None
    status: Status
    timestamp: int = 0
    seen_alive: float = field(default_factory=time.monotonic)

    def note_end(self, session: Session) -> None:
        """Note in the session's list what it was committed at, or can have been at most."""
        status = self.status
        possible = 0 if status.state == ABORTED else status.commit or self.timestamp
        session.recent.end(self.txid, possible or None)


class Seen(NamedTuple):
    """What a transaction sees of others.

    Attributes
    ----------
    cells : dict
        Rows that were read after its intents were placed.
    rows, markers : set of Place
        Of those, the rows that it writes, and the markers of the schemas that it relies on, that somebody else may have
        written; nobody has written the others.
    """

    cells: dict[Place, Cells]
    rows: set[Place]
    markers: set[Place]


def draw(layout: Layout) -> Call[int]:
    """Return the call that draws a commit timestamp."""
    return increment(layout.transactions, CLOCK, TICK, 1)


class Sender:
    """Sends transactions.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    conflicts : Conflicts
        Reads rows.
    settings : Settings
        For how long what.
    """

    def __init__(
        self, gateway: Gateway, layout: Layout, records: Records, conflicts: Conflicts, settings: Settings
    ) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._conflicts = conflicts
        self._settings = settings

    def send(self, session: Session, attempt: Attempt, changes: Changes, encoded: bytes) -> Seen:
        """List the rows, make the record, place the intents, draw the timestamp, and look for others.

        Parameters
        ----------
        session : Session
            The transaction's.
        attempt : Attempt
            The transaction; gets its timestamp.
        changes : Changes
            What it writes.
        encoded : bytes
            The same, as its record has it.
        """
        txid, recent, layout = attempt.txid, session.recent, self._layout
        record = self._records.begin(txid, attempt.status, encoded)
        first = recent.enter(txid, Digest.of(changes), record)
        puts: list[Call[object]] = []
        for space, one in changes.spaces.items():
            puts += put_column(layout.table(space), intent_column(txid), placed(txid, one.all), attempt.start)
        rows = {(space, row) for space, one in changes.spaces.items() for row in one.checked}
        markers = {(space, layout.row(space + MARKER)) for space in changes.markers}
        if changes.schemas:
            self._announce(attempt, changes, first)
        elif len(puts) >= _CALLS_AT_ONCE:
            self._flight([first], once=True)
        else:
            puts.insert(0, first)
        # Two may not see the bounds of an increment as of one moment, and changes of a schema are few.
        if changes.increments or changes.schemas or recent.reads_back(len(rows), self._settings.read_back_rows):
            reads, decode = self._conflicts.reading([*rows, *markers])
            return Seen(decode(self._send(attempt, puts, reads)), rows, markers)
        lists = self._send(attempt, puts, [read_lists(layout)])[0]
        assert isinstance(lists, dict)
        suspects = recent.suspects(txid, attempt.start, {*rows, *markers}, lists)
        return Seen(self._read_back(attempt, list(suspects)), rows & suspects, markers & suspects)

    def _send(self, attempt: Attempt, puts: Sequence[Call[object]], reads: Sequence[Call[object]]) -> Sequence[object]:
        """Make the puts, draw the timestamp, and return what the reads find then."""
        drawing = draw(self._layout)
        drawn = len(puts)
        if drawn <= _CALLS_AT_ONCE:
            points = {0: "after_record", drawn - 1: "after_intents", drawn: "after_timestamp"}
            found = self._flight([*puts, drawing, *reads], points, once=True)[drawn:]
        else:
            for first in range(0, drawn, _CALLS_AT_ONCE):
                self._flight(puts[first : first + _CALLS_AT_ONCE])
                self.show_life(attempt)
            found = self._flight([drawing])
            for first in range(0, len(reads), _CALLS_AT_ONCE):
                self.show_life(attempt)
                found += self._flight(reads[first : first + _CALLS_AT_ONCE])
        timestamp = found[0]
        assert isinstance(timestamp, int)
        attempt.timestamp = timestamp
        return found[1:]

    def _read_back(self, attempt: Attempt, places: Sequence[Place]) -> dict[Place, Cells]:
        """Read rows, showing life in between."""
        cells: dict[Place, Cells] = {}
        for first in range(0, len(places), _ROWS_BETWEEN_SIGNS):
            self.show_life(attempt)
            cells.update(self._conflicts.read(places[first : first + _ROWS_BETWEEN_SIGNS]))
        return cells

    def _announce(self, attempt: Attempt, changes: Changes, first: Call[object]) -> None:
        """Make the record, show that schemas are about to change, and wait until nobody trusts them any more."""
        column = intent_column(attempt.txid)
        announced, looked = [first], list[Call[object]]()
        for space in changes.schemas:
            table, marker = self._layout.table(space), self._layout.row(space + MARKER)
            intents = placed(attempt.txid, {marker: changes.spaces[space].checked[marker]})
            announced += put_column(table, column, intents, attempt.start)
            looked.append(get_row(table, marker, [VALUE]))
        found = self._flight([*announced, *looked], {0: "after_record"}, once=True)
        if any(found[len(announced) :]):
            # Not of a new table: nobody knows it yet.
            outlast_trust()
            self.show_life(attempt)

    def show_life(self, attempt: Attempt) -> None:
        """Renew the lease if a third of it is over.

        Raises
        ------
        TransactionConflictError
            If another process has aborted the transaction.
        """
        if time.monotonic() < attempt.seen_alive + self._settings.lease / 3:
            return
        attempt.seen_alive = time.monotonic()
        found = self._records.change(attempt.txid, attempt.status, attempt.status.beating())
        if found is None or found.state != PENDING:
            raise TransactionConflictError("another process took this transaction for dead")
        attempt.status = found

    def _flight(
        self, calls: Sequence[Call[object]], points: Mapping[int, str] = MappingProxyType({}), *, once: bool = False
    ) -> list[object]:
        """Make calls; but for the record, again if they fail: an intent is the same then, a timestamp is left unused.

        Raises
        ------
        RecordLostError
            If they fail and are to be made only once.
        """
        end = time.monotonic() + self._settings.patience
        while True:
            try:
                if failpoints:
                    return stepwise(self._gateway.flight, calls, points)
                return self._gateway.flight(calls)
            except (ConnectionLostError, ServerError) as error:
                if time.monotonic() > end or is_refusal(error):
                    raise
                if once:
                    raise RecordLostError(error) from error
                pause()
