"""The protocol: the steps of a client to read, to commit, and to finalise its commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .cells import LIMIT, VERSIONS, Folded, Intent, Kind, Row, Version, View, base_of, fold
from .cluster import Aborted, Bug, Cluster, Committed, Mode, Pending, Status, Steps, is_finished
from .feed import Feed
from .history import MARKERS, Transaction, marker_of
from .recent import RecentWrites


class AbortError(Exception):
    """The transaction must not commit."""


class UnknownError(Exception):
    """It is unknown whether the transaction was committed, at the timestamp drawn last; it is left as it is."""

    def __init__(self, cts: int) -> None:
        super().__init__(cts)
        self.cts = cts


class LaterError(Exception):
    """The transaction needs a commit timestamp above one that it has seen."""


class Protocol:
    """The steps that all clients and janitors share."""

    def __init__(self, cluster: Cluster, mode: Mode, feed: Feed) -> None:
        self.cluster = cluster
        self.feed = feed
        self.mode = mode
        self.bug = cluster.bug
        self.random = cluster.random

    # Reads

    def _bury(self, row: str, tx: int, at: int | None = None) -> Steps[None]:
        """An intent without a record: finished and removed meanwhile, or never begun, and then it must not begin.

        It is looked for where it was found: above `at` there may be another's in its column.
        """
        view = yield from self.cluster.get(row, at)
        if tx in view.intents and (yield from self.cluster.status(tx)) is None:
            yield from self.cluster.cas(tx, None, Aborted(is_buried=self.bug is not Bug.BURIED_IS_ABORTED))

    def _push(self, tx: int, at: int) -> Steps[Status | None]:
        """The status of a transaction that, if it is pending, can commit only above `at` from here on."""
        while True:
            status = yield from self.cluster.status(tx)
            if not isinstance(status, Pending) or status.minimum > at or self.bug is Bug.READER_DOES_NOT_PUSH:
                return status
            yield from self.cluster.cas(tx, status, status._replace(minimum=at + 1))

    def read(self, row: str, at: int, own: Mapping[int, int] | None = None) -> Steps[Folded]:
        """The row as of `at`. The intents of `own` transactions count as committed at their timestamps."""
        base, changes = yield from self._look(row, at, own or {})
        return fold(base, changes)

    def read_stepwise(self, row: str, own: Mapping[int, int]) -> Steps[dict[int, Folded]]:
        """The row as of the commits of `own` transactions, by timestamp, from one look at its intents."""
        steps = sorted(own.values())
        bases: dict[int, Folded] = {}
        if self.bug is Bug.BATCH_READS_ITS_BASES_FIRST:
            for at in steps:
                bases[at] = base_of((yield from self.cluster.get(row, at)))
        newest, changes = yield from self._look(row, steps[-1], own)
        for at in steps:
            if at >= newest.at or self.bug is Bug.BATCH_HAS_ONE_BASE:
                bases[at] = newest
            elif at not in bases:
                # After the look: a transaction without an intent has its version by now.
                bases[at] = base_of((yield from self.cluster.get(row, at)))
        return {at: fold(bases[at], (change for change in changes if change[0] <= at)) for at in steps}

    def _look(self, row: str, at: int, own: Mapping[int, int]) -> Steps[tuple[Folded, list[tuple[int, Intent]]]]:
        """The row as of `at`: its newest version and the committed intents beside it."""
        finished: set[int] = set()
        while (found := (yield from self._try_look(row, at, own, finished))) is None:
            pass
        return found

    def _try_look(
        self, row: str, at: int, own: Mapping[int, int], finished: set[int]
    ) -> Steps[tuple[Folded, list[tuple[int, Intent]]] | None]:
        """One attempt; None if the row has changed since it was read."""
        view = yield from self.cluster.get(row, at)
        changes = []
        for tx, (placed, intent) in view.intents.items():
            if tx in own:
                changes.append((own[tx], intent))
                continue
            if tx in finished:
                continue
            if own and self.bug is Bug.MERGE_DOES_NOT_PUSH:
                status = yield from self.cluster.status(tx)
            else:
                status = yield from self._push(tx, at)
            if status is None and self.bug is not Bug.ABSENT_STATUS_IS_IGNORED:
                yield from self._bury(row, tx, at)
                return None
            if status is not None and is_finished(status) and self.bug is not Bug.FINALISED_INTENT_COUNTS:
                finished.add(tx)
                return None
            if isinstance(status, Committed) and status.at <= at:
                changes.append((status.at, intent))
            elif isinstance(status, Aborted) and self.random.random() < 0.5:
                yield from self.cluster.delete(row, tx, placed)
        return base_of(view), changes

    def read_blind(self, row: str, floor: int) -> Steps[Folded]:
        """The newest value of one row, without a snapshot. `floor` is the session's, at or below the counter.

        Pending intents are ignored. Where increments are committed but not finalised, statuses read one after another
        are no moment that ever was; then the row is read again, as of the newest of them.
        """
        finished: set[int] = set()
        while True:
            view = yield from self.cluster.get(row)
            changes: list[tuple[int, Intent]] = []
            for tx, (_, intent) in view.intents.items():
                if tx in finished:
                    continue
                status = yield from self.cluster.status(tx)
                if status is None or is_finished(status):
                    finished.add(tx)
                    break
                if isinstance(status, Committed):
                    changes.append((status.at, intent))
            else:
                folded = fold(base_of(view), changes)
                merged = any(
                    i.kind is Kind.INCREMENT and cts > folded.last_write for cts, i in changes if cts > view.at
                )
                if not merged or self.bug is Bug.BLIND_READ_IN_ONE_STEP:
                    return folded
                at = max(folded.at, floor)
                value = yield from self.read(row, at)
                return value._replace(at=at)

    # Commit

    def commit(self, tx: Transaction, recent: RecentWrites, draw: Callable[[], Steps[int]]) -> Steps[int]:
        """Commit a transaction: its commit timestamp. Raises AbortError."""
        reads_back = self._is_whole(tx) or self.random.random() < 0.3
        cts, suspects, views = yield from self._flight(tx, recent, draw, reads_back=reads_back)
        while True:
            try:
                for row in (row for row in tx.writes if row in suspects and self.bug is not Bug.NO_READ_BACK):
                    yield from self._validate_row(tx, row, cts, views.pop(row, None))
                break
            except LaterError:
                cts = yield from draw()
                views = {}
        markers = {row: views.get(row) for row in self._relied_on(tx) if row in suspects}
        return (yield from self._decide(tx, cts, draw, markers))

    def _is_whole(self, tx: Transaction) -> bool:
        """Whether a transaction reads back all its rows, whatever the lists of others contain."""
        return any(row in MARKERS or intent.kind is Kind.INCREMENT for row, intent in tx.writes.items())

    def _flight(
        self, tx: Transaction, recent: RecentWrites, draw: Callable[[], Steps[int]], *, reads_back: bool
    ) -> Steps[tuple[int, set[str], dict[str, View]]]:
        """Calls that are pipelined on one connection: the replies are looked at only when all were sent.

        The timestamp; the rows that another transaction may have written, all if they were read back; and the cells.
        """
        suspects = set(self._looked_for(tx))
        if self.bug is not Bug.WRITES_ARE_NOT_LISTED:
            yield from self.cluster.put_list(recent.process, recent.enter(tx.id, frozenset(tx.writes)))
        if self.bug is Bug.LISTS_ARE_READ_FIRST and not reads_back:
            suspects = recent.suspects(tx.id, tx.start, suspects, (yield from self.cluster.read_lists()))
        yield from self.cluster.put_record(tx.id, Pending(tx.start, 0, False))
        for row, intent in tx.intents().items():
            yield from self.cluster.put(row, tx.id, tx.start, intent)
        if self.bug is Bug.GATE_ENTERED_AFTER_DRAWING:
            cts = yield from draw()
            yield from self.feed.announce(tx)
        else:
            yield from self.feed.announce(tx)
            cts = yield from draw()
        views = {}
        if reads_back:
            for row in self._looked_for(tx):
                views[row] = yield from self.cluster.get(row)
        elif self.bug is not Bug.LISTS_ARE_READ_FIRST:
            suspects = recent.suspects(tx.id, tx.start, suspects, (yield from self.cluster.read_lists()))
        if self.bug is Bug.MARKER_IS_TAKEN_FOR_UNCHANGED:
            suspects -= {*MARKERS}
        return cts, suspects, views

    def _looked_for(self, tx: Transaction) -> list[str]:
        """The rows that others must not have changed meanwhile: those it writes, and the markers it relies on."""
        return [*tx.writes, *self._relied_on(tx)]

    def _relied_on(self, tx: Transaction) -> list[str]:
        """The markers of the schemas that a transaction relies on and does not change."""
        return [marker for table in sorted(tx.tables) if (marker := marker_of(table)) not in tx.writes]

    def _require_record(self, tx: Transaction) -> Steps[None]:
        """Whether the record was made; if that cannot be seen, it must not be made any more."""
        while (status := (yield from self.cluster.status(tx.id))) is None:
            yield from self.cluster.cas(tx.id, None, Aborted(is_buried=True))
        if not isinstance(status, Pending):
            raise AbortError("the record is not mine")

    def _decide(
        self, tx: Transaction, cts: int, draw: Callable[[], Steps[int]], markers: Mapping[str, View | None]
    ) -> Steps[int]:
        """The last part of every commit: the checks that need the commit timestamp, and the decision.

        `markers` are those that may have changed, some as they were read after the timestamp was drawn.
        """
        yield from self._validate_reads(tx, cts, markers)
        while True:
            status = yield from self.cluster.status(tx.id)
            if isinstance(status, Committed):
                return cts
            if not isinstance(status, Pending):
                raise AbortError("aborted by another")
            if cts < status.minimum:
                cts = yield from draw()
                if self.bug is not Bug.MARKERS_ARE_NOT_VALIDATED_AGAIN:
                    yield from self._validate_reads(tx, cts, dict.fromkeys(self._relied_on(tx)))
                continue
            done = yield from self.cluster.cas(tx.id, status, Committed(cts, False))
            if done:
                return cts
            if done is None and self.random.random() < 0.2:
                raise UnknownError(cts)
            if done is None and self.bug is Bug.LOST_REPLY_IS_AN_ABORT:
                tx.cts = None
                raise AbortError("no reply")

    def _validate_row(self, tx: Transaction, row: str, cts: int, view: View | None) -> Steps[None]:
        """The read-back of one row: no other change of it between the snapshot and the commit."""
        finished: set[int] = set()
        while True:
            if view is None:
                view = yield from self.cluster.get(row)
            if (yield from self._try_validate_row(tx, row, cts, view, finished)):
                return
            view = None

    def _try_validate_row(self, tx: Transaction, row: str, cts: int, view: View, finished: set[int]) -> Steps[bool]:
        """One attempt; false if the row has changed since it was read."""
        mine = tx.writes[row]
        if tx.id not in view.intents:
            raise AbortError("my intent is gone")
        base = base_of(view)
        increments = mine.kind is Kind.INCREMENT
        if (base.last_write if increments else base.at) > tx.start:
            raise AbortError("another wrote the row")
        committed: list[tuple[int, Intent]] = []
        pending: list[int] = []
        for other, (placed, intent) in view.intents.items():
            if other == tx.id or other in finished:
                continue
            status = yield from self.cluster.status(other)
            if status is None:
                yield from self._bury(row, other)
                return False
            harmless = increments and intent.kind is Kind.INCREMENT
            if isinstance(status, Pending):
                if not harmless:
                    yield from self._contend(tx, other, placed, status)
                    return False
                pending.append(intent.delta)
            elif isinstance(status, Committed):
                if status.at > tx.start and not harmless:
                    raise AbortError("another wrote the row")
                committed.append((status.at, intent))
            if is_finished(status):
                finished.add(other)
                return False
        if increments:
            self._check_bounds(mine.delta, cts, fold(base, committed), pending)
        return True

    def _check_bounds(self, delta: int, cts: int, now: Folded, pending: Sequence[int]) -> None:
        """Whether the number stays within its bounds, in any order of the pending increments."""
        if now.at > cts and self.bug is not Bug.BOUND_IGNORES_ORDER:
            raise LaterError  # an intent committed above my timestamp would not delay me here
        number = (now.row.number if now.row else 0) + delta
        if abs(number) > LIMIT:
            raise AbortError("out of bounds")
        if self.bug is Bug.BOUND_IGNORES_PENDING:
            return
        highest = number + sum(other for other in pending if other > 0)
        lowest = number + sum(other for other in pending if other < 0)
        if max(highest, -lowest) > LIMIT:
            raise AbortError("may get out of bounds")

    def _contend(self, tx: Transaction, other: int, placed: int, status: Pending) -> Steps[None]:
        """Two pending writers of one row: the older wounds, the younger waits a little and dies. A bulk is oldest."""
        mine = (not tx.is_bulk, tx.start, tx.id)
        if mine < (not status.is_bulk, status.start, other):
            yield from self.cluster.cas(other, status, Aborted())
        elif self.random.random() < 0.6:
            yield
        else:
            raise AbortError("an older one is not decided")

    def _validate_reads(self, tx: Transaction, cts: int, markers: Mapping[str, View | None]) -> Steps[None]:
        """No change between the snapshot and `cts` of a schema it relies on, nor of its reads if that is promised."""
        if self.bug is not Bug.MARKERS_ARE_NOT_VALIDATED:
            for marker, view in markers.items():
                yield from self._validate_read(tx, marker, cts, view)
        if self.mode is Mode.SERIALIZABLE and self.bug is not Bug.READS_ARE_NOT_VALIDATED:
            for row in dict(tx.reads):
                yield from self._validate_read(tx, row, cts)

    def _validate_read(self, tx: Transaction, row: str, cts: int, view: View | None = None) -> Steps[None]:
        finished: set[int] = set()
        while True:
            if view is None:
                view = yield from self.cluster.get(row, cts - 1)
            if view.at > tx.start:
                raise AbortError("another wrote what was read")
            for other, (_, intent) in view.intents.items():
                if other == tx.id or intent.kind is Kind.LOCK or other in finished:
                    continue
                status = yield from self._push(other, cts)
                if status is None:
                    yield from self._bury(row, other, cts - 1)
                    break
                if isinstance(status, Committed) and tx.start < status.at < cts:
                    raise AbortError("another wrote what was read")
                if is_finished(status):
                    finished.add(other)
                    break
            else:
                return
            view = None

    # Bulk transactions

    def commit_bulk(
        self,
        tx: Transaction,
        recent: RecentWrites,
        chunks: Sequence[Sequence[str]],
        change: Callable[[str, Row | None], Mapping[str, Intent]],
        draw: Callable[[], Steps[int]],
    ) -> Steps[int]:
        """Lock chunk by chunk, change the locked rows, and return the commit timestamp. Raises AbortError."""
        if self.bug is not Bug.JOB_IS_NOT_LISTED:
            yield from self.cluster.put_list(recent.process, recent.enter(tx.id, None))
        yield from self.cluster.send_cas(tx.id, None, Pending(tx.start, 0, True))
        yield from self._require_record(tx)
        placed = tx.start if self.bug is Bug.BULK_INTENT_AT_LOCK else tx.start + 1
        for chunk in chunks:
            for row in chunk:
                tx.writes[row] = Intent(Kind.LOCK)
                if self.bug is Bug.BULK_READS_BEFORE_ITS_LOCK:
                    tx.locked[row] = (yield from self.read(row, tx.start)).row
                yield from self.cluster.put(row, tx.id, tx.start, tx.writes[row])
            for row in chunk:
                old = yield from self._read_locked(tx, row)
                tx.locked.setdefault(row, old)
            for row in chunk:
                for changed, intent in change(row, tx.locked[row]).items():
                    (tx.writes if changed in tx.writes else tx.derived)[changed] = intent
                    yield from self.cluster.put(changed, tx.id, placed, intent)
        yield from self.feed.announce(tx)
        cts = yield from draw()
        return (yield from self._decide(tx, cts, draw, dict.fromkeys(self._relied_on(tx))))

    def _read_locked(self, tx: Transaction, row: str) -> Steps[Row | None]:
        """The newest value of a row that is locked, when nothing on it is undecided."""
        finished: set[int] = set()
        known: set[int] = set()
        while True:
            view = yield from self.cluster.get(row)
            if tx.id not in view.intents:
                raise AbortError("my lock is gone")
            committed: list[tuple[int, Intent]] = []
            for other, (placed, intent) in view.intents.items():
                if other == tx.id or other in finished:
                    continue
                status = yield from self.cluster.status(other)
                if status is None:
                    yield from self._bury(row, other)
                    break
                if isinstance(status, Pending) and self.bug is not Bug.BULK_KEEPS_PENDING:
                    yield from self._contend(tx, other, placed, status)
                    break
                if is_finished(status):
                    finished.add(other)
                    break
                if isinstance(status, Committed):
                    if intent.kind is Kind.LOCK and other not in known and self.bug is not Bug.BULK_TRUSTS_A_LOCK:
                        known.add(other)  # its change may have come between the row and the status
                        break
                    committed.append((status.at, intent))
            else:
                return fold(base_of(view), committed).row

    # Afterwards

    def finalise(self, tx: int, cts: int, rows: Sequence[str], seen: int) -> Steps[bool]:
        """Make versions of a committed transaction's intents. Anyone may, any number of times: whether it got through.

        A version may be put only shortly after the record was seen not to be finalised, first at `seen`: once it is,
        its rows may be collected, and a version that is put after that brings a deleted row back.
        """
        for row in rows:
            view = yield from self.cluster.get(row)
            intent = self._intent_of(tx, view)
            if intent is None:
                continue
            version = yield from self._version(tx, cts, row, intent)
            if self.cluster.now - seen > self.cluster.world.fresh and self.bug is not Bug.FINALISER_DOES_NOT_LOOK_AGAIN:
                seen = self.cluster.now
                status = yield from self.cluster.status(tx)
                if not isinstance(status, Committed) or status.is_finalised:
                    return False
            if self.bug is Bug.INTENT_DELETED_BEFORE_PUT:
                yield from self.cluster.delete(row, tx, cts)
            if version is not None:
                yield from self.cluster.put(row, VERSIONS, cts, version)
            yield from self.cluster.delete(row, tx, cts)
        yield from self.feed.move(tx, cts)
        return True

    def _version(self, tx: int, cts: int, row: str, intent: Intent) -> Steps[Version | None]:
        """The row's version after a committed intent."""
        if intent.kind is Kind.INCREMENT:
            return self._merged((yield from self.read(row, cts, {tx: cts})))
        if intent.kind is Kind.LOCK:
            # It leaves no trace, so transactions that waited for it must commit above it.
            if self.bug is not Bug.LOCK_GOES_UNNOTICED:
                yield from self.read(row, cts, {tx: cts})
            return None
        return Version(intent.kind, intent.row, cts)

    def _merged(self, merged: Folded) -> Version:
        return Version(Kind.MERGED, merged.row, 0 if self.bug is Bug.MERGE_FORGETS_LAST_WRITE else merged.last_write)

    def _intent_of(self, tx: int, view: View) -> Intent | None:
        """The intents of a transaction on a row; its column may hold another transaction's."""
        if self.bug is Bug.FINALISER_TAKES_ANY_INTENT_OF_A_LANE:
            tx = next((one for one in view.intents if self.cluster.column_of(one) == self.cluster.column_of(tx)), tx)
        return view.intents[tx][1] if tx in view.intents else None

    def finalise_own(self, transactions: Mapping[int, tuple[int, Mapping[str, Intent]]]) -> Steps[None]:
        """Finalise several transactions of one owner at once, given by their commit timestamps and intents.

        None of their cells is collected meanwhile, because the owner's session holds them.
        """
        merged: dict[tuple[str, int], Version] = {}
        increments: dict[str, dict[int, int]] = {}
        for tx, (cts, intents) in transactions.items():
            for row, intent in intents.items():
                if intent.kind is Kind.INCREMENT:
                    increments.setdefault(row, {})[tx] = cts
        for row, own in increments.items():
            for at, folded in (yield from self.read_stepwise(row, own)).items():
                if folded.at == at:
                    merged[row, at] = self._merged(folded)
        for tx, (cts, intents) in transactions.items():
            for row, intent in intents.items():
                if intent.kind is Kind.INCREMENT:
                    version = merged.get((row, cts))
                else:
                    version = yield from self._version(tx, cts, row, intent)
                if self.bug is Bug.INTENT_DELETED_BEFORE_PUT:
                    yield from self.cluster.delete(row, tx, cts)
                if version is not None:
                    yield from self.cluster.put(row, VERSIONS, cts, version)
                yield from self.cluster.delete(row, tx, cts)
            if self.bug is not Bug.FINALISED_BEFORE_ENTRIES:
                yield from self.feed.publish(tx, cts)

    def clean(self, tx: int, start: int, rows: Sequence[str]) -> Steps[None]:
        """Delete an aborted transaction's intents. A bulk transaction's are at one more than its start."""
        for row in rows:
            yield from self.cluster.delete(row, tx, start + 1)
        yield from self.feed.clear(tx, start)
