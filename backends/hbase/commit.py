"""`Committer`: intents, one read-back, and one compare-and-set that decides.

The order of what is sent is the protocol. Every transaction writes its intents before it draws its commit timestamp,
and reads back after that: of two that overlap at least one sees the other, whatever the timing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NoReturn

from structable.backends.ordered.engine import ReadSet, WriteSet
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    TransactionConflictError,
)

from .calls import Call, Cells, get_row, increment, put_column
from .changes import Changes
from .conflicts import Conflicts, Place
from .failpoints import failpoints, reach, stepwise
from .failures import ConnectionLostError, ServerError, TableMissingError
from .finaliser import Finaliser, Finished
from .gateway import Gateway
from .layout import CLOCK, MARKER, TICK, VALUE, Layout, intent_column
from .parts import Part, parts_of
from .reading import dropped
from .records import Records
from .schema_trust import outlast_trust
from .session import Session
from .status import ABORTED, COMMITTED, PENDING, Status, encode_writes
from .versions import placed

__all__ = ["Attempt", "Committer"]

_PUTS_AT_ONCE = 40
_INLINE_WRITES = 2_048
"""Bytes of a write set that are kept in the status cell itself."""
_LISTED_WRITES = 512 << 10
"""Bytes of a write set that are kept at all; what is larger names spaces, not rows."""


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


class Committer:
    """Commits write sets.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    conflicts : Conflicts
        Knows what may stand in the way.
    finaliser : Finaliser
        Told of what has ended.
    patience : float
        Seconds to try to learn how a commit ended.
    lease : float
        Seconds that a sign of life lasts.
    """

    def __init__(
        self,
        gateway: Gateway,
        layout: Layout,
        records: Records,
        conflicts: Conflicts,
        finaliser: Finaliser,
        patience: float,
        lease: float,
    ) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._conflicts = conflicts
        self._finaliser = finaliser
        self._patience = patience
        self._lease = lease

    def commit(self, session: Session, start: int, writes: WriteSet) -> None:
        """Commit a write set that is based on the state at `start`, which the caller holds; see `Engine.commit`."""
        session.require_alive()
        self._finaliser.keep_up()
        changes = Changes(self._layout, writes)
        status, encoded = _pending(start, changes)
        # Who has to look for all that it wrote, later, looks for a column of its own.
        txid = session.next_transaction(None if status.unlisted else start)
        attempt = Attempt(txid, start, changes, status)
        # Held from here on, so that nothing it depends on is cleaned up before its rows are finalised.
        session.hold(txid, start)
        try:
            seen = self._send(attempt, encoded)
            reach("after_readback")
            # Schemas first: what a row holds is understood by the schema that it was written for.
            self._conflicts.validate_markers(attempt.txid, start, attempt.timestamp, changes, seen)
            self._conflicts.check(attempt.txid, start, attempt.timestamp, changes, seen)
            if writes.reads is not None:
                self._conflicts.validate(attempt.txid, start, attempt.timestamp, changes, writes.reads, markers=False)
            session.require_alive()
            self.decide(session, attempt, writes.reads)
        except CommitOutcomeUnknownError:
            session.let_go(txid)
            raise
        except BaseException as error:
            committed = self.is_committed_after_all(attempt)
            if attempt.status.state == PENDING:
                session.let_go(txid)
            else:
                self._finaliser.add(Finished(session, txid, attempt.status, changes))
            if isinstance(error, TableMissingError):
                raise dropped() from error
            if not committed or not isinstance(error, Exception):
                raise
        else:
            self._finaliser.add(Finished(session, txid, attempt.status, changes))

    def _send(self, attempt: Attempt, encoded: bytes) -> dict[Place, Cells]:
        """Make the record, place the intents, draw the timestamp and read back, in one round trip."""
        changes = attempt.changes
        assert changes is not None
        begin: list[Call[object]] = []
        if attempt.status.detached:
            begin.append(self._records.keep_writes(attempt.txid, encoded))
        begin.append(self._records.begin(attempt.txid, attempt.status))
        if changes.schemas:
            self._announce(attempt, changes, begin)
            begin = []
        parts = parts_of(self._layout, attempt.txid, attempt.start, changes)
        if sum(len(part.puts) for part in parts) > _PUTS_AT_ONCE:
            return self._send_in_turns(attempt, begin, parts)
        flights, points = [], []
        for part in parts:
            flights.append([*begin, *part.puts, self._draw(), *part.reads])
            drawn = len(begin) + len(part.puts)
            points.append({drawn - 1: "after_intents", drawn: "after_timestamp"})
            if begin:
                points[-1][len(begin) - 1] = "after_record"
        results = self._flights(flights, points)
        if begin:
            self._require_record(attempt, any(found[len(begin) - 1] is True for found in results))
        read: list[tuple[int, Iterator[tuple[Place, Cells]]]] = []
        for part, found in zip(parts, results, strict=True):
            drawn = len(begin) + len(part.puts)
            timestamp = found[drawn]
            assert isinstance(timestamp, int)
            read.append((timestamp, part.seen(found[drawn + 1 :])))
        seen: dict[Place, Cells] = {}
        # The markers that were read last of all count: those of the part with the commit timestamp.
        for attempt.timestamp, one in sorted(read, key=itemgetter(0)):
            seen.update(one)
        return seen

    def _send_in_turns(
        self, attempt: Attempt, begin: Sequence[Call[object]], parts: Sequence[Part]
    ) -> dict[Place, Cells]:
        """Do the same in several flights, showing life in between: the timestamp after all puts, all reads after it."""
        if begin:
            self._require_record(attempt, self._flight(begin)[-1] is True)
        puts = [put for part in parts for put in part.puts]
        for first in range(0, len(puts), _PUTS_AT_ONCE):
            self._flight(puts[first : first + _PUTS_AT_ONCE])
            self.show_life(attempt)
        timestamp = self._flight([self._draw()])[0]
        assert isinstance(timestamp, int)
        attempt.timestamp = timestamp
        seen: dict[Place, Cells] = {}
        for part in parts:
            found: list[object] = []
            for first in range(0, len(part.reads), _PUTS_AT_ONCE):
                self.show_life(attempt)
                found += self._flight(part.reads[first : first + _PUTS_AT_ONCE])
            seen.update(part.seen(found))
        return seen

    def _draw(self) -> Call[int]:
        return increment(self._layout.transactions, CLOCK, TICK, 1)

    def _announce(self, attempt: Attempt, changes: Changes, begin: Sequence[Call[object]]) -> None:
        """Make the record, show that schemas are about to change, and wait until nobody trusts them any more."""
        column = intent_column(attempt.txid)
        announced, looked = list(begin), list[Call[object]]()
        for space in changes.schemas:
            table, marker = self._layout.table(space), self._layout.row(space + MARKER)
            intents = placed(attempt.txid, {marker: changes.spaces[space].checked[marker]})
            announced += put_column(table, column, intents, attempt.start)
            looked.append(get_row(table, marker, [VALUE]))
        made = len(begin) - 1
        results = self._flights([announced + looked], [{made: "after_record"}])[0]
        self._require_record(attempt, results[made] is True)
        if any(results[len(announced) :]):
            # Not of a new table: nobody knows it yet.
            outlast_trust()
            self.show_life(attempt)

    def _require_record(self, attempt: Attempt, made: bool) -> None:
        if not made:
            # It may be there since an earlier attempt to send it.
            found = self._records.status(attempt.txid)
            if found is None or found.state != PENDING:
                raise TransactionConflictError("another process took this transaction for dead before it had begun")
            attempt.status = found

    def show_life(self, attempt: Attempt) -> None:
        """Renew the lease if a third of it is over.

        Raises
        ------
        TransactionConflictError
            If another process has aborted the transaction.
        """
        if time.monotonic() < attempt.seen_alive + self._lease / 3:
            return
        attempt.seen_alive = time.monotonic()
        found = self._records.change(attempt.txid, attempt.status, attempt.status.beating())
        if found is None or found.state != PENDING:
            raise TransactionConflictError("another process took this transaction for dead")
        attempt.status = found

    def _flight(self, calls: Sequence[Call[object]]) -> list[object]:
        return self._flights([calls], [{}])[0]

    def _flights(
        self, flights: Sequence[Sequence[Call[object]]], points: Sequence[Mapping[int, str]]
    ) -> list[list[object]]:
        """Send calls that may all be sent again: a second intent is the first one, a timestamp may be left unused."""
        end = time.monotonic() + self._patience
        while True:
            try:
                if failpoints:
                    return [stepwise(self._gateway, *one) for one in zip(flights, points, strict=True)]
                return self._gateway.flights(flights)
            except (ConnectionLostError, ServerError) as error:
                passing = not isinstance(error, ServerError) or error.transient
                if time.monotonic() > end or not passing:
                    raise
                time.sleep(random.uniform(0.01, 0.1))

    def decide(self, session: Session, attempt: Attempt, reads: ReadSet | None) -> None:
        """Commit at the timestamp drawn, or a later one where readers want it.

        Raises
        ------
        TransactionConflictError
            If another process has aborted it.
        CommitOutcomeUnknownError
            If it cannot be learned.
        """
        sent = False
        end = time.monotonic() + self._patience
        while True:
            try:
                while attempt.status.least > attempt.timestamp:
                    tick = attempt.timestamp = self._gateway.call(self._draw())
                    if attempt.changes is not None:
                        self._conflicts.validate(
                            attempt.txid, attempt.start, tick, attempt.changes, reads or ReadSet(), markers=True
                        )
                        session.require_alive()
                reach("before_commit")
                wanted = attempt.status.committed(attempt.timestamp)
                sent = True
                found = self._records.change(attempt.txid, attempt.status, wanted)
                reach("after_commit")
            except StorageUnavailableError as error:
                if not sent:
                    raise
                if time.monotonic() > end:
                    raise CommitOutcomeUnknownError(
                        f"no gateway told for {self._patience:g} s whether the transaction was committed: {error}"
                    ) from error
                # The same change once more does no harm if it was made already.
                time.sleep(random.uniform(0.01, 0.1))
                continue
            if found is None:
                self._refuse_unrecorded(session)
            if found.state == COMMITTED:
                attempt.status = found
                return
            if found.state == ABORTED:
                raise TransactionConflictError("another transaction, or the end of its lease, aborted this one")
            attempt.status = found

    @staticmethod
    def _refuse_unrecorded(session: Session) -> NoReturn:
        """Its record is gone: it was aborted, and cleaned up; or committed, if the session did not hold it to the end.

        Raises
        ------
        TransactionConflictError
            If the session still lives: nothing that it committed can have been cleaned up.
        CommitOutcomeUnknownError
            Otherwise.
        """
        with suppress(StorageUnavailableError):
            session.beat()
            if not session.over:
                raise TransactionConflictError("another process aborted this transaction and has removed its record")
        raise CommitOutcomeUnknownError("the record of the transaction was removed before its outcome was read")

    def is_committed_after_all(self, attempt: Attempt) -> bool:
        """Abort, so that nobody has to wait for the lease, unless it is too late for that.

        What cannot be done now, others do later: without a further step of this process it will not be committed.
        """
        try:
            status = self._records.abort(attempt.txid)
        except StorageUnavailableError:
            return False
        attempt.status = replace(attempt.status, state=status.state, commit=status.commit, least=0, beat=0)
        reach("after_abort")
        return status.state == COMMITTED


def _pending(start: int, changes: Changes) -> tuple[Status, bytes]:
    """Return the first status of a transaction, and its write set."""
    kinds = changes.kinds
    encoded = encode_writes(kinds)
    if len(encoded) > _LISTED_WRITES:
        return Status(PENDING, start, unlisted=True, writes=encode_writes({space: {} for space in kinds})), b""
    if len(encoded) > _INLINE_WRITES:
        return Status(PENDING, start, detached=True), encoded
    return Status(PENDING, start, writes=encoded), encoded
