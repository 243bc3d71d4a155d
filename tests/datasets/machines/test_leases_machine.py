"""Leases and permits, taken by two processes whose clocks stand still or run ahead, beside a model of plain values."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from structable.datasets import Lease, LeaseLostError, Permit, SystemData
from structable.spi import Storage, TransactionConflictError
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.stores import emptied
from tests.datasets.support.ticks import Ticks

PROCESSES = st.sampled_from((0, 1))
TTLS = st.sampled_from((1, 2, 10))
MEANWHILE = st.sampled_from(("nothing", "renew", "release", "take"))


@dataclasses.dataclass
class Row:
    """A lease, or the slot of a permit; `token` is 0 before it was ever held, and `owner` None while it is free."""

    owner: str | None = None
    token: int = 0
    beat: int = 0
    ttl: int = 0


@dataclasses.dataclass
class Process:
    """A process: its monotonic clock, and since when it has watched a beat of a token of a name."""

    system: SystemData
    ticks: Ticks
    watched: dict[object, tuple[int, int, float]] = dataclasses.field(default_factory=dict)

    def sees_expired(self, name: object, row: Row) -> bool:
        """Look at a row that is held; return whether its beat stood still for its ttl while this process watched."""
        token, beat, since = self.watched.get(name, (0, 0, 0.0))
        if (token, beat) == (row.token, row.beat):
            return self.ticks.seconds - since >= row.ttl
        self.watched[name] = row.token, row.beat, self.ticks.seconds
        return False

    def sees_held(self, name: object, row: Row) -> bool:
        return row.owner is not None and not self.sees_expired(name, row)


class _Machine(RuleBasedStateMachine):
    """Two processes on one store; what they hold is renewed, released and relied on alike, held or lost."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        emptied(storage)
        self.processes: list[Process] = []
        for _ in range(2):
            ticks = Ticks()
            self.processes.append(Process(SystemData.open(storage, monotonic=ticks), ticks))
        self.rows: dict[object, Row] = {}
        self.handles: list[tuple[object, Lease | Permit]] = []
        self.committed = 0

    def teardown(self) -> None:
        for process in self.processes:
            process.system.close()

    def holds(self, name: object, handle: Lease | Permit) -> bool:
        row = self.rows[name]
        return row.owner is not None and row.token == handle.token

    def row(self, name: object) -> Row:
        return self.rows.setdefault(name, Row())

    def taken(self, name: object, handle: Lease | Permit, owner: str, ttl: int) -> None:
        """Expect a new owner, whose token is greater by one."""
        row = self.row(name)
        assert handle.token == row.token + 1
        self.rows[name] = Row(owner, handle.token, 0, ttl)
        self.handles.append((name, handle))

    @abstractmethod
    def take(self, place: int, name: object) -> None:
        """Try to take what is held under a name."""

    def any(self, data: st.DataObject) -> tuple[object, Lease | Permit]:
        """Return one of those that were acquired; more often one of the last."""
        last = st.integers(max(0, len(self.handles) - 3), len(self.handles) - 1)
        place = data.draw(last | st.integers(0, len(self.handles) - 1), label="handle")
        return self.handles[place]

    @rule(place=PROCESSES, seconds=st.sampled_from((0.5, 1, 2, 9, 10)))
    def tick(self, place: int, seconds: float) -> None:
        self.processes[place].ticks.tick(seconds)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self._renew(*self.any(data))

    def _renew(self, name: object, handle: Lease | Permit) -> None:
        if self.holds(name, handle):
            handle.renew()
            self.rows[name].beat += 1
        else:
            with pytest.raises(LeaseLostError):
                handle.renew()

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self._release(*self.any(data))

    def _release(self, name: object, handle: Lease | Permit) -> None:
        held = self.holds(name, handle)
        handle.release()
        if held:
            self.rows[name].owner = None

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), meanwhile=MEANWHILE, place=PROCESSES)
    def rely_on_it(self, data: st.DataObject, meanwhile: str, place: int) -> None:
        """Commit a transaction that checked it, if and only if it is still held at the commit."""
        name, handle = self.any(data)
        held = self.holds(name, handle)
        outcome = "committed"
        try:
            with self.processes[place].system.transaction() as s:
                s.external_positions.get("topic", "subscriber")  # takes the snapshot
                if held:
                    handle.check(s.tx)
                else:
                    with pytest.raises(LeaseLostError):
                        handle.check(s.tx)
                s.external_positions.put("topic", "subscriber", str(self.committed + 1))
                if held:
                    self._meanwhile(meanwhile, place, name, handle)
        except TransactionConflictError:
            outcome = "conflict"
        assert outcome == ("conflict" if held and not self.holds(name, handle) else "committed")
        self.committed += outcome == "committed"

    def _meanwhile(self, action: str, place: int, name: object, handle: Lease | Permit) -> None:
        actions: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "renew": lambda: self._renew(name, handle),
            "release": lambda: self._release(name, handle),
            "take": lambda: self.take(1 - place, name),
        }
        actions[action]()

    @invariant()
    def what_relied_on_it_is_there(self) -> None:
        with self.processes[0].system.transaction(read_only=True) as s:
            position = s.external_positions.get("topic", "subscriber")
        assert position == (str(self.committed) if self.committed else None)


