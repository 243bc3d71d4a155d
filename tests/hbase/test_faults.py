"""Faults between client and gateway: the outcome that a commit reports is true, then and later."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from structable.backends.hbase.failpoints import failpoints
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

from .support.bank import OPENING, account, balances, open_bank, quick, require_sound, transfer
from .support.internals import collect_garbage, drained, engine_of, hold_finaliser
from .support.proxy import Fault, Proxy

_ACCOUNTS = 4
_MANY = 60
_BY_ITSELF = {"housekeeping": 1000, "session_timeout": 1000}
"""Options of a client without background work: its requests can be counted."""


@pytest.fixture
def direct(hbase_url: str) -> Iterator[Storage]:
    """Connect past the proxy."""
    with connect(quick(hbase_url, housekeeping=1000)) as storage:
        open_bank(storage, _ACCOUNTS)
        yield storage


@pytest.fixture
def storage(hbase_url: str, proxy: Proxy, direct: Storage) -> Iterator[Storage]:
    with connect(proxy.url(quick(hbase_url, **_BY_ITSELF, timeout=5, lease=60))) as storage:
        require_sound(storage, _ACCOUNTS)
        yield storage


def attempt(storage: Storage, name: str, isolation: Isolation) -> bool | None:
    """Make a transfer; return whether it was committed, or None if that is unknown."""
    try:
        with storage.transaction(isolation) as transaction:
            transfer(transaction, name, 0, 1, 1)
    except CommitOutcomeUnknownError:
        return None
    except (TransactionConflictError, StorageUnavailableError):
        return False
    return True


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize(
    ("fault", "late"),
    [*((fault, "afterwards") for fault in Fault), (Fault.LATE, "meanwhile"), (Fault.TWICE, "meanwhile")],
)
def test_fault_at_each_request(
    storage: Storage, direct: Storage, proxy: Proxy, fault: Fault, isolation: Isolation, late: str
) -> None:
    """The outcome that a transfer reports is true, at once and for good, for every fault at every request."""
    done: set[str] = set()
    seen: list[str] = []
    for number in itertools.count(1):
        name = f"t{number}"
        trap = proxy.trap(number, fault)
        release = threading.Timer(0.05, trap.release)
        if late == "meanwhile":
            release.start()
        outcome = attempt(storage, name, isolation)
        assert outcome is not None, f"its outcome could have been learned: {name} ended, after {trap.api}"
        if outcome:
            done.add(name)
        assert require_sound(direct, _ACCOUNTS) == done, (number, trap.api)
        drained(storage)
        release.cancel()
        trap.release()
        assert require_sound(direct, _ACCOUNTS) == done, (number, trap.api)
        if not trap.sprung:
            break
        seen.append(trap.api)
        assert attempt(storage, f"{name}-again", isolation), (number, trap.api)
        done.add(f"{name}-again")
        drained(storage)
    # The clock; reads; record, intents of two tables, timestamp, read-backs, decision; two tables' rows, and the end.
    assert [api for api in seen if "get" not in api] == [
        *["mutateRowsTs"] * 3,
        "atomicIncrement",
        "checkAndPut",
        *["mutateRowsTs"] * 2,
        "mutateRows",
    ]
    assert len(engine_of(storage).transactions.session.holders) == 0
    # No record or intent is left over.
    while (report := collect_garbage(direct)).safe < report.clock:
        engine_of(storage).transactions.session.heartbeat()
    while report.pending or report.unfinalised or report.aborted or report.finalised:
        report = collect_garbage(direct)
    assert require_sound(direct, _ACCOUNTS) == done


@pytest.mark.parametrize("late", ["afterwards", "meanwhile"])
@pytest.mark.parametrize("fault", Fault)
def test_fault_at_each_request_of_a_large_commit(
    storage: Storage, direct: Storage, proxy: Proxy, fault: Fault, late: str
) -> None:
    """The same for a commit that uses the lists of recent writes: all its rows are there, or none."""
    direct.admin.create(TableSpecification("many", [Field.int("id"), Field.int("written")], ["id"]))
    engine_of(direct).transactions.session.heartbeat()  # so that its list has no open transaction

    def write(number: int) -> bool | None:
        try:
            with storage.transaction() as transaction:
                transaction.table("many").upsert_many({"id": key, "written": number} for key in range(_MANY))
        except CommitOutcomeUnknownError:
            return None
        except (TransactionConflictError, StorageUnavailableError):
            return False
        return True

    def written() -> int:
        found = [int(str(row["written"])) for row in direct.table("many").scan()]
        assert found == found[:1] * _MANY
        return found[0]

    assert write(0)
    drained(storage)
    last = 0
    seen: list[str] = []
    for number in itertools.count(1):
        trap = proxy.trap(number, fault)
        release = threading.Timer(0.05, trap.release)
        if late == "meanwhile":
            release.start()
        outcome = write(2 * number)
        assert outcome is not None, f"its outcome could have been learned: {number} ended, after {trap.api}"
        if outcome:
            last = 2 * number
        assert written() == last, (number, trap.api)
        drained(storage)
        release.cancel()
        trap.release()
        assert written() == last, (number, trap.api)
        if not trap.sprung:
            break
        seen.append(trap.api)
        assert write(2 * number + 1), (number, trap.api)
        last = 2 * number + 1
        drained(storage)
    # The clock; record, intents, timestamp, lists, decision; the values, and the end.
    assert [api for api in seen if api != "getRowWithColumns"] == [
        *["mutateRowsTs"] * 2,
        "atomicIncrement",
        "checkAndPut",
        "mutateRowsTs",
        "mutateRows",
    ]
    assert len(engine_of(storage).transactions.session.holders) == 0
    while (report := collect_garbage(direct)).safe < report.clock:
        engine_of(storage).transactions.session.heartbeat()
    while report.pending or report.unfinalised or report.aborted or report.finalised:
        report = collect_garbage(direct)
    assert written() == last


@pytest.mark.parametrize("fault", [Fault.NEVER_SENT, Fault.NO_REPLY, Fault.LATE])
def test_outcome_that_cannot_be_learned(hbase_url: str, direct: Storage, proxy: Proxy, fault: Fault) -> None:
    """A commit whose outcome no gateway can tell raises an error of its own; the store is sound and continues."""
    options = {**_BY_ITSELF, "timeout": 1, "pool_size": 2, "read_back_rows": 0}
    with connect(proxy.url(quick(hbase_url, **options))) as storage:
        require_sound(storage, _ACCOUNTS)
        assert attempt(storage, "first", Isolation.SNAPSHOT)
        drained(storage)
        # The commit has one connection only: over a second one it could look up the outcome.
        pool = engine_of(storage).gateway.pool
        held = pool.acquire()
        older = storage.transaction()
        transfer(older, "older", 0, 1, 1)
        transaction = storage.transaction()
        transfer(transaction, "lost", 0, 1, 1)
        proxy.refuse()
        engine_of(direct).transactions.session.heartbeat()  # so that its list has no open transaction
        trap = proxy.trap(6, fault)
        with pytest.raises(CommitOutcomeUnknownError):
            transaction.commit()
        assert trap.api == "checkAndPut"
        pool.release(held)
        proxy.accept()
        trap.release()
        found = require_sound(direct, _ACCOUNTS)
        assert found == ({"first"} if fault is Fault.NEVER_SENT else {"first", "lost"})
        if "lost" in found:
            with pytest.raises(TransactionConflictError):
                older.commit()
        else:
            older.rollback()
        direct.run(lambda other: transfer(other, "next", 0, 1, 1), max_attempts=1_000)
        assert require_sound(direct, _ACCOUNTS) == {*found, "next"}
        assert attempt(storage, "last", Isolation.SNAPSHOT)
        assert len(engine_of(storage).transactions.session.holders) <= 1


def test_no_connection_leaks(hbase_url: str, direct: Storage, proxy: Proxy) -> None:
    """After many losses at random points the bank is sound, and every open connection is in the pool and works."""
    with connect(proxy.url(quick(hbase_url, pool_size=6, session_timeout=60))) as storage:
        stop = threading.Event()

        def work(worker: int) -> tuple[set[str], set[str]]:
            done: set[str] = set()
            refused: set[str] = set()
            number = 0
            while not stop.is_set() or not done:
                number += 1
                outcome = attempt(storage, f"{worker}-{number}", Isolation.SERIALIZABLE)
                if outcome is not None:
                    (done if outcome else refused).add(f"{worker}-{number}")
            return done, refused

        with ThreadPoolExecutor(3) as pool:
            workers = [pool.submit(work, worker) for worker in range(3)]
            for _ in range(30):
                proxy.cut_all()
                require_sound(direct, _ACCOUNTS)
            stop.set()
            ended = [worker.result() for worker in workers]
        found = require_sound(direct, _ACCOUNTS)
        assert set().union(*(done for done, _ in ended)) <= found
        assert not set().union(*(refused for _, refused in ended)) & found
        drained(storage)
        open_at_once = [iter(storage.table("accounts").scan()) for _ in range(4)]
        assert [int(str(next(rows)["id"])) for rows in open_at_once] == [0] * 4
        assert [len(list(rows)) for rows in open_at_once] == [_ACCOUNTS - 1] * 4
        del open_at_once
        proxy.wait_until_open(6)
        assert len(engine_of(storage).transactions.session.holders) == 0
    proxy.wait_until_open(0)
    while (report := collect_garbage(direct)).pending or report.unfinalised or report.aborted or report.finalised:
        require_sound(direct, _ACCOUNTS)
    assert require_sound(direct, _ACCOUNTS) == found


def test_closing_without_a_gateway(
    hbase_url: str, direct: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage with an unfinalised commit can be closed although its gateway is gone."""
    with connect(proxy.url(quick(hbase_url, timeout=3_600))) as storage:
        with monkeypatch.context() as held:
            hold_finaliser(held)
            assert attempt(storage, "last", Isolation.SNAPSHOT)
        proxy.refuse()
        proxy.cut_all()
    assert not [thread for thread in threading.enumerate() if thread.name == "structable-leaving"]
    proxy.accept()
    direct.run(lambda transaction: transfer(transaction, "next", 0, 1, 1))
    while (report := collect_garbage(direct)).unfinalised or report.finalised:
        assert require_sound(direct, _ACCOUNTS) == {"last", "next"}


