"""One run: clients with a random workload, interleaved at random, and judged at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from random import Random

from .cells import LIMIT, Intent, Kind, Row
from .cluster import Aborted, Bug, Cluster, Committed, Mode, Steps, World
from .feed import Feed, FeedRead
from .history import (
    COLOURS,
    ENTRIES,
    KEYS,
    MARKERS,
    ROWS,
    BlindRead,
    Oracle,
    Outcome,
    Transaction,
    index_changes,
    row_of,
    table_of,
)
from .protocol import AbortError, Protocol, UnknownError
from .recent import RecentWrites
from .upkeep import Janitor

JANITORS = 2
WORKLOADS = [(9, 6, 3, 1), (20, 2, 1, 1), (6, 4, 9, 1)]
"""How often a change is an increment, a put, a tombstone, a lock; one of these for each run."""

PROCESSES = 3
"""Sessions of one process list their writes together. One without any looks dead, until another one begins."""

FIRST_LANE = 1_000_000
"""Columns of lanes are above those of transactions."""

LONGEST = 60_000
"""Steps after which a run has hung."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much happened in a run."""

    commits: int
    aborts: int
    blind_reads: int
    collected: int
    steps: int


class Simulation:
    """All processes of one run."""

    def __init__(self, world: World, mode: Mode, seed: int, bug: Bug | None) -> None:
        self.random = Random(seed)
        self.world = world
        self.mode = mode
        self.cluster = Cluster(world, self.random, bug)
        self.transactions: dict[int, Transaction] = {}
        self.feed = Feed(self.cluster, self.transactions)
        self.protocol = Protocol(self.cluster, mode, self.feed)
        self.appends = self.random.choice([0.5, 1]) if world.feeds else 0  # how many commits append to the feed
        self.feed_reads: list[FeedRead] = []
        self.positions: dict[int, int] = {}  # by session
        self.blind: list[BlindRead] = []
        self.janitors = [Janitor(self.cluster, self.protocol, self.transactions) for _ in range(JANITORS)]
        self.weights = self.random.choice(WORKLOADS if not world.hot else WORKLOADS[1:2])
        self.heat = self.random.choice([1, 6] if not world.hot else [20])  # of the first row
        self.ranges: dict[int, range] = {}
        self.waiting: dict[int, list[Transaction]] = {}  # by session, committed and not yet finalised
        self.unmarked: dict[int, list[Transaction]] = {}  # by session, finalised and not yet marked so
        self.free: dict[int, dict[int, int]] = {}  # by session, free lanes and the timestamps they hide
        self.lanes = count(FIRST_LANE)
        self.recent: dict[int, RecentWrites] = {}  # by process

    def run(self) -> Counts:
        cluster, world, choose = self.cluster, self.world, self.random
        clients: dict[int, Steps[None]] = {session: self._client(session) for session in range(world.clients)}
        janitors = {-1 - number: janitor.run() for number, janitor in enumerate(self.janitors)}
        stalled: dict[int, int] = {}
        sessions = world.clients
        while clients:
            cluster.tick()
            assert cluster.now < LONGEST, "the run does not end"
            cluster.running = {one % PROCESSES for one in clients}
            session = choose.choice([*clients, *janitors])
            if stalled.get(session, 0) > cluster.now:
                continue
            chance = choose.random()
            if chance < world.stalls:
                stalled[session] = cluster.now + world.patience * (world.latest + min(world.fresh, world.latest))
            elif session < 0:
                next(janitors[session])
            elif chance > 1 - world.crashes and sessions < 2 * world.clients:
                del clients[session]
                cluster.floors.pop(session, None)
                clients[sessions] = self._client(sessions)
                sessions += 1
            elif next(clients[session], False) is False:
                del clients[session]
        self._judge()
        outcomes = [tx.outcome for tx in self.transactions.values()]
        return Counts(
            commits=len(cluster.decided),
            aborts=outcomes.count(Outcome.ABORTED),
            blind_reads=len(self.blind),
            collected=sum(janitor.collected for janitor in self.janitors),
            steps=cluster.now,
        )

    def _judge(self) -> None:
        self.cluster.calm()
        last = {}
        for row in [*ROWS, *MARKERS, *ENTRIES]:
            reading = self.protocol.read(row, self.cluster.counter)
            while True:
                try:
                    next(reading)
                except StopIteration as end:
                    last[row] = end.value.row
                    break
        for position in {0, *self.positions.values()}:
            self._finish(self._read_feed(-1, position))
        oracle = Oracle(self.transactions, self.cluster.decided)
        oracle.check_feed(self.feed_reads)
        if self.appends == 1:
            oracle.check_copy(self.feed_reads)
        oracle.check(self.mode is Mode.SERIALIZABLE, self.blind, last)

    @staticmethod
    def _finish(steps: Steps[None]) -> None:
        for _ in steps:
            continue

    # The operations of a client

    def _read_feed(self, session: int, since: int | None = None) -> Steps[None]:
        """Take the newest position, and read what came since the last one, or since some earlier one."""
        at = yield from self.cluster.read_counter()
        if since is None:
            since = self.positions.get(session, 0) if self.random.random() < 0.8 else self.random.randint(0, at)
        self.feed_reads.append((yield from self.feed.read(since, at)))
        self.positions[session] = at

    def _client(self, session: int) -> Steps[None]:
        for _ in range(self.world.transactions):
            yield
            floor = self._hold(session, self.cluster.counter)
            chance = self.random.random()
            if chance < 0.15:
                yield from self._read_blind(floor)
                if self.world.feeds and self.random.random() < 0.7:
                    yield from self._read_feed(session)
            else:
                start = yield from self.cluster.read_counter()
                tx = Transaction(len(self.transactions) + 1, start)
                self.transactions[tx.id] = tx
                self.cluster.processes[tx.id] = session % PROCESSES
                is_bulk = chance < (0.16 if self.world.hot else 0.23)
                if not is_bulk:
                    self._take_lane(tx, session)
                if is_bulk:
                    yield from self._end(tx, session, self._bulk(tx, session))
                else:
                    yield from self._read_and_buffer(tx, changes_schema=chance < 0.28)
                    self._append(tx)
                    if tx.writes or tx.entries:
                        yield from self._end(tx, session, self._commit(tx, session))
                    else:
                        tx.outcome, tx.reported = Outcome.COMMITTED, self.cluster.now
            self._hold(session)
        yield from self._finalise(session)
        yield from self._mark_placed(session)

    def _hold(self, session: int, *snapshots: int) -> int:
        """Keep what a session's snapshot, and its transactions that are not yet finalised, may need."""
        unfinished = [*self.waiting.get(session, ()), *self.unmarked.get(session, ())]
        held = [*snapshots, *(tx.start for tx in unfinished)]
        if held:
            self.cluster.floors[session] = min(held)
        else:
            self.cluster.floors.pop(session, None)
        return self.cluster.counter

    def _take_lane(self, tx: Transaction, session: int) -> None:
        """Give a transaction a column that others had before, which hides nothing that is put at its start."""
        free = self.free.setdefault(session, {})
        usable = [
            lane for lane, hidden in free.items() if hidden < tx.start or self.cluster.bug is Bug.LANE_HIDES_INTENTS
        ]
        lane = min(usable, default=0) or next(self.lanes)
        free.pop(lane, None)
        self.cluster.lanes[tx.id] = lane

    def _leave_lane(self, tx: Transaction, session: int) -> None:
        if tx.id in self.cluster.lanes:
            self.free[session][self.cluster.lanes[tx.id]] = max(tx.cts or 0, tx.start + 1)

    def _draw(self, session: int) -> Steps[int]:
        if self.cluster.bug is not Bug.COMMIT_TIMESTAMPS_FROM_RANGES:
            return (yield from self.cluster.draw())
        yield
        if not self.ranges.get(session):
            self.ranges[session] = range(self.cluster.counter + 1, self.cluster.counter + 11)
            self.cluster.counter += 10
        cts, self.ranges[session] = self.ranges[session][0], self.ranges[session][1:]
        return cts

    def _read_blind(self, floor: int) -> Steps[None]:
        row, began = self.random.choices(ROWS, [self.heat] + [1] * (KEYS - 1))[0], self.cluster.now
        read = yield from self.protocol.read_blind(row, floor)
        self.blind.append(BlindRead(row, began, self.cluster.now, read.at, read.row, self.cluster.counter))

    def _read_and_buffer(self, tx: Transaction, *, changes_schema: bool) -> Steps[None]:
        choose = self.random
        if self.world.hot:
            wanted = ROWS[:1] * 3
        else:
            wanted = [*ROWS, *choose.sample(ENTRIES, 3)] if choose.random() < 0.2 else choose.choices(ROWS, k=2)
        for row in wanted:
            tx.reads.append((row, (yield from self.protocol.read(row, tx.start)).row))
        if changes_schema:
            table = choose.randrange(len(MARKERS))
            tx.tables.add(table)
            tx.writes[MARKERS[table]] = Intent(Kind.PUT, Row(tx.id, 0, 0, 0))
            return
        for key in choose.choices(range(KEYS), [self.heat] + [1] * (KEYS - 1), k=choose.choice([0, 1, 1, 2, 3])):
            row = row_of(key)
            if row not in tx.writes:
                tx.tables.add(table_of(key))
                old = (yield from self.protocol.read(row, tx.start)).row
                tx.writes[row] = intent = self._some_change(tx)
                if intent.kind is Kind.PUT or intent.kind is Kind.TOMBSTONE:
                    tx.derived |= index_changes(key, old, intent.row)
                elif intent.kind is Kind.INCREMENT and self.cluster.bug is not Bug.INCREMENT_CREATES_NO_INDEX_ENTRY:
                    tx.derived |= index_changes(key, old, old or Row(0, 0, 0, 0))

    def _append(self, tx: Transaction) -> None:
        if self.world.feeds and self.random.random() < self.appends:
            tx.entries = self.random.choice([1, 1, 1, 2])

    def _some_change(self, tx: Transaction) -> Intent:
        choose = self.random
        kind = choose.choices([Kind.INCREMENT, Kind.PUT, Kind.TOMBSTONE, Kind.LOCK], self.weights)[0]
        match kind:
            case Kind.INCREMENT:
                return Intent(kind, None, choose.choice([-3, -2, -1, 1, 2, 3]), choose.getrandbits(60))
            case Kind.PUT:
                return Intent(kind, self._some_row(tx))
            case _:
                return Intent(kind)

    def _some_row(self, tx: Transaction) -> Row:
        return Row(tx.id, self.random.randrange(COLOURS), self.random.randint(-LIMIT, LIMIT), 0)

    def _commit(self, tx: Transaction, session: int) -> Steps[int]:
        return self.protocol.commit(tx, self._recent(session), lambda: self._draw(session))

    def _recent(self, session: int) -> RecentWrites:
        process = session % PROCESSES
        return self.recent.setdefault(process, RecentWrites(process, self.cluster.bug))

    def _bulk(self, tx: Transaction, session: int) -> Steps[int]:
        """Change rows by their state: recolour some, create some, delete some, leave some."""
        tx.is_bulk = True
        self._append(tx)
        keys = self.random.sample(range(KEYS), self.random.randint(1, 3))
        tx.tables |= {table_of(key) for key in keys}

        def change(row: str, old: Row | None) -> dict[str, Intent]:
            key = ROWS.index(row)
            chance = self.random.random()
            if chance < 0.2:
                return {}
            if chance < 0.4:
                return {row: Intent(Kind.TOMBSTONE), **index_changes(key, old, None)}
            new = self._some_row(tx) if old is None else old._replace(writer=tx.id, colour=COLOURS - 1 - old.colour)
            return {row: Intent(Kind.PUT, new), **index_changes(key, old, new)}

        rows = [row_of(key) for key in keys]
        chunks = [rows[:1], rows[1:]]

        def draw() -> Steps[int]:
            return self._draw(session)

        return (yield from self.protocol.commit_bulk(tx, self._recent(session), chunks, change, draw))

    def _end(self, tx: Transaction, session: int, commit: Steps[int]) -> Steps[None]:
        """Run a commit to its outcome, and tidy up as its owner does."""
        cluster = self.cluster
        try:
            tx.cts = yield from commit
        except UnknownError as error:
            self._recent(session).end(tx.id, None if cluster.bug is Bug.UNKNOWN_IS_NOT_LISTED else error.cts)
            return
        except AbortError:
            if cluster.bug is not Bug.LOST_REPLY_IS_AN_ABORT:
                status = yield from cluster.abort(tx.id)
                tx.cts = status.at if isinstance(status, Committed) else None
        tx.reported = cluster.now
        self._recent(session).end(tx.id, tx.cts)
        if tx.cts is None:
            tx.outcome = Outcome.ABORTED
            if cluster.bug is Bug.LANE_IS_LEFT_TOO_EARLY:
                self._leave_lane(tx, session)
            yield from self.protocol.clean(tx.id, tx.start, list(tx.intents()))
            if not cluster.world.collects and isinstance(cluster.statuses.get(tx.id), Aborted):
                yield from cluster.remove(tx.id)
            self._leave_lane(tx, session)
            return
        tx.outcome = Outcome.COMMITTED
        if cluster.bug is Bug.LANE_IS_LEFT_TOO_EARLY:
            self._leave_lane(tx, session)
        if self.random.random() < (0.05 if self.world.hot else 0.3):
            return
        self.waiting.setdefault(session, []).append(tx)
        if self.random.random() < (0.2 if self.world.hot else 0.5):
            yield from self._finalise(session)

    def _finalise(self, session: int) -> Steps[None]:
        """Finalise a session's commits and mark them, often later; the rows of a large one are searched for."""
        cluster = self.cluster
        batch = {tx.id: tx for tx in self.waiting.get(session, ()) if tx.cts is not None}
        if cluster.bug is Bug.MARKED_BEFORE_PLACED:
            yield from self._mark(batch.values())
        yield from self.protocol.finalise_own(
            {tx.id: (tx.cts, tx.intents()) for tx in batch.values() if tx.cts is not None and not tx.is_bulk}
        )
        if cluster.bug is Bug.FINALISED_BEFORE_ENTRIES:
            yield from self._mark(batch.values())
            for tx in batch.values():
                yield from self.feed.publish(tx.id, tx.cts or 0)
        for tx in batch.values():
            assert tx.cts is not None
            if not tx.is_bulk or (yield from self.protocol.finalise(tx.id, tx.cts, list(tx.intents()), cluster.now)):
                self.unmarked.setdefault(session, []).append(tx)
                self._leave_lane(tx, session)
        self.waiting.pop(session, None)
        if self.random.random() < 0.5:
            yield from self._mark_placed(session)
        self._hold(session)

    def _mark_placed(self, session: int) -> Steps[None]:
        yield from self._mark(self.unmarked.get(session, ()))
        self.unmarked.pop(session, None)
        self._hold(session)

    def _mark(self, finalised: Iterable[Transaction]) -> Steps[None]:
        for tx in finalised:
            assert tx.cts is not None
            if self.cluster.world.collects:
                yield from self.cluster.mark(tx.id, Committed(tx.cts, False))
            elif self.random.random() < 0.8:
                yield from self.cluster.remove(tx.id)


def simulate(world: World, mode: Mode, seed: int, bug: Bug | None = None) -> Counts:
    """Run one seed. Raises Violation where the history breaks a promise."""
    return Simulation(world, mode, seed, bug).run()