class LeasesMachine(_Machine):
    @rule(place=PROCESSES, name=st.sampled_from("ab"), owner=st.sampled_from(("one", "two")), ttl=TTLS)
    def acquire(self, place: int, name: str, owner: str, ttl: int) -> None:
        process = self.processes[place]
        row = self.row(name)
        held = process.sees_held(name, row)
        lease = process.system.leases.acquire(name, owner, ttl)
        if held:
            assert lease is None
            return
        assert lease is not None
        assert (lease.name, lease.owner) == (name, owner)
        self.taken(name, lease, owner, ttl)

    def take(self, place: int, name: object) -> None:
        self.acquire(place, str(name), "another", 1)

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        with self.processes[0].system.storage.table("sys_leases").scan() as rows:
            found = {str(row["lease"]): Row(row["owner"], row["token"], row["beat"], row["ttl"]) for row in rows}  # type: ignore[arg-type] # as the columns are
        assert found == {name: row for name, row in self.rows.items() if row.token}


class PermitsMachine(_Machine):
    @rule(
        place=PROCESSES,
        pool=st.sampled_from("pq"),
        holder=st.sampled_from(("one", "two")),
        limit=st.sampled_from((0, 1, 2, 3)),
        ttl=TTLS,
    )
    def acquire(self, place: int, pool: str, holder: str, limit: int, ttl: int) -> None:
        process = self.processes[place]
        held = self._held(process, pool)
        permit = process.system.permits.acquire(pool, holder, limit, ttl)
        if len(held) >= limit:
            assert permit is None
            return
        assert permit is not None
        assert (permit.pool, permit.holder) == (pool, holder)
        assert permit.slot in set(range(limit)) - held
        self.taken((pool, permit.slot), permit, holder, ttl)

    @rule(place=PROCESSES, pool=st.sampled_from("pqr"))
    def count(self, place: int, pool: str) -> None:
        """Count those that are held; counting watches their beats."""
        process = self.processes[place]
        expected = len(self._held(process, pool))
        assert process.system.permits.held(pool) == expected

    def take(self, place: int, name: object) -> None:
        assert isinstance(name, tuple)
        self.acquire(place, name[0], "another", 2, 1)

    def _held(self, process: Process, pool: str) -> set[int]:
        own = [(name, row) for name, row in self.rows.items() if isinstance(name, tuple) and name[0] == pool]
        return {name[1] for name, row in own if row.token and process.sees_held(name, row)}

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        with self.processes[0].system.storage.table("sys_permits").scan() as rows:
            found = {
                (row["pool"], row["slot"]): Row(row["holder"], row["token"], row["beat"], row["ttl"])  # type: ignore[arg-type] # as the columns are
                for row in rows
            }
        assert found == self.rows


def test_leases_are_those_of_a_model(explore: Explore) -> None:
    explore(LeasesMachine)


def test_permits_are_those_of_a_model(explore: Explore) -> None:
    explore(PermitsMachine)
