"""The lists of recent writes: commits that use them miss no conflict, and report no false one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from structable.backends.hbase.thrift.connection import GatewayConnection
from structable.backends.hbase.thrift.requests import ThriftCall
from structable.backends.hbase.txn import prewrite as sending
from structable.backends.hbase.txn import recent_writes as recent
from structable.backends.hbase.txn.bulk import BulkCommitter
from structable.backends.hbase.txn.prewrite import PendingCommit
from structable.backends.ordered.codec.keys import ROW_MARK
from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import (
    DataCorruptionError,
    Field,
    Storage,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    connect,
)

from .support.internals import collect_garbage, drained, engine_of, hold_finaliser
from .support.shared import Place

_MANY = 40
_VAST = 5_000
_SPECIFICATION = TableSpecification("notes", [Field.int("id"), Field.long("kind")], ["id"])
_QUIET = "housekeeping=1000&session_timeout=1000"


@pytest.fixture
def url(hbase_url: str) -> str:
    return f"{hbase_url}?{_QUIET}"


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with connect(url) as storage:
        storage.admin.create(_SPECIFICATION)
        write(storage, range(_MANY + 10), 0)
        drained(storage)
        yield storage


@pytest.fixture
def other(storage: Storage, url: str) -> Iterator[Storage]:
    """Return a second storage with a session of its own, as another process has."""
    with connect(url) as other:
        assert other.table("notes").count() == _MANY + 10
        yield other


def upsert(transaction: Transaction, ids: range, kind: int) -> None:
    transaction.table("notes").upsert_many({"id": number, "kind": kind} for number in ids)


def write(storage: Storage, ids: range, kind: int) -> None:
    with storage.transaction() as transaction:
        upsert(transaction, ids, kind)


def kinds(storage: Storage) -> dict[Any, Any]:
    return {row["id"]: row["kind"] for row in storage.table("notes").scan()}


@pytest.fixture
def read_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of rows of each call that reads rows by their keys."""
    counts: list[int] = []
    post = GatewayConnection.post

    def counting(self: GatewayConnection, calls: Iterable[ThriftCall[object]]) -> None:
        listed = list(calls)
        for call in listed:
            if call.api.startswith("getRowsWithColumns"):
                asked = call.arguments["rows"]
                assert isinstance(asked, list)
                counts.append(len(asked))
        post(self, listed)

    monkeypatch.setattr(GatewayConnection, "post", counting)
    return counts


def test_nothing_is_read_back_without_other_writers(storage: Storage, other: Storage, read_rows: list[int]) -> None:
    """Neither the rows nor the marker of the schema are read back, except those written by another transaction."""
    transaction = storage.transaction()
    upsert(transaction, range(1_000, 1_000 + _MANY), 9)
    read_rows.clear()
    transaction.commit()
    assert read_rows == []

    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 1)
    write(other, range(_MANY, _MANY + 10), 2)
    read_rows.clear()
    transaction.commit()
    assert read_rows == []

    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 1)
    write(other, range(_MANY - 3, _MANY + 10), 2)
    # An intent that is met would add a look at the record of its transaction.
    drained(other)
    read_rows.clear()
    with pytest.raises(TransactionConflictError, match="another transaction wrote a row"):
        transaction.commit()
    assert read_rows == [3]


def test_the_order_of_calls(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """List and record, intents, timestamp, then the others' lists: only this order finds every other writer."""
    sent: list[tuple[str, str]] = []
    post = GatewayConnection.post

    def noting(self: GatewayConnection, calls: Iterable[ThriftCall[object]]) -> None:
        listed = list(calls)
        for call in listed:
            given = call.arguments
            batches = given.get("rowBatches")
            names = [batch.row for batch in batches] if isinstance(batches, list) else [given["row"]]
            is_ours = b"recent" in names
            sent.append((call.api, "list" if is_ours else str(given["tableName"]).rpartition("_")[2]))
        post(self, listed)

    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 1)
    hold_finaliser(monkeypatch)
    monkeypatch.setattr(GatewayConnection, "post", noting)
    transaction.commit()
    monkeypatch.undo()
    assert sent == [
        ("mutateRowsTs", "list"),
        ("mutateRowsTs", "00000001"),
        ("atomicIncrement", "tx"),
        ("getRowWithColumns", "list"),
        ("checkAndPut", "tx"),
    ]


