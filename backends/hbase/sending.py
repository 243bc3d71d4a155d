"""`Sender`: what a transaction sends before it is decided, and what it reads then, in one round trip.

The order of what is sent is the protocol. Every transaction is listed, has its record and has placed its intents before
it draws its commit timestamp, and looks for others after that: of two that overlap at least one sees the other,
whatever the timing.

Nobody needs to ask whether the record was made: it is put below every timestamp of HBase's own, so that it changes
nothing where others have put theirs first, to abort the transaction; its decision will tell. Only if it was sent twice,
and the record that was made first has been removed in between, is there one again, while intents may have gone with the
first. An aborted transaction's record stays for as long as its writes may come late; after half of that time all rows
are read back, the transaction's own intents with them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from structable.spi.errors import TransactionConflictError

from .calls import Call, Cells, get_row, increment, put_column
from .changes import Changes
from .conflicts import Conflicts, Place
from .durations import now
from .failpoints import failpoints, stepwise
from .failures import ConnectionLostError, ServerError
from .gateway import Gateway
from .layout import CLOCK, MARKER, TICK, VALUE, Layout, intent_column
from .recent import Digest, read_lists
from .records import Records
from .schema_trust import outlast_trust
from .session import Session
from .settings import Settings
from .status import PENDING, Status
from .versions import placed

__all__ = ["Attempt", "Seen", "Sender", "draw"]

_CALLS_AT_ONCE = 40
_ROWS_BETWEEN_SIGNS = 10_000


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
        begun = now()
        txid, recent, layout = attempt.txid, session.recent, self._layout
        record = self._records.begin(txid, attempt.status, encoded)
        calls: list[Call[object]] = [recent.enter(txid, Digest.of(changes), record)]
        made = len(calls) - 1
        if changes.schemas:
            self._announce(attempt, changes, calls)
            calls, made = [], -1
        for space, one in changes.spaces.items():
            calls += put_column(layout.table(space), intent_column(txid), placed(txid, one.all), attempt.start)
        rows = {(space, row) for space, one in changes.spaces.items() for row in one.checked}
        markers = {(space, layout.row(space + MARKER)) for space in changes.markers}
        # Two may not see the bounds of an increment as of one moment, and changes of a schema are few.
        if changes.increments or changes.schemas or recent.reads_back(len(rows), self._settings.read_back_rows):
            reads, decode = self._conflicts.reading([*rows, *markers])
        else:
            reads, decode = [read_lists(layout)], None
        found = self._send(attempt, calls, reads, made)
        if decode is not None:
            return Seen(decode(found), rows, markers)
        lists = found[0]
        assert isinstance(lists, dict)
        if now() - begun < self._settings.late_writes / 2:
            suspects = recent.suspects(txid, attempt.start, {*rows, *markers}, lists)
            rows, markers = rows & suspects, markers & suspects
        return Seen(self._read_back(attempt, [*rows, *markers]), rows, markers)

    def _send(
        self, attempt: Attempt, calls: Sequence[Call[object]], reads: Sequence[Call[object]], made: int
    ) -> Sequence[object]:
        """Make the calls, draw the timestamp, and return what the reads find then; `made` is the record's call."""
        drawing = draw(self._layout)
        if len(calls) <= _CALLS_AT_ONCE:
            drawn = len(calls)
            points = {made: "after_record", drawn - 1: "after_intents", drawn: "after_timestamp"}
            found = self._flight([*calls, drawing, *reads], points)[drawn:]
        else:
            for first in range(0, len(calls), _CALLS_AT_ONCE):
                self._flight(calls[first : first + _CALLS_AT_ONCE])
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

    def _announce(self, attempt: Attempt, changes: Changes, calls: Sequence[Call[object]]) -> None:
        """Make the record, show that schemas are about to change, and wait until nobody trusts them any more."""
        column = intent_column(attempt.txid)
        announced, looked = list(calls), list[Call[object]]()
        for space in changes.schemas:
            table, marker = self._layout.table(space), self._layout.row(space + MARKER)
            intents = placed(attempt.txid, {marker: changes.spaces[space].checked[marker]})
            announced += put_column(table, column, intents, attempt.start)
            looked.append(get_row(table, marker, [VALUE]))
        found = self._flight([*announced, *looked], {len(calls) - 1: "after_record"})
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

    def _flight(self, calls: Sequence[Call[object]], points: Mapping[int, str] = MappingProxyType({})) -> list[object]:
        """Make calls that may all be made again: a second intent is the first one, a timestamp may be left unused."""
        end = time.monotonic() + self._settings.patience
        while True:
            try:
                if failpoints:
                    return stepwise(self._gateway, calls, points)
                return self._gateway.flight(calls)
            except (ConnectionLostError, ServerError) as error:
                passing = not isinstance(error, ServerError) or error.transient
                if time.monotonic() > end or not passing:
                    raise
                time.sleep(random.uniform(0.01, 0.1))
