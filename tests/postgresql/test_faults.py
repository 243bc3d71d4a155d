"""Faults of the server and of connections: the reported outcome is true, and the pool recovers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    Field,
    Isolation,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    connect,
)
from structable.spi.arrow import rows_to_batches
from tests.waiting import until

from .support.proxy import ANYTHING, COMMIT, Cut, Proxy, statement
from .support.server import Server
from .support.shared import Schema

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n"), Field.string("s")], ["k"])
INDEXED = TableSpecification("t", [*TABLE.fields, Field.int("added")], ["k"], ["s"])


@pytest.fixture
def direct(postgresql_url: str) -> Iterator[Storage]:
    """Connect past the proxy."""
    with connect(postgresql_url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many([{"k": number, "n": 0} for number in range(5)])
        yield storage


@pytest.fixture
def storage(postgresql_url: str, proxy: Proxy, direct: Storage) -> Iterator[Storage]:
    with connect(proxy.url(postgresql_url)) as storage:
        assert storage.table("t").count() == 5
        yield storage


def processes(schema: Schema, name: str) -> int:
    """Return how many server processes serve connections of an application name."""
    with psycopg.connect(schema.conninfo) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where application_name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def waiting(schema: Schema, name: str) -> bool:
    """Tell whether a connection of an application name waits for a lock."""
    with psycopg.connect(schema.conninfo) as connection:
        query = "select true from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
        return connection.execute(query, [name]).fetchone() is not None


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize(("cut", "done"), [(Cut.BEFORE, False), (Cut.AFTER, True)])
def test_connection_lost_around_the_commit(
    storage: Storage, direct: Storage, proxy: Proxy, isolation: Isolation, cut: Cut, done: bool
) -> None:
    """A commit whose answer was lost is looked up: it returns if it happened, and says that it did not otherwise."""
    transaction = storage.transaction(isolation)
    transaction.table("t").upsert({"k": 1, "n": 1})
    transaction.table("t").read((2,))
    trap = proxy.trap(COMMIT, cut)
    if done:
        transaction.commit()
    else:
        with pytest.raises(StorageUnavailableError):
            transaction.commit()
    trap.wait()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == int(done)
    storage.table("t").upsert({"k": 1, "n": 7})


def test_commit_that_cannot_be_looked_up(
    storage: Storage, direct: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not answer, the outcome is unknown, and `run` does not retry."""
    from structable.backends.postgresql.driver import commit_outcome as outcome

    monkeypatch.setattr(outcome.was_committed, "__kwdefaults__", {"seconds": 0.5})
    times = 0

    def body(transaction: object) -> None:
        nonlocal times
        times += 1
        transaction.table("t").increment((1,), "n")  # type: ignore[attr-defined]
        proxy.trap(COMMIT, Cut.AFTER)
        proxy.refuse()

    with pytest.raises(CommitOutcomeUnknownError):
        storage.run(body)
    assert times == 1
    proxy.accept()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 1
    assert storage.table("t").count() == 5


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("place", [r"^begin", r"^select", r"^(update|with|insert)", r"^commit"])
def test_run_counts_once(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, place: str) -> None:
    """`run` with the connection lost at any place increments exactly once."""
    trap = proxy.trap(statement(place), cut)
    storage.run(lambda tx: tx.table("t").increment((1,), "n"))
    trap.wait()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 1


@pytest.mark.parametrize("cut", Cut)
def test_auto_commit_view_goes_on(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut) -> None:
    """Single calls of the view survive a lost connection."""
    calls: list[Callable[[], object]] = [
        lambda: storage.table("t").read((1,)),
        lambda: storage.table("t").count(),
        lambda: list(storage.table("t").scan()),
        lambda: storage.table("t").upsert({"k": 1, "n": 5}),
    ]
    for call in calls:
        trap = proxy.trap(ANYTHING, cut)
        call()
        trap.wait()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 5