@pytest.mark.parametrize("rows", [1, _MANY])
@pytest.mark.parametrize("same_process", [True, False])
def test_the_first_committer_wins(storage: Storage, other: Storage, rows: int, same_process: bool) -> None:
    """For small and large rivals, of this process or another; later ones are no conflict."""
    rival = storage if same_process else other
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 1)
    write(rival, range(rows), 2)
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    write(storage, range(_MANY), 3)
    write(rival, range(rows), 4)
    write(storage, range(1, _MANY), 5)
    assert kinds(other) == {number: 4 if not number else 5 if number < _MANY else 0 for number in range(_MANY + 10)}


@pytest.mark.parametrize("same_process", [True, False])
def test_a_rival_that_is_no_longer_listed(storage: Storage, other: Storage, same_process: bool) -> None:
    """A transaction older than the lists' oldest entries reads back all of its rows."""
    rival = storage if same_process else other
    transaction, harmless = storage.transaction(), storage.transaction()
    upsert(transaction, range(_MANY), 1)
    upsert(harmless, range(_MANY - 1), 1)
    write(rival, range(_MANY - 1, _MANY), 2)
    for _ in range(recent._MOST_ENDED + 1):
        write(rival, range(_MANY, _MANY + 1), 2)
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    harmless.commit()
    assert set(kinds(other).values()) == {0, 1, 2}


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("vast_first", [True, False])
def test_a_transaction_of_very_many_rows(
    storage: Storage, other: Storage, vast_first: bool, in_turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists the table that it writes: all of its rows count as written, and those of no other table.

    Beyond 20,000 rows, here fewer, it is sent in several flights.
    """
    if in_turns:
        monkeypatch.setattr(sending, "_CALLS_AT_ONCE", 2)
    storage.admin.create(TableSpecification("others", [Field.int("id")], ["id"]))
    assert other.table("others").count() == 0
    large, small, elsewhere = storage.transaction(), other.transaction(), other.transaction()
    upsert(large, range(_VAST), 1)
    upsert(small, range(_VAST - 1, _VAST + _MANY), 2)
    elsewhere.table("others").upsert_many({"id": number} for number in range(_MANY))
    first, second = (large, small) if vast_first else (small, large)
    first.commit()
    with pytest.raises(TransactionConflictError):
        second.commit()
    elsewhere.commit()
    found = kinds(storage)
    assert sum(kind == 1 for kind in found.values()) == (_VAST if vast_first else 0)
    assert sum(kind == 2 for kind in found.values()) == (0 if vast_first else _MANY + 1)
    assert storage.table("others").count() == _MANY


def test_rows_with_one_hash(storage: Storage, other: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that share a hash are still distinguished: only a row that was really written is a conflict."""
    monkeypatch.setattr(recent, "row_hash", lambda place: place[1][-1] % 2)
    transaction, unlucky = storage.transaction(), storage.transaction()
    upsert(transaction, range(_MANY), 1)
    upsert(unlucky, range(_MANY + 1), 3)
    write(other, range(_MANY, _MANY + 10), 2)
    transaction.commit()
    with pytest.raises(TransactionConflictError):
        unlucky.commit()
    assert sorted(kinds(storage).values()) == [1] * _MANY + [2] * 10


def test_a_job_goes_before_a_large_transaction(storage: Storage, other: Storage) -> None:
    types = pa.schema([("id", pa.int32()), ("kind", pa.int64())])
    job = other.begin_write("notes", mode="upsert", job_id="job")
    staged = other.stage(job, 0, 0, [pa.RecordBatch.from_pylist([{"id": _MANY - 1, "kind": 7}], types)])
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 1)
    other.commit_write(job, [staged])
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    assert sorted(kinds(storage).values()) == [0] * (_MANY + 9) + [7]


