"""Processes on one store: the rules of transactions hold between them, and kill -9 of one harms no other."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from structable.spi import (
    Field,
    Isolation,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
    connect,
)

from .bank import check_books, open_bank
from .case import ConformanceCase, OpenSession
from .clients import StoreProcess
from .concurrency import insist
from .samples import ITEMS, NOTED, item, keys, plain
from .worker import BLIND_WRITES

WIDER = TableSpecification("noted", [*NOTED.fields, Field.int("added")], ["id"], ["note"])


class StartClient(Protocol):
    """Starts a process on the store under test."""

    def __call__(self, command: str, *arguments: object) -> StoreProcess: ...


class ProcessCases(ConformanceCase):
    """Rules between processes, which need the capability `multi_process`."""

    @pytest.fixture
    def start(self, storage_url: str) -> Iterator[StartClient]:
        """Start other processes on the store; the remaining ones are killed afterwards."""
        self.require("multi_process")
        clients: list[StoreProcess] = []

        def start_client(command: str, *arguments: object) -> StoreProcess:
            clients.append(StoreProcess(storage_url, command, *arguments))
            return clients[-1]

        yield start_client
        for client in clients:
            client.close()

    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_bank_in_processes(self, start: StartClient, storage: Storage, isolation: Isolation) -> None:
        """In every snapshot of transfers by several processes the sum is the same and the index matches."""
        open_bank(storage)
        clients = [start("transfer_money", isolation, 1000 * number, self.stress_rounds) for number in range(2)]
        for client in clients:
            assert client.next() == 0
        for _ in range(10):
            storage.run(check_books, isolation=isolation, read_only=True, max_attempts=1000)
        for client in clients:
            assert len(client.rest()) == self.stress_rounds - 1
        assert storage.run(check_books, read_only=True) == 2 * 2 * self.stress_rounds

    def test_counters_in_processes(self, start: StartClient, storage: Storage) -> None:
        """Increments from several processes are all counted."""
        storage.admin.create(ITEMS)
        clients = [start("count", "items", self.stress_rounds) for _ in range(2)]
        for _ in range(self.stress_rounds):
            insist(lambda: storage.table("items").increment((1,), "n"))
        for client in clients:
            assert client.rest() == [self.stress_rounds]
        assert storage.table("items").read((1,)) == item(1, n=3 * self.stress_rounds)

    def test_processes_that_create_one_table(self, start: StartClient, storage: Storage) -> None:
        """One of several processes that create a table at once wins; the others get `TableAlreadyExistsError`."""
        clients = [start("create", ITEMS) for _ in range(3)]
        for client in clients:
            assert client.next() == "ready"
        for client in clients:
            client.send("go")
        assert sorted(client.next() for client in clients) == [False, False, True]
        storage.table("items").upsert({"id": 1, "tag": "a"})
        assert keys(storage.table("items").scan_index("tag", "a")) == [(1,)]

    def test_conflicts_between_processes(self, start: StartClient, storage: Storage) -> None:
        """Snapshots and conflicts are the same between processes as within one."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        other = start("obey")
        assert other.next() == "ready"
        transaction = storage.transaction()
        assert plain(transaction.table("items").scan()) == [item(1, n=1)]
        other.ask("upsert", "items", {"id": 1, "n": 2})
        assert plain(transaction.table("items").scan()) == [item(1, n=1)]
        assert other.ask("rows", "items") == plain(storage.table("items").scan()) == [item(1, n=2)]

        def write() -> None:
            with transaction:
                transaction.table("items").upsert({"id": 1, "n": 3})

        with pytest.raises(TransactionConflictError):
            write()
        storage.table("items").upsert({"id": 1, "n": 4})
        assert other.ask("rows", "items") == [item(1, n=4)]

    def test_schema_change_is_seen_by_other_processes(self, start: StartClient, storage: Storage) -> None:
        """A transaction that begins after an admin call uses the new schema, in every process, without a restart."""
        storage.admin.create(NOTED)
        other = start("obey")
        assert other.next() == "ready"
        other.ask("upsert", "noted", {"id": "a", "note": "x"})
        storage.admin.create_or_update(WIDER)
        assert other.ask("describe", "noted") == WIDER
        other.ask("upsert", "noted", {"id": "b", "note": "x", "added": 1})
        assert keys(storage.table("noted").scan_index("note", "x")) == [("a",), ("b",)]
        wider = TableSpecification("noted", [*NOTED.fields, Field.long("added")], ["id"], ["note"])
        other.ask("change", wider)
        storage.table("noted").upsert({"id": "c", "added": 2**40})
        assert storage.admin.get_specification("noted") == wider
        assert [row["added"] for row in other.ask("rows", "noted")] == [None, 1, 2**40]
        other.ask("drop", "noted")
        with pytest.raises(TableNotFoundError):
            storage.table("noted").count()
        storage.admin.create(ITEMS)
        assert other.ask("rows", "items") == []
        storage.admin.create(NOTED)
        assert other.ask("rows", "noted") == []

    def test_others_go_on_when_one_closes(self, start: StartClient, storage_url: str) -> None:
        """A process that closes its storage leaves the others undisturbed, whichever connected first."""
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
            other = start("obey")
            assert other.next() == "ready"
            other.ask("upsert", "items", {"id": 1})
        other.ask("upsert", "items", {"id": 2})
        with connect(storage_url) as storage:
            storage.table("items").upsert({"id": 3})
            assert other.ask("rows", "items") == [item(1), item(2), item(3)]
            other.kill()
            assert plain(storage.table("items").scan()) == [item(1), item(2), item(3)]
            storage.table("items").upsert({"id": 4})

    def test_kill_loses_no_acknowledged_commit(self, start: StartClient, storage_url: str) -> None:
        """Kill -9 of any client loses no acknowledged commit and leaves no half one; the others continue."""
        self.require("durable_after_kill")
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
        chance = random.Random(1)
        acknowledged: list[int] = []
        clients = [start("write_pairs", "items", worker) for worker in range(3)]
        for client in clients:
            acknowledged.append(client.next())
        for worker in range(3, 7):
            time.sleep(chance.random() * 0.3)
            victim = clients.pop(chance.randrange(3))
            victim.kill()
            acknowledged += victim.rest()
            for client in clients:
                acknowledged += client.so_far()
            clients.append(start("write_pairs", "items", worker))
            acknowledged += [client.next() for client in clients]
        for client in clients:
            client.kill()
            acknowledged += client.rest()
        with connect(storage_url) as storage, storage.transaction(read_only=True) as transaction:
            table = transaction.table("items")
            found = [row["id"] for row in table.scan()]
            rows = {int(str(number)) for number in found}
            assert {first + offset for first in acknowledged for offset in (0, 1)} <= rows
            assert {number ^ 1 for number in rows} == rows, "a transaction came through by half"
            tagged = [row["id"] for worker in range(7) for row in table.scan_index("tag", f"worker {worker}")]
            assert tagged == found

    def test_killed_submitters_of_the_same_jobs(self, start: StartClient, storage: Storage) -> None:
        """Jobs that several processes submit at once, any of which is killed at any point, count once and whole."""
        self.require("durable_after_kill")
        storage.admin.create(ITEMS)
        chance, jobs, rows = random.Random(2), 8, 500
        command = ("submit", ["id", "batch"] if self.capabilities.streams else ["id"], jobs, rows)
        clients = [start(*command) for _ in range(2)]
        results: list[int | None] = []
        for _ in range(3):
            results += [clients[0].next() for _ in range(chance.randrange(1, 4))]
            time.sleep(chance.random() * 0.05)
            clients[0].kill()
            results += clients.pop(0).rest()
            clients.append(start(*command))
        for client in clients:
            results += client.rest()
        applied = [number for number in results if number is not None]
        assert len(applied) == len(set(applied))
        found = keys(storage.table("items").scan())
        assert found == [(rows * number + place,) for number in range(jobs) for place in range(rows)]
        tagged = [keys(storage.table("items").scan_index("tag", f"{number}")) for number in range(jobs)]
        assert list(itertools.chain(*tagged)) == found

    def test_killed_writer_is_in_nobodys_way(self, start: StartClient, storage: Storage) -> None:
        """Uncommitted writes of a killed process are gone, and others can write its rows."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        writer = start("hold_open", "items", {"id": 1, "n": 2, "tag": "lost"})
        assert writer.next() == "written"
        writer.kill()
        assert plain(storage.table("items").scan()) == [item(1, n=1)]
        storage.run(lambda transaction: transaction.table("items").upsert({"id": 1, "n": 3}), max_attempts=1000)
        assert plain(storage.table("items").scan()) == [item(1, n=3)]
        assert keys(storage.table("items").scan_index("tag", "lost")) == []

    def test_overlapping_writers_of_two_processes(
        self, start: StartClient, storage: Storage, session: OpenSession
    ) -> None:
        """If transactions of two processes write one row, the first to commit wins."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        one = session()
        one.read("items", (1,))
        other = start("hold_open", "items", {"id": 1, "n": 2})
        assert other.next() == "written"
        one.step(lambda transaction: transaction.table("items").upsert({"id": 1, "n": 3}))
        other.send("commit")
        assert other.next() is True
        assert not one.commit()
        assert plain(storage.table("items").scan()) == [item(1, n=2)]

    @pytest.mark.parametrize("kind", list(BLIND_WRITES))
    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_blind_write_of_another_process_counts_from_the_first_operation(
        self, start: StartClient, storage: Storage, kind: str, isolation: Isolation
    ) -> None:
        """Commits after a transaction's first write conflict with it, in whichever processes the two are."""
        storage.admin.create(NOTED)
        table = storage.table("noted")
        table.upsert_many([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        other = start("write_blindly", kind, isolation)
        assert other.next() == "written"
        table.upsert({"id": "b", "n": 5})
        other.send("commit")
        assert other.next() is False
        assert plain(table.scan(columns=["id", "n"])) == [{"id": "a", "n": 1}, {"id": "b", "n": 5}]
        other = start("write_blindly", kind, isolation)
        assert other.next() == "written"
        table.upsert({"id": "c", "n": 5})
        other.send("commit")
        assert other.next() is True

    @pytest.mark.parametrize("indexes", [[], ["note"]], ids=["plain", "indexed"])
    def test_read_after_a_blind_write_of_another_process(
        self, start: StartClient, storage: Storage, indexes: list[str]
    ) -> None:
        """A transaction whose first operation is a write never reads later commits."""
        storage.admin.create(TableSpecification("noted", NOTED.fields, ["id"], indexes))
        table = storage.table("noted")
        table.upsert_many([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        for changed, known in (("b", 1), ("c", 5)):
            other = start("write_blindly", "upsert", Isolation.SNAPSHOT)
            assert other.next() == "written"
            table.upsert({"id": changed, "n": 5})
            other.send("read")
            found = other.next()
            if changed == "c":
                assert found is not None, "a read value was never written"
            if found is not None:
                assert found["n"] == known
                other.send("commit")
                assert other.next() is (changed == "c")


class ForkCases(ConformanceCase):
    """A process forked from another must connect again."""

    @pytest.fixture
    def forkable(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of ITEMS with row 1, used once, so that connections and caches exist."""
        if not hasattr(os, "fork"):
            pytest.skip("this platform has no fork")
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1})
        return storage.table("items")

    def in_a_fork(self, action: Callable[[], object]) -> object:
        """Run an action in a forked child, and return its result or the name of its error."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process that has threads
            child = os.fork()
        if child == 0:  # pragma: no cover - the child reports through the pipe
            try:
                result = action()
            except BaseException as error:
                result = type(error).__name__
            os.write(writing, pickle.dumps(result))
            os._exit(0)
        os.close(writing)
        try:
            ready, _, _ = select.select([reading], [], [], 30.0)
            assert ready, "the forked child hangs"
            return pickle.loads(os.read(reading, 1 << 20))
        finally:
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_inherited_storage_is_refused(self, storage: Storage, forkable: StructuredTable) -> None:
        """Use of an inherited storage raises `StorageUnavailableError`; the parent is not disturbed."""
        uses: list[Callable[[], object]] = [
            lambda: forkable.read((1,)),
            lambda: forkable.upsert({"id": 2}),
            lambda: list(forkable.scan()),
            lambda: storage.table("items").count(),
            lambda: storage.transaction().table("items").count(),
            lambda: storage.run(lambda transaction: transaction.table("items").count()),
            storage.admin.list,
            lambda: storage.admin.create(NOTED),
            lambda: storage.begin_write("items", mode="upsert", job_id="job"),
        ]
        refusals = [self.in_a_fork(use) for use in uses]
        assert refusals == [StorageUnavailableError.__name__] * len(uses)
        assert self.in_a_fork(lambda: storage.closed) is True
        assert not storage.closed
        assert keys(forkable.scan()) == [(1,)]
        forkable.upsert({"id": 3})
        assert storage.admin.list() == ["items"]

    def test_child_that_closes_does_not_close_for_its_parent(self, storage: Storage, forkable: StructuredTable) -> None:
        """A forked child may close inherited objects: that frees nothing of its parent's."""
        transaction = storage.transaction()
        transaction.table("items").upsert({"id": 2})
        assert self.in_a_fork(storage.close) is None
        assert keys(forkable.scan()) == [(1,)]
        transaction.commit()
        assert keys(forkable.scan()) == [(1,), (2,)]

    def test_inherited_transaction_is_left_to_the_parent(self, storage: Storage, forkable: StructuredTable) -> None:
        """Actions of a forked child on a transaction or scan of its parent have no effect in the parent."""
        transaction = storage.transaction()
        table = transaction.table("items")
        table.upsert({"id": 2})
        scan = table.scan()

        def commit() -> None:
            table.upsert({"id": 3})
            table.read((2,))
            transaction.commit()

        self.in_a_fork(commit)
        self.in_a_fork(lambda: (scan.close(), transaction.rollback()))
        assert keys(scan) == [(1,), (2,)]
        transaction.commit()
        assert keys(forkable.scan()) == [(1,), (2,)]

    def test_inherited_shared_snapshot_is_left_to_the_parent(self, storage: Storage, forkable: StructuredTable) -> None:
        """A forked child plans nothing at a shared snapshot of its parent, and closing it frees nothing there."""
        self.require("shared_snapshots")
        with storage.share_snapshot() as shared, shared.plan_scan("items") as plan:
            forkable.upsert({"id": 2})
            assert self.in_a_fork(lambda: shared.plan_scan("items")) == StorageUnavailableError.__name__
            for inherited in (plan, shared):
                assert self.in_a_fork(inherited.close) is None
            with shared.plan_scan("items") as again:
                for one in (plan, again):
                    rows = [
                        row for split in one.splits for found in storage.read_split(split) for row in found.to_pylist()
                    ]
                    assert [row["id"] for row in rows] == [1]

    def test_child_connects_anew(self, storage: Storage, storage_url: str, forkable: StructuredTable) -> None:
        """A forked process that connects again works like any other."""
        self.require("multi_process")

        def connect_anew() -> object:
            with connect(storage_url) as own:
                own.table("items").upsert({"id": 2})
                return keys(own.table("items").scan())

        assert self.in_a_fork(connect_anew) == [(1,), (2,)]
        assert keys(forkable.scan()) == [(1,), (2,)]
