"""Gateways and servers that are killed, and regions that are split, under load: nothing acknowledged is lost."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    Field,
    Isolation,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionConflictError,
    connect,
)
from tests.servers.availability import unavailable

from .support import jars
from .support.bank import open_bank, quick, require_sound, transfer
from .support.internals import collect_garbage, drained
from .support.server import Server

_ACCOUNTS = 8
_THREADS = 3
_ROWS = 10_000
_ITEMS = TableSpecification("items", [Field.int("k"), Field.long("n")], ["k"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start a server that the tests of this module stop and kill."""
    lack = jars.missing()
    if lack is not None:
        unavailable(f"a server to stop and kill needs {lack}")
    with Server.create() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"test{uuid.uuid4().hex[:16]}"


@pytest.fixture
def url(server: Server, prefix: str) -> str:
    # A restart takes some seconds, in which no session may be declared dead.
    return quick(server.url(prefix), session_timeout=120, lease=2)


@dataclass(slots=True)
class Load:
    """Transfers, and how each ended."""

    done: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    made: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    errors: list[BaseException] = field(default_factory=list)

    def await_some(self) -> None:
        """Wait until some more are acknowledged."""
        for _ in range(20):
            assert self.made.acquire(timeout=120), f"no transfer succeeds any more; {self.errors}"

    def require_true(self, found: set[str]) -> None:
        assert not self.errors
        assert self.done <= found
        assert not self.refused & found
        assert found <= self.done | self.unknown


@contextmanager
def transfers(storage: Storage) -> Iterator[Load]:
    """Make transfers in threads for as long as the block lasts."""
    load, stop = Load(), threading.Event()

    def work(worker: int) -> None:
        chance = random.Random(worker)
        try:
            for number in itertools.count():
                if stop.is_set():
                    return
                name = f"{worker}-{number}"
                source, target = chance.sample(range(_ACCOUNTS), 2)
                try:
                    with storage.transaction(chance.choice(list(Isolation))) as transaction:
                        transfer(transaction, name, source, target, chance.randint(1, 3))
                except CommitOutcomeUnknownError:
                    load.unknown.add(name)
                except (TransactionConflictError, StorageUnavailableError):
                    load.refused.add(name)
                else:
                    load.done.add(name)
                    load.made.release()
        except BaseException as error:
            load.errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def tables(server: Server, prefix: str) -> list[str]:
    with closing(server.gateway.connection()) as connection:
        return [name.decode() for name in connection.tables() if name.startswith(prefix.encode())]


def regions(server: Server, table: str) -> int:
    with closing(server.gateway.connection()) as connection:
        return len(connection.table(table).regions())


@pytest.mark.parametrize("what", ["gateway", "hbase"])
def test_killed_under_load(server: Server, url: str, what: str) -> None:
    """A gateway, or HBase itself, is killed and started again: every transfer ended as it was reported."""
    with connect(url) as storage:
        open_bank(storage, _ACCOUNTS)
        with transfers(storage) as load:
            load.await_some()
            done = set(load.done)
            if what == "gateway":
                server.kill_gateway()
                server.gateway.start()
            else:
                server.kill()
                server.start()
            assert done <= require_sound(storage, _ACCOUNTS)
            load.await_some()
            require_sound(storage, _ACCOUNTS)
        load.require_true(require_sound(storage, _ACCOUNTS))
        drained(storage)
        while (report := collect_garbage(storage)).pending or report.unfinalised:
            pass
        load.require_true(require_sound(storage, _ACCOUNTS))
    with connect(url) as storage:
        load.require_true(require_sound(storage, _ACCOUNTS))


@contextmanager
def rewriting(storage: Storage) -> Iterator[Callable[[], int]]:
    """Change rows all over the table during the block; the result is the number of changes."""
    stop = threading.Event()
    times = 0

    def work() -> None:
        nonlocal times
        chance = random.Random(1)
        while not stop.is_set():
            chosen = [{"k": chance.randrange(_ROWS), "n": times + 1} for _ in range(20)]
            try:
                storage.table("items").upsert_many(chosen)
                storage.table("items").delete((chance.randrange(_ROWS),))
            except (StorageUnavailableError, TransactionConflictError, CommitOutcomeUnknownError):
                continue
            times += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: times
    finally:
        stop.set()
        thread.join()