def test_a_job_that_was_aborted_looks_again_whatever_it_read(
    storage: Storage, other: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes submit one job: the one that lost its locks reads the rows that the other has committed."""
    types = pa.schema([("id", pa.int32()), ("kind", pa.int64())])
    rows = [pa.RecordBatch.from_pylist([{"id": _MANY * 9, "kind": 7}], types)]
    name: dict[str, Any] = {"mode": "insert", "job_id": "job"}
    jobs = [(one, one.begin_write("notes", **name)) for one in (storage, other)]
    staged = [one.stage(job, 0, 0, rows) for one, job in jobs]
    lock = BulkCommitter.lock

    def late(self: BulkCommitter, pending: PendingCommit, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        if keys[0][SPACE_BYTES:].startswith(ROW_MARK):  # the job's record was read before
            monkeypatch.undo()
            self._status_table.abort(pending.txid)
            other.commit_write(jobs[1][1], staged[1:])
        return lock(self, pending, keys)

    monkeypatch.setattr(BulkCommitter, "lock", late)
    assert not storage.commit_write(jobs[0][1], staged[:1]).applied


def test_jobs_and_schema_changes_list_their_end_at_once(storage: Storage, other: Storage, read_rows: list[int]) -> None:
    """While a job or change is open, every writer of its table checks it; so its end is listed at once."""
    fields = [*_SPECIFICATION.fields, Field.long("size")]
    types = pa.schema([("id", pa.int32()), ("kind", pa.int64())])
    job = other.begin_write("notes", mode="upsert", job_id="job")
    staged = other.stage(job, 0, 0, [pa.RecordBatch.from_pylist([{"id": 0, "kind": 7}], types)])
    ends: list[Callable[[], object]] = [
        lambda: other.commit_write(job, [staged]),
        lambda: other.admin.create_or_update(TableSpecification("notes", fields, ["id"])),
    ]
    for end in ends:
        end()
        assert storage.table("notes").read((0,))
        transaction = storage.transaction()
        upsert(transaction, range(_MANY), 1)
        read_rows.clear()
        transaction.commit()
        assert read_rows == []


def test_a_change_of_the_schema(storage: Storage, other: Storage) -> None:
    """A large transaction that began before it is refused, on whichever side the change was made."""
    fields = list(_SPECIFICATION.fields)
    for changer, column in ((other, "size"), (storage, "weight")):
        transaction = storage.transaction()
        upsert(transaction, range(_MANY), 1)
        fields.append(Field.long(column))
        changer.admin.create_or_update(TableSpecification("notes", fields, ["id"]))
        with pytest.raises(TransactionConflictError, match="schema"):
            transaction.commit()
    assert set(kinds(other).values()) == {0}


def lists(place: Place, prefix: str) -> dict[bytes, bytes]:
    with closing(place.connection()) as connection:
        return dict(connection.table(f"{prefix}_tx").row(b"recent"))


def test_lists_of_ended_processes_go(storage: Storage, hbase_server: Place, hbase_prefix: str, hbase_url: str) -> None:
    """A closed process's list is short, and is removed after the last record of the process."""
    with connect(f"{hbase_url}?session_timeout=2&late_writes=0&housekeeping=1000") as cleaning:
        with connect(f"{hbase_url}?{_QUIET}") as closed:
            write(closed, range(_MANY), 1)
            session = engine_of(closed).transactions.session.id
            column = b"c:r" + session
            assert len(lists(hbase_server, hbase_prefix)[column]) > 4 * _MANY
        assert len(lists(hbase_server, hbase_prefix)[column]) == 8
        while column in lists(hbase_server, hbase_prefix):
            collect_garbage(cleaning)
            engine_of(storage).transactions.session.heartbeat()
        assert not any(
            txid.startswith(session) for txid, _ in engine_of(cleaning).transactions.context.status_table.all()
        )
        assert list(lists(hbase_server, hbase_prefix)) == [b"c:r" + engine_of(storage).transactions.session.id]
    write(storage, range(_MANY), 2)
    assert set(kinds(storage).values()) == {0, 2}


def test_a_list_stays_as_long_as_a_record(
    storage: Storage, hbase_server: Place, hbase_prefix: str, hbase_url: str
) -> None:
    """A process may still have a snapshot older than the list's entries."""
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 2)
    with connect(f"{hbase_url}?session_timeout=1&late_writes=600&housekeeping=1000") as cleaning:
        with connect(f"{hbase_url}?{_QUIET}") as closed:
            write(closed, range(_MANY - 1, _MANY), 1)
            session = engine_of(closed).transactions.session.id
        with closing(hbase_server.connection()) as connection:
            table = connection.table(f"{hbase_prefix}_tx")
            while table.row(b"g" + session):
                collect_garbage(cleaning)
                engine_of(storage).transactions.session.heartbeat()
        for _ in range(2):
            engine_of(storage).transactions.session.heartbeat()
            collect_garbage(cleaning)
        assert b"c:r" + session in lists(hbase_server, hbase_prefix)
        with pytest.raises(TransactionConflictError, match="another transaction wrote a row"):
            transaction.commit()