@pytest.mark.parametrize(("fault", "step"), [(fault, 1 if fault is Fault.NO_REPLY else 3) for fault in Fault])
def test_fault_at_each_request_of_a_job(
    storage: Storage, direct: Storage, proxy: Proxy, fault: Fault, step: int
) -> None:
    """A write job is committed whole or not at all, as it reports; if not, a second call commits it."""
    types = pa.schema([("id", pa.int32()), ("balance", pa.int64()), ("band", pa.int64())])
    before = OPENING
    for number in itertools.count(1, step):
        rows = [account(one, OPENING + number) for one in range(_ACCOUNTS)]
        job = storage.begin_write("accounts", mode="upsert", job_id=f"job{number}")
        staged = [storage.stage(job, 0, 0, [pa.RecordBatch.from_pylist(rows, types)])]
        trap = proxy.trap(number, fault)
        found = None
        try:
            storage.commit_write(job, staged)
            found = OPENING + number
        except CommitOutcomeUnknownError as error:
            raise AssertionError(f"its outcome could have been learned: {number}, {trap.api}, ended") from error
        except (TransactionConflictError, StorageUnavailableError):
            found = before
        with direct.transaction(read_only=True) as transaction:
            assert set(balances(transaction).values()) == {found}, (number, trap.api)
        trap.release()
        with direct.transaction(read_only=True) as transaction:
            assert set(balances(transaction).values()) == {found}, (number, trap.api)
        storage.commit_write(job, staged)
        before = OPENING + number
        with direct.transaction(read_only=True) as transaction:
            assert set(balances(transaction).values()) == {before}, (number, trap.api)
            band = list(transaction.table("accounts").scan_index("band", before % 4))
            assert len(band) == _ACCOUNTS, (number, trap.api)
        if not trap.sprung:
            break
    assert number > 10
    drained(storage)
    assert len(engine_of(storage).transactions.session.holders) == 0