WRITES: dict[str, tuple[Callable[[StructuredTable], object], int | None]] = {
    "increment": (lambda table: table.increment((1,), "n"), 1),
    "update": (lambda table: table.update({"k": 1, "n": 5}), 5),
    "upsert": (lambda table: table.upsert({"k": 1, "n": 5}), 5),
    "delete": (lambda table: table.delete((1,)), None),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("place", [r"^begin", r"^select", r"^(update|with|insert|delete)", r"^commit"])
def test_auto_commit_write_is_done_once(
    storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, place: str, name: str
) -> None:
    """A write of the view whose connection is lost at any place is done, an increment once."""
    write, expected = WRITES[name]
    trap = proxy.trap(statement(place), cut)
    write(storage.table("t"))
    trap.wait()
    row = direct.table("t").read((1,))
    assert (None if row is None else row["n"]) == expected


def test_connection_lost_in_a_transaction(storage: Storage, proxy: Proxy) -> None:
    """A transaction whose connection was lost can only be left; the next one works."""
    transaction = storage.transaction()
    assert transaction.table("t").count() == 5
    proxy.cut_all()
    with pytest.raises(StorageUnavailableError):
        transaction.table("t").count()
    with pytest.raises(StorageUnavailableError):
        transaction.commit()
    assert storage.table("t").count() == 5


def test_connection_lost_in_a_scan(storage: Storage, proxy: Proxy) -> None:
    """A scan never goes on with another snapshot, and never ends early: it fails."""
    storage.run(lambda tx: tx.table("t").upsert_many({"k": number, "s": "x" * 500} for number in range(5_000)))
    rows = storage.table("t").scan()
    next(rows)
    proxy.cut_all()
    with pytest.raises(StorageUnavailableError):
        list(rows)
    assert storage.table("t").count() == 5_000


def test_killed_server_process(postgresql_schema: Schema, direct: Storage) -> None:
    """`pg_terminate_backend` of everything: idle connections are replaced unseen, busy ones fail, none leaks."""
    name = f"killed {postgresql_schema.name[-8:]}"
    with connect(postgresql_schema.url, application_name=name) as storage:
        open_transactions = [storage.transaction() for _ in range(5)]
        for transaction in open_transactions:
            transaction.table("t").count()
        for transaction in open_transactions[2:]:
            transaction.rollback()
        with psycopg.connect(postgresql_schema.conninfo) as killer:
            killer.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = %s", [name]
            )
        for transaction in open_transactions[:2]:
            with pytest.raises(StorageUnavailableError):
                transaction.table("t").count()
            transaction.rollback()
        assert storage.table("t").read((1,)) is not None
        assert storage.run(lambda tx: tx.table("t").count()) == 5
        assert processes(postgresql_schema, name) <= 2
    until(lambda: processes(postgresql_schema, name) == 0)


def test_interrupted_commit(direct: Storage, postgresql_schema: Schema) -> None:
    """It may still succeed, so the transaction is over; its connection is not lent to others."""
    name = f"interrupted {postgresql_schema.name[-8:]}"
    with connect(postgresql_schema.url, application_name=name, pool_size=1) as storage, direct.transaction() as holder:
        transaction = storage.transaction()
        assert transaction.table("t").read((1,)) is not None
        transaction.table("t").upsert({"k": 1, "n": 2})
        holder.table("t").upsert({"k": 1, "n": 1})
        assert holder.table("t").count() == 5  # it holds the row from here on
        with interrupted_once(lambda: waiting(postgresql_schema, name)), pytest.raises(KeyboardInterrupt):
            transaction.commit()
        assert transaction.closed
        with pytest.raises(TransactionClosedError):
            transaction.commit()
        assert storage.table("t").count() == 5
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 1