def fill(storage: Storage) -> None:
    storage.admin.create(_ITEMS)
    storage.table("items").upsert_many({"k": number, "n": 0} for number in range(_ROWS))
    drained(storage)


def rewritten_since(times: Callable[[], int], before: int) -> None:
    end = threading.Event()
    for _ in range(12_000):
        if times() > before:
            return
        end.wait(0.01)
    raise AssertionError("nothing is written any more")


def test_connecting_while_hbase_is_away_and_starts(server: Server, url: str) -> None:
    """It is refused with one kind of error, again and again, until it succeeds; the prefix is whole then."""

    def attempt() -> Storage | None:
        try:
            return connect(url, timeout=2)
        except StorageUnavailableError as error:
            refusals.append(str(error))
            return None

    refusals: list[str] = []
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        try:
            assert attempt() is None
            assert "HBase may be down or starting" in refusals[0]
        finally:
            starting = pool.submit(server.start)
        while (storage := attempt()) is None:
            assert "\n" not in refusals[-1]
            if starting.done():
                starting.result()  # raises the reason of its failure
        storage.close()
        with connect(url) as storage:  # which waits longer than two seconds for each answer
            open_bank(storage, _ACCOUNTS)
            assert require_sound(storage, _ACCOUNTS) == set()
            assert storage.admin.list() == ["accounts", "ledger"]
        starting.result()


def test_gateway_killed_in_a_scan(server: Server, url: str) -> None:
    """A scan under way sees exactly its snapshot, over the end of the gateway and concurrent writes."""
    with connect(url) as storage:
        fill(storage)
        with storage.transaction(read_only=True) as transaction:
            rows = transaction.table("items").scan()
            # Its first row takes the snapshot.
            found = [(row["k"], row["n"]) for row in itertools.islice(rows, 1)]
            with rewriting(storage) as times:
                found += [(row["k"], row["n"]) for row in itertools.islice(rows, 99)]
                rewritten_since(times, times())
                server.kill_gateway()
                server.gateway.start()
                rewritten_since(times, times())
                found += [(row["k"], row["n"]) for row in rows]
            assert found == [(number, 0) for number in range(_ROWS)]
            assert transaction.table("items").count() == _ROWS


def test_regions_split_under_load(server: Server, url: str, prefix: str) -> None:
    """Tables are split under transfers, the one of transactions as well."""
    with connect(url) as storage:
        open_bank(storage, _ACCOUNTS)
        with transfers(storage) as load:
            load.await_some()
            server.split(f"{prefix}_tx", b"s\x08")
            for table in tables(server, prefix):
                if not table.endswith("_tx"):
                    server.split(table)
                require_sound(storage, _ACCOUNTS)
                load.await_some()
        assert all(regions(server, table) >= 2 for table in tables(server, prefix))
        load.require_true(require_sound(storage, _ACCOUNTS))


def test_regions_split_in_a_scan_and_a_job(server: Server, prefix: str) -> None:
    """A scan sees its snapshot, and a job writes every row once, while their table is split."""
    # No process dies, and a busy machine may take long.
    with connect(quick(server.url(prefix), session_timeout=120, lease=60)) as storage:
        fill(storage)
        (table,) = (name for name in tables(server, prefix) if name[-8:].isdigit())
        types = pa.schema([("k", pa.int32()), ("n", pa.int64())])
        batch = pa.RecordBatch.from_pydict({"k": list(range(_ROWS)), "n": [5] * _ROWS}, types)
        job = storage.begin_write("items", mode="upsert", job_id="job")
        staged = [storage.stage(job, 0, 0, [batch])]
        with storage.transaction(read_only=True) as transaction, storage.plan_scan("items", splits=4) as plan:
            rows = transaction.table("items").scan()
            found = [(row["k"], row["n"]) for row in itertools.islice(rows, 100)]
            committing = threading.Thread(target=storage.commit_write, args=(job, staged))
            committing.start()
            server.split(table)
            found += [(row["k"], row["n"]) for row in rows]
            committing.join()
            assert found == [(number, 0) for number in range(_ROWS)]
            planned = [n for split in plan.splits for part in storage.read_split(split) for n in part["n"].to_pylist()]
            assert planned == [0] * _ROWS
        assert regions(server, table) == 2
        assert [(row["k"], row["n"]) for row in storage.table("items").scan()] == [(n, 5) for n in range(_ROWS)]
