"""The janitor: it ends and finalises abandoned transactions, and collects versions that no reader can need."""

from __future__ import annotations

from collections.abc import Mapping

from .cells import VERSIONS, Kind
from .cluster import Aborted, Bug, Cluster, Committed, Pending, Status, Steps
from .history import EVERYTHING, Transaction
from .protocol import Protocol


def _order(item: tuple[int, Status]) -> int:
    return item[1].at if isinstance(item[1], Committed) else 0


class Janitor:
    """One process's janitor. Several run at once, and know nothing of one another."""

    def __init__(self, cluster: Cluster, protocol: Protocol, transactions: Mapping[int, Transaction]) -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.transactions = transactions
        self.random = cluster.random
        self.bug = cluster.bug
        self.seen: dict[tuple[int, Status], int] = {}  # when this janitor first saw a status
        self.collected = 0

    def run(self) -> Steps[None]:
        while True:
            yield
            chance = self.random.random()
            if chance < 0.03:
                yield from self._expire_leases()
            elif chance < 0.06:
                yield from self._finalise_all()
            elif chance < 0.12 and self.cluster.world.collects:
                yield from self._collect()
            elif chance < 0.16 and self.cluster.world.collects:
                yield from self._remove_lists()
            elif chance < 0.18 and self.cluster.world.collects:
                yield from self._forget_lanes()
            elif chance < 0.3:
                self.cluster.cells.compact(self.random.choice(EVERYTHING))
                if self.random.random() < 0.2:
                    self.protocol.feed.gate.compact()

    def _rows(self, tx: int) -> list[str]:
        """The rows of a record's write set. A bulk transaction's has none, and all tables are walked."""
        transaction = self.transactions[tx]
        return EVERYTHING if transaction.is_bulk else list(transaction.intents())

    def _expire_leases(self) -> Steps[None]:
        """Wrong guesses as well: a lease decides who may try, never the outcome."""
        for tx, status in (yield from self.cluster.scan()):
            if isinstance(status, Pending) and self.random.random() < 0.15:
                yield from self.cluster.cas(tx, status, Aborted())

    def _finalise_all(self) -> Steps[None]:
        seen = self.cluster.now
        for tx, status in (yield from self.cluster.scan()):
            if isinstance(status, Committed) and not status.is_finalised:
                done = yield from self.protocol.finalise(tx, status.at, self._rows(tx), seen)
                if done and self.cluster.world.collects:
                    yield from self.cluster.cas(tx, status, status._replace(is_finalised=True))

    def _collect(self) -> Steps[None]:
        counter = yield from self.cluster.read_counter()
        yield
        safe = min([counter, *self.cluster.floors.values()])
        if self.bug is Bug.COLLECTS_BELOW_FLOORS:
            safe = counter
        for tx, status in (yield from self.cluster.scan()):
            if isinstance(status, Pending) and status.start < safe:
                yield from self.cluster.abort(tx)
        safe = self.cluster.safe = max(self.cluster.safe, safe)
        yield from self._finalise_all()
        latest, now = self.cluster.world.latest + self.cluster.world.fresh, self.cluster.now
        for tx, status in sorted((yield from self.cluster.scan()), key=_order):
            since = self.seen.setdefault((tx, status), now)
            is_old = now - since > latest or self.bug is Bug.COLLECTS_AT_ONCE
            if isinstance(status, Committed):
                if status.is_finalised and status.at <= safe and is_old:
                    yield from self._collect_versions(tx, status.at)
                    if self.random.random() < 0.8:
                        yield from self.cluster.remove(tx)
                elif self.bug is not Bug.COLLECTS_OUT_OF_ORDER:
                    safe = 0  # later commits must wait for it
            elif isinstance(status, Aborted):
                yield from self._forget(tx, is_old)

    def _collect_versions(self, tx: int, cts: int) -> Steps[None]:
        for row in self._rows(tx):
            view = yield from self.cluster.get(row, cts)
            if view.version is not None and view.at == cts:
                self.collected += 1
                is_deleted = view.version.kind is Kind.TOMBSTONE
                yield from self.cluster.delete(row, VERSIONS, cts if is_deleted else cts - 1)

    def _remove_lists(self) -> Steps[None]:
        """Remove the lists of ended processes without records: no transaction may need them."""
        lists = yield from self.cluster.read_lists()
        yield
        running = set(self.cluster.running)
        left = {self.cluster.processes[tx] for tx, _ in (yield from self.cluster.scan())}
        if self.bug is Bug.LIST_IS_REMOVED_TOO_EARLY:
            left = set()
        for process, written in lists.items():
            if process not in running and process not in left:
                newest = 10**9 if self.bug is Bug.LIST_IS_REMOVED_WITH_NEWER else written.number
                yield from self.cluster.remove_list(process, newest)

    def _forget_lanes(self) -> Steps[None]:
        """Remove the cells that ended processes without records left in the gate."""
        counter = yield from self.cluster.read_counter()
        lanes = list(self.cluster.lanes)  # before the processes: none of a process that starts later is among them
        yield
        running = set(self.cluster.running)
        left = {self.cluster.processes[tx] for tx, _ in (yield from self.cluster.scan())}
        if self.bug is Bug.GATE_IS_FORGOTTEN_TOO_EARLY:
            left = set()
        for tx in lanes:
            if self.cluster.processes[tx] not in running | left:
                yield from self.protocol.feed.forget(tx, counter)

    def _forget(self, tx: int, is_old: bool) -> Steps[None]:
        """The intents of an aborted transaction go at once, its record when none of them can arrive any more."""
        if is_old or self.random.random() < 0.1:
            yield from self.protocol.clean(tx, self.transactions[tx].start, self._rows(tx))
        if is_old:
            yield from self.cluster.remove(tx)