@contextmanager
def interrupted_once(condition: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, as by Ctrl-C, once a condition is met."""

    def interrupt() -> None:
        try:
            until(condition)
        finally:  # otherwise the interrupted call would not end
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_no_connection_leaks(postgresql_schema: Schema, proxy: Proxy, direct: Storage) -> None:
    """After many losses at random points all open connections are in the pool, and work."""
    with connect(proxy.url(postgresql_schema.url), pool_size=4, pool_timeout=5.0) as storage:
        stop = threading.Event()

        def work(worker: int) -> int:
            done = 0
            while not stop.is_set():
                try:
                    storage.run(lambda tx: tx.table("t").increment((worker,), "n"), max_attempts=50)
                    list(storage.table("t").scan())
                    done += 1
                except (StorageUnavailableError, CommitOutcomeUnknownError):
                    continue
            return done

        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(work, worker) for worker in range(4)]
            end = time.monotonic() + 3
            while time.monotonic() < end:
                proxy.cut_all()
                time.sleep(0.05)
            stop.set()
            assert all(worker.result() for worker in workers)
        open_at_once = [storage.transaction() for _ in range(4)]
        for transaction in open_at_once:
            assert transaction.table("t").count() == 5
        for transaction in open_at_once:
            transaction.rollback()
        assert proxy.open <= 4
    proxy.wait_until_open(0)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize(
    "place", [r"^select pg_try", r"^lock table", r"concurrently", r"^alter", r"^update", r"^commit"]
)
def test_admin_call_tells_the_truth(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, place: str) -> None:
    """An admin call whose connection was lost has changed the table if it returns, and nothing if it raises."""
    trap = proxy.trap(statement(place), cut)
    try:
        storage.admin.create_or_update(INDEXED)
    except StorageUnavailableError:
        assert direct.admin.get_specification("t") == TABLE
    else:
        assert direct.admin.get_specification("t") == INDEXED
    trap.wait()
    assert direct.table("t").count() == 5
    direct.admin.create_or_update(INDEXED)
    assert len(list(storage.table("t").scan_index("s", None))) == 5


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("call", ["create", "drop"])
def test_create_and_drop_tell_the_truth(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, call: str) -> None:
    """So do `create` and `drop`, at the commit."""
    other = TableSpecification("u", [Field.int("k")], ["k"], [])
    proxy.trap(COMMIT, cut)
    try:
        storage.admin.create(other) if call == "create" else storage.admin.drop("t")
    except StorageUnavailableError:
        assert direct.admin.list() == ["t"]
    else:
        assert direct.admin.list() == (["t", "u"] if call == "create" else [])


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("how", ["restart", "immediate", "kill"])
def test_server_ends_under_load(postgresql_server: Server, how: str, single: bool) -> None:
    """Increments of many threads during a restart or crash of the server: every reported outcome is true."""
    server = postgresql_server
    with connect(server.url("structable")) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many([{"k": number, "n": 0} for number in range(16)])
        stop = threading.Event()
        started = threading.Barrier(17)

        def work(worker: int) -> tuple[int, list[str]]:
            sure, unknown = 0, []
            started.wait()
            while not stop.is_set():
                try:
                    if single:
                        storage.table("t").increment((worker,), "n")
                    else:
                        with storage.transaction() as transaction:
                            transaction.table("t").increment((worker,), "n")
                    sure += 1
                except CommitOutcomeUnknownError as error:
                    unknown.append(str(error))
                except (StorageUnavailableError, TransactionConflictError):
                    pass
            return sure, unknown

        with ThreadPoolExecutor(16) as pool:
            workers = [pool.submit(work, worker) for worker in range(16)]
            started.wait()
            try:
                for _ in range(3):
                    time.sleep(0.3)  # some load
                    if how == "kill":
                        server.kill()
                    else:
                        server.stop("fast" if how == "restart" else how)
                    server.start()
                    assert storage.table("t").count() == 16
            finally:
                stop.set()
            results = [worker.result() for worker in workers]
        for worker, (sure, unknown) in enumerate(results):
            row = storage.table("t").read((worker,))
            assert row is not None
            assert sure <= int(str(row["n"])) <= sure + len(unknown), (worker, sure, unknown, row)
        assert sum(sure for sure, _ in results) > 0
        # Receipts tell, after any kind of crash; the first commit of a connection has none.
        assert not any("receipt" in error for _, unknown in results for error in unknown)


@pytest.mark.parametrize("call", ["create", "commit_write"])
def test_lost_answer_over_the_only_connection(postgresql_schema: Schema, call: str) -> None:
    """A lost commit is looked up although its connection was the only one that the pool may have."""
    url = postgresql_schema.url
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(url), pool_size=1, pool_timeout=0.1) as storage:
        storage.admin.create(TABLE)
        job = storage.begin_write(TABLE.name, mode="upsert", job_id="job")
        staged = storage.stage(job, 0, 0, rows_to_batches(TABLE, [{"k": 1, "n": 1}]))
        trap = proxy.trap(COMMIT, Cut.AFTER)
        if call == "create":
            storage.admin.create(TABLE.evolve(name="other"))
        else:
            assert storage.commit_write(job, [staged])
        trap.wait()