def test_a_list_put_while_its_predecessor_is_removed_stays(
    storage: Storage, other: Storage, hbase_server: Place, hbase_prefix: str
) -> None:
    """Its process was declared dead and is alive."""
    column = b"c:r" + engine_of(other).transactions.session.id
    write(other, range(_MANY), 1)
    with closing(hbase_server.connection()) as connection:
        _, at = connection.table(f"{hbase_prefix}_tx").row(b"recent", include_timestamp=True)[column]
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 2)
    write(other, range(_MANY), 3)
    engine_of(storage).janitor.remove_lists([(column, at)])
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    engine_of(storage).janitor.remove_lists([(column, at + 1)])
    assert column not in lists(hbase_server, hbase_prefix)
    write(other, range(_MANY), 4)
    assert column in lists(hbase_server, hbase_prefix)


def test_a_commit_that_is_interrupted_leaves_nothing_open(
    storage: Storage, other: Storage, monkeypatch: pytest.MonkeyPatch, read_rows: list[int]
) -> None:
    """Even if the wait for its abort is interrupted, too: its list bounds its possible commit timestamps."""
    engine = engine_of(other)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine.transactions.committer.decision, "commit", interrupt)
        patch.setattr(engine.transactions.committer.decision, "abort_or_get_commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(other, range(_VAST), 1)
    session = engine.transactions.session
    assert not any(isinstance(holder, bytes) for holder in session.holders), "a transaction is still held"
    session.heartbeat()
    transaction = storage.transaction()
    upsert(transaction, range(10_000, 10_000 + _MANY), 2)
    read_rows.clear()
    transaction.commit()
    assert read_rows == []


def test_open_transactions_of_many_rows_make_no_long_list(storage: Storage) -> None:
    """Entries that do not fit are replaced by the names of their tables."""
    writes = recent.RecentWrites(engine_of(storage).layout, b"sessions")
    sizes = []
    for number in range(100):
        digest = recent.Digest(frozenset([b"\0\0\0\1"]), tuple(range(3_900)))
        call = writes.enter(b"%016d" % number, digest)
        batches: Any = call.arguments["rowBatches"]
        sizes.append(len(batches[0].mutations[0].value))
    assert sizes == sorted(sizes)
    assert 60_000 < sizes[-1] < 70_000


def test_lists_that_were_deleted_by_hand(
    storage: Storage, other: Storage, hbase_server: Place, hbase_prefix: str
) -> None:
    """HBase hides puts after a deletion of the whole row: then all rows are read back."""
    write(other, range(_MANY), 1)
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 2)
    write(other, range(_MANY), 3)
    with closing(hbase_server.connection()) as connection:
        connection.table(f"{hbase_prefix}_tx").delete(b"recent")
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    write(storage, range(_MANY), 4)
    transaction = storage.transaction()
    upsert(transaction, range(_MANY), 5)
    write(other, range(_MANY), 6)
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    assert sorted(kinds(storage).values()) == [0] * 10 + [6] * _MANY


def test_a_list_that_is_not_readable(storage: Storage, hbase_server: Place, hbase_prefix: str) -> None:
    with closing(hbase_server.connection()) as connection:
        connection.table(f"{hbase_prefix}_tx").put(b"recent", {b"c:rsomebody": b"?"})
        with pytest.raises(DataCorruptionError, match="a list of recent writes is not structable's"):
            write(storage, range(_MANY), 1)
        connection.table(f"{hbase_prefix}_tx").delete(b"recent", [b"c:rsomebody"])
    write(storage, range(_MANY), 1)


def test_idle_processes_list_the_end_of_their_transactions(
    storage: Storage, other: Storage, read_rows: list[int]
) -> None:
    """A heartbeat lists ended transactions as ended: then no commit reads those rows back any more."""
    for has_beaten, expected in ((False, [_MANY]), (True, [])):
        write(other, range(_MANY), 1)
        if has_beaten:
            engine_of(other).transactions.session.heartbeat()
        transaction = storage.transaction()
        upsert(transaction, range(_MANY), 2)
        # An intent that is met would add a look at the record of its transaction.
        drained(other)
        read_rows.clear()
        transaction.commit()
        assert read_rows == expected