def test_nothing_can_be_changed(hbase_url: str, direct: Storage, proxy: Proxy) -> None:
    """While HBase refuses writes, commits and the transactions that meet their intents fail in the end."""
    with connect(proxy.url(quick(hbase_url, **_BY_ITSELF, timeout=1, lease=60))) as storage:
        require_sound(storage, _ACCOUNTS)
        transaction = storage.transaction()
        transfer(transaction, "lost", 0, 1, 1)

        def deny() -> None:
            proxy.denied = "checkAndPut"

        failpoints["before_commit"] = deny
        try:
            with pytest.raises(CommitOutcomeUnknownError):
                transaction.commit()
            with pytest.raises(StorageUnavailableError), storage.transaction(read_only=True) as reader:
                balances(reader)  # which must push the pending one
            with pytest.raises(StorageUnavailableError), storage.transaction() as writer:
                writer.table("accounts").upsert(account(0, 1))
        finally:
            failpoints.clear()
            proxy.denied = ""
        assert require_sound(direct, _ACCOUNTS) == set()
        direct.run(lambda other: transfer(other, "next", 0, 1, 1), max_attempts=1_000)
        assert require_sound(storage, _ACCOUNTS) == {"next"}
        assert attempt(storage, "last", Isolation.SERIALIZABLE)
