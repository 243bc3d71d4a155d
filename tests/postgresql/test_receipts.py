"""Commits of single calls: one round trip, with a receipt by which a lost answer is looked up."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from structable.backends.postgresql.driver.commit_outcome import ask_until_known
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.txn.receipts import Receipts
from structable.spi import (
    CommitOutcomeUnknownError,
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    Storage,
    StructableError,
    TableSpecification,
    Transaction,
    Value,
    connect,
)
from structable.spi.authors import MAX_ROW_SIZE, RowMove
from tests.waiting import until

from .support.fixtures import StartServer
from .support.proxy import COMMIT, Cut, Message, Pooler, Proxy, statement
from .support.shared import Schema
from .support.waiting_commits import process_that_waits

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n"), Field.string("s")], ["k"])
SUMS = TableSpecification(
    "sums",
    TABLE.fields[:2],
    ["k"],
    options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)
LOG = TableSpecification("log", TABLE.fields[:2], [], options={"write-mode": "change-log"})
RECEIPTS = "_structable_receipts"
WARM_UP = 2
"""Commits of a connection until they have receipts."""

Write = Callable[[Storage], object]


@pytest.fixture
def direct(postgresql_url: str) -> Iterator[Storage]:
    """Connect past the proxy."""
    with connect(postgresql_url) as storage:
        for spec in (TABLE, SUMS, LOG):
            storage.admin.create(spec)
        storage.table("t").upsert_many([{"k": number, "n": 0} for number in range(5)])
        yield storage


def warm_up(storage: Storage) -> None:
    for name in ("t", "sums"):
        for _ in range(WARM_UP):
            storage.table(name).upsert({"k": 9, "n": 1})
    storage.table("log").insert_many([])
    for write, _ in WRITES.values():
        write(storage)  # the connection prepares its statement
    storage.run(reset)


def reset(transaction: Transaction) -> None:
    table = transaction.table
    for name in ("t", "sums"):
        for row in list(table(name).scan()):
            table(name).delete(row.key)
    table("t").upsert_many([{"k": number, "n": 0} for number in range(5)])
    table("log").apply_changes([(RowKind.DELETE, row) for row in list(table("log").scan())])


@pytest.fixture
def storage(postgresql_url: str, proxy: Proxy, direct: Storage) -> Iterator[Storage]:
    with connect(proxy.url(postgresql_url)) as storage:
        warm_up(storage)
        yield storage


def values(storage: Storage) -> list[Value]:
    return [row["n"] for name in ("t", "sums", "log") for row in storage.table(name).scan()]


def move(storage: Storage) -> None:
    """Give the row 2 the key 8, if its number is 0."""
    expected = ("n", 0, RecordNotFoundError("t", (2,)))
    storage.table("t")._move(RowMove([(2,)], [{"k": 8, "n": 5, "s": None}], ("n",), expected))


WRITES: dict[str, tuple[Write, list[int]]] = {
    "move": (move, [0, 0, 0, 0, 5]),
    "upsert": (lambda storage: storage.table("t").upsert({"k": 1, "n": 5}), [0, 5, 0, 0, 0]),
    "replace": (lambda storage: storage.table("t").replace({"k": 1, "n": 5}), [0, 5, 0, 0, 0]),
    "insert": (lambda storage: storage.table("t").insert({"k": 7, "n": 5}), [0, 0, 0, 0, 0, 5]),
    "update": (lambda storage: storage.table("t").update({"k": 1, "n": 5}), [0, 5, 0, 0, 0]),
    "delete": (lambda storage: storage.table("t").delete((1,)), [0, 0, 0, 0]),
    "increment": (lambda storage: storage.table("t").increment((1,), "n", 2), [0, 2, 0, 0, 0]),
    "upsert_many": (
        lambda storage: storage.table("t").upsert_many([{"k": key, "n": 5} for key in range(4)]),
        [5, 5, 5, 5, 0],
    ),
    "increment_many": (
        lambda storage: storage.table("t").increment_many([((key,), "n", 2) for key in range(5)]),
        [2, 2, 2, 2, 2],
    ),
    "delete_many": (lambda storage: storage.table("t").delete_many([(key,) for key in range(4)]), [0]),
    "apply_changes": (
        lambda storage: storage.table("t").apply_changes(
            [(RowKind.UPDATE_AFTER, {"k": 0, "n": 5}), (RowKind.DELETE, {"k": 1})]
        ),
        [5, 0, 0, 0],
    ),
    "merge": (lambda storage: storage.table("sums").upsert({"k": 1, "n": 5}), [0, 0, 0, 0, 0, 5]),
    "merges": (
        lambda storage: storage.table("sums").upsert_many([{"k": key, "n": 5} for key in (1, 2, 1)]),
        [0, 0, 0, 0, 0, 10, 5],
    ),
    "append": (lambda storage: storage.table("log").insert_many([{"k": 1, "n": 5}]), [0, 0, 0, 0, 0, 5]),
}


def receipts(schema: Schema) -> int:
    with psycopg.connect(schema.conninfo) as connection:
        row = connection.execute(f'select count(*) from "{schema.name}".{RECEIPTS}').fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("name", WRITES)
def test_one_round_trip(storage: Storage, proxy: Proxy, name: str) -> None:
    """A write of the auto-commit view that depends on nothing read is one round trip."""
    write, expected = WRITES[name]
    assert proxy.trips_of(lambda: write(storage)) == 1
    assert values(storage) == expected


def test_update_of_a_missing_row(storage: Storage, proxy: Proxy) -> None:
    """An update that finds no row raises, and writes nothing; with a default it inserts the row."""

    def update() -> None:
        with pytest.raises(RecordNotFoundError):
            storage.table("t").update({"k": 7, "n": 5})

    # The second try looks from a snapshot; the first one of a commit that deletes old receipts has one already.
    assert max(proxy.trips_of(update) for _ in range(2)) == 2
    assert storage.table("t").read((7,)) is None
    storage.table("t").update({"k": 7, "n": 5}, default={"s": "new"})
    assert storage.table("t").read((7,)) == {"k": 7, "n": 5, "s": "new"}


def test_refusals_of_the_server(storage: Storage) -> None:
    """A row that gets too large, or a number that overflows, is the same error as with two round trips."""
    table = storage.table("t")
    table.upsert({"k": 1, "n": 2**63 - 1, "s": "x" * (5 << 20)})
    table.upsert({"k": 6, "s": "x" * (MAX_ROW_SIZE - 8)})
    with pytest.raises(FieldSizeLimitError):
        table.update({"k": 6, "n": 1})
    with pytest.raises(InvalidFieldError):
        table.increment((1,), "n")
    table.update({"k": 3, "n": 1})
    assert table.read((3,), ["n"]) == {"k": 3, "n": 1}


@pytest.mark.parametrize("first", [{"k": 2, "n": 7}, {"k": 2}, None], ids=["other value", "null", "no row"])
def test_move_of_another_row(storage: Storage, proxy: Proxy, first: dict[str, Value] | None) -> None:
    """Without the expected value the error is the given one, and nothing is written."""
    storage.table("t").delete((2,))
    if first is not None:
        storage.table("t").upsert(first)

    def fail() -> None:
        with pytest.raises(RecordNotFoundError):
            move(storage)

    before = values(storage)
    assert proxy.trips_of(fail) <= 2  # the second from a snapshot
    assert values(storage) == before


def test_move_of_a_row_that_becomes_too_large(storage: Storage) -> None:
    """The limit holds for the whole row, of which a move writes a part."""
    table = storage.table("t")
    text = "x" * (MAX_ROW_SIZE - 4)
    table.upsert({"k": 2, "n": None, "s": text})
    with pytest.raises(FieldSizeLimitError):
        table._move(RowMove([(2,)], [{"k": 8, "n": 1, "s": text}], ("n",), ("k", 2, RecordNotFoundError("t", (2,)))))
    assert [row.key for row in table.scan(columns=["k"])] == [(0,), (1,), (2,), (3,), (4,)]


PLACES = {
    "begin": r"^begin",
    "receipt": r"_structable_receipts",
    "write": r"^(update|with|insert into (?!.*receipts)|delete from (?!.*receipts))",
    "commit": r"^commit",
}
ALONE = ["upsert", "update", "increment", "merge"]
"""Writes whose statement is a transaction of its own."""


def END(message: Message) -> bool:
    """Take the end of a batch of messages, which commits a statement that is a transaction of its own."""
    return message.kind == b"S"


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, PLACES[place]) for name in ("upsert_many", "merges", "append") for place in PLACES]
    + [(name, place) for name in [*ALONE, "insert", "move"] for place in (PLACES["write"], "")],
)
@pytest.mark.parametrize("cut", Cut)
def test_connection_lost_in_the_round_trip(
    storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, place: str, name: str
) -> None:
    """Wherever the connection is lost, the write is done once."""
    write, expected = WRITES[name]
    trap = proxy.trap(statement(place) if place else END, cut)
    write(storage)
    trap.wait()
    assert values(direct) == expected


@pytest.mark.parametrize("cut", Cut)
def test_missing_row_and_lost_answer(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut) -> None:
    """An update whose answer was lost, and which found no row, still raises."""
    trap = proxy.trap(COMMIT, cut)
    with pytest.raises(RecordNotFoundError):
        storage.table("t").update({"k": 7, "n": 5})
    trap.wait()
    assert direct.table("t").read((7,)) is None


def test_outcome_that_cannot_be_looked_up(
    storage: Storage, direct: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not answer, the outcome is unknown, and the write is not repeated."""
    monkeypatch.setattr("structable.backends.postgresql.driver.commit_outcome._SECONDS", 0.5)
    trap = proxy.trap(END, Cut.AFTER)
    proxy.refuse()
    with pytest.raises(CommitOutcomeUnknownError):
        storage.table("t").increment((1,), "n")
    trap.wait()
    proxy.accept()
    assert values(direct) == [0, 1, 0, 0, 0]
    storage.table("t").increment((1,), "n")
    assert values(direct) == [0, 2, 0, 0, 0]


def test_receipt_that_is_too_old(storage: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit sent so long ago that its receipt may have been deleted is of unknown outcome."""
    monkeypatch.setattr("structable.backends.postgresql.txn.receipts._KNOWN_FOR", -1.0)
    proxy.trap(END, Cut.AFTER)
    with pytest.raises(CommitOutcomeUnknownError):
        storage.table("t").increment((1,), "n")


OTHERS = {
    "changes": ("update {} set n = 70 where k = 1", 70),
    "makes again": ("with gone as (delete from {} where k = 1) select; insert into {} (k, n) values (1, 70)", 70),
    "deletes": ("delete from {} where k = 1", None),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("other", OTHERS)
def test_write_that_waits_for_another(storage: Storage, postgresql_schema: Schema, other: str, name: str) -> None:
    """A statement that waits for another transaction on its row takes effect after that one."""
    table = "sums" if name == "merge" else "t"
    storage.table(table).upsert({"k": 1, "n": 3})
    write, (sql, left) = WRITES[name][0], OTHERS[other]
    failures: list[Exception] = []

    def work() -> None:
        try:
            write(storage)
        except RecordNotFoundError as error:
            failures.append(error)

    with (
        psycopg.connect(postgresql_schema.conninfo) as holder,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as watch,
    ):
        for one in sql.replace("{}", f'"{postgresql_schema.name}".{table}').split("; "):
            holder.execute(one)
        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: _waits_for(watch, holder))
        holder.commit()
        thread.join()
    added = {"increment": 2, "merge": 5}.get(name)
    expected = 5 if added is None else (left or 0) + added
    if name == "update" and left is None:
        assert len(failures) == 1
        assert storage.table(table).read((1,)) is None
    else:
        assert not failures
        assert storage.table(table).read((1,), ["n"]) == {"k": 1, "n": expected}


@pytest.mark.parametrize("made", [0, 70])
def test_move_that_waits_for_another(storage: Storage, postgresql_schema: Schema, made: int) -> None:
    """It takes effect on the row that the other transaction makes, if that has the expected value."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            move(storage)
        except RecordNotFoundError as error:
            failures.append(error)

    with (
        psycopg.connect(postgresql_schema.conninfo) as holder,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as watch,
    ):
        table = f'"{postgresql_schema.name}".t'
        holder.execute(f"delete from {table} where k = 2")
        holder.execute(f"insert into {table} (k, n) values (2, {made})")
        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: _waits_for(watch, holder))
        holder.commit()
        thread.join()
    assert len(failures) == (1 if made else 0)
    assert values(storage) == ([0, 0, made, 0, 0] if made else [0, 0, 0, 0, 5])


@pytest.mark.parametrize("other", ["insert into {} (k, n) values (7, 70)", "delete from {} where k = 7"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_insert_that_waits_for_another(storage: Storage, postgresql_schema: Schema, other: str, ends: str) -> None:
    """It finds the key taken if that is so when the other transaction has ended."""
    table = storage.table("t")
    if "delete" in other:
        table.insert({"k": 7, "n": 3})
    failures: list[Exception] = []

    def work() -> None:
        try:
            table.insert({"k": 7, "n": 5})
        except RecordExistsError as error:
            failures.append(error)

    with (
        psycopg.connect(postgresql_schema.conninfo) as holder,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as watch,
    ):
        holder.execute(other.replace("{}", f'"{postgresql_schema.name}".t').encode())
        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: _waits_for(watch, holder))
        getattr(holder, ends)()
        thread.join()
    is_taken = ("insert" in other) == (ends == "commit")
    assert len(failures) == is_taken
    left = (70 if "insert" in other else 3) if is_taken else 5
    assert table.read((7,), ["n"]) == {"k": 7, "n": left}


def _waits_for(watch: psycopg.Connection, holder: psycopg.Connection) -> bool:
    row = watch.execute(
        "select exists (select from pg_stat_activity where %s = any(pg_blocking_pids(pid)))", [holder.info.backend_pid]
    ).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.parametrize("name", ALONE)
def test_commit_that_the_server_refuses(storage: Storage, postgresql_schema: Schema, name: str) -> None:
    """A failure after the statement, as it is committed, is a failure: nothing is written, and the next write works."""
    table = "sums" if name == "merge" else "t"
    storage.table(table).upsert({"k": 1, "n": 3})
    schema = f'"{postgresql_schema.name}"'
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(
            f"create function {schema}.refuse() returns trigger language plpgsql as "
            "$$ begin raise exception 'not today' using errcode = '22003'; end $$"
        )
        connection.execute(
            f"create constraint trigger late after insert or update on {schema}.{table} "
            f"deferrable initially deferred for each row execute function {schema}.refuse()"
        )
        with pytest.raises(StructableError, match="not today"):
            WRITES[name][0](storage)
        assert storage.table(table).read((1,), ["n"]) == {"k": 1, "n": 3}
        connection.execute(f"drop trigger late on {schema}.{table}")
    WRITES[name][0](storage)
    assert storage.table(table).read((1,), ["n"]) != {"k": 1, "n": 3}


@pytest.mark.parametrize("pooled", [False, True])
def test_write_that_still_waits_when_it_is_looked_up(
    postgresql_url: str, postgresql_schema: Schema, direct: Storage, pooled: bool
) -> None:
    """A transaction whose client is gone, and which waits for another one, is ended: it must not commit later.

    A pooler tells its clients numbers of processes that the server does not have.
    """
    with (
        (Pooler if pooled else Proxy)(postgresql_schema.conninfo) as proxy,
        connect(f"{proxy.url(postgresql_url)}&application_name=waiting") as storage,
        psycopg.connect(postgresql_schema.conninfo) as holder,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as watch,
    ):
        warm_up(storage)
        holder.execute(f'insert into "{postgresql_schema.name}".sums (k, n) values (9, 1)')

        def waiting() -> int:
            row = watch.execute(
                "select count(*) from pg_stat_activity where application_name = 'waiting' and wait_event_type = 'Lock'"
            ).fetchone()
            assert row is not None
            return int(row[0])

        thread = threading.Thread(target=lambda: storage.table("sums").upsert({"k": 9, "n": 5}))
        thread.start()
        until(lambda: waiting() == 1)
        first = process_that_waits(watch)
        proxy.cut_all()
        until(lambda: waiting() == 1 and process_that_waits(watch) != first)
        holder.rollback()
        thread.join()
        assert direct.table("sums").read((9,)) == {"k": 9, "n": 5}


def test_receipts_do_not_gather(storage: Storage, direct: Storage, postgresql_schema: Schema) -> None:
    """A connection deletes its older receipts."""
    for _ in range(100):
        storage.table("t").increment((1,), "n")
    assert receipts(postgresql_schema) <= 20
    assert values(direct) == [0, 100, 0, 0, 0]


def test_receipts_of_lost_connections_go(storage: Storage, postgresql_url: str, postgresql_schema: Schema) -> None:
    """Receipts older than a week go when another storage prepares its own."""
    name = f'"{postgresql_schema.name}".{RECEIPTS}'
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(f"insert into {name} (connection, number, at) values (7, 7, now() - interval '8 days')")
        with connect(postgresql_url) as other:
            for _ in range(WARM_UP):
                other.table("t").increment((1,), "n")
        assert connection.execute(f"select from {name} where connection = 7").fetchone() is None


def test_single_commit_leaves_no_receipt(direct: Storage, postgresql_schema: Schema, postgresql_url: str) -> None:
    """A program that commits once leaves nothing behind."""
    for _ in range(WARM_UP):
        direct.table("t").increment((1,), "n")
    before = receipts(postgresql_schema)
    with connect(postgresql_url) as storage:
        storage.table("t").increment((1,), "n")
    assert receipts(postgresql_schema) == before


@pytest.mark.parametrize("name", ["update", "increment", "merges"])
def test_table_of_receipts_is_dropped(storage: Storage, proxy: Proxy, postgresql_schema: Schema, name: str) -> None:
    """Without the table a commit takes two round trips; it is made again."""
    write, expected = WRITES[name]
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(f'drop table "{postgresql_schema.name}".{RECEIPTS}')
    write(storage)
    assert values(storage) == expected
    storage.run(reset)
    write(storage)
    storage.run(reset)
    assert proxy.trips_of(lambda: write(storage)) == 1
    assert values(storage) == expected


@pytest.mark.parametrize("loss", ["dropped", "dropped and made again", "emptied"])
def test_receipts_are_lost_with_the_answer(
    storage: Storage,
    proxy: Proxy,
    postgresql_url: str,
    postgresql_schema: Schema,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
) -> None:
    """A commit whose receipt cannot be looked up any more is of unknown outcome."""
    original = proxy.trap(END, Cut.AFTER)
    lose = "truncate" if loss == "emptied" else "drop table"

    def lost() -> None:
        original.wait()
        with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
            connection.execute(f'{lose} "{postgresql_schema.name}".{RECEIPTS}')
        if loss == "dropped and made again":
            with connect(postgresql_url) as other:
                for _ in range(WARM_UP):
                    other.table("t").upsert({"k": 3, "n": 0})

    def after_the_loss(
        pool: ServerPool, what: str, question: Callable[[ServerConnection], bool | Literal["open"] | None]
    ) -> bool | None:
        lost()
        return ask_until_known(pool, what, question)

    with monkeypatch.context() as patched:
        patched.setattr("structable.backends.postgresql.txn.receipts.ask_until_known", after_the_loss)
        with pytest.raises(CommitOutcomeUnknownError):
            storage.table("t").increment((1,), "n")
    assert values(storage) == [0, 1, 0, 0, 0]
    for _ in range(WARM_UP):
        storage.table("t").increment((1,), "n")
    proxy.trap(END, Cut.AFTER)
    storage.table("t").increment((1,), "n")
    assert values(storage) == [0, 2 + WARM_UP, 0, 0, 0]


def test_a_lack_of_receipts_is_judged_while_other_threads_commit() -> None:
    """Threads that use a statement for the first time do not disturb one that has failed."""
    receipts = Receipts("structable")
    refused = StatementRefusedError("42P01", "there is no such table")
    refused.call = Call(Statement("select 1"))
    ended = threading.Event()

    def join() -> None:
        updates = []
        while not ended.is_set():
            updates.append(Statement("update t set n = 1"))
            receipts.joined(updates[-1], if_changed=True)

    threads = [threading.Thread(target=join) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    try:
        assert not any(receipts.lack(refused) for _ in range(2_000))
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    update = Statement("update t set n = 1")
    refused.call = Call(receipts.joined(update, if_changed=True))
    assert receipts.lack(refused)


def test_role_without_rights_on_receipts(start_postgresql: StartServer) -> None:
    """A role that may write a table, and not the receipts, commits in two round trips."""
    server = start_postgresql(fsync=False)
    owner = server.url("structable")
    with connect(owner) as storage:
        storage.admin.create(TABLE)
        with psycopg.connect(server.superuser_conninfo, autocommit=True) as superuser:
            superuser.execute("create role writer login password 'w'")
            superuser.execute("grant usage on schema structable to writer")
            superuser.execute("grant select on all tables in schema structable to writer")
            superuser.execute("grant select, insert, update, delete on structable.t to writer")
        parts = urlsplit(owner)
        url = urlunsplit(parts._replace(netloc=f"writer:w@{parts.netloc.rpartition('@')[2]}"))
        for made in (False, True):
            if made:
                for _ in range(WARM_UP):
                    storage.table("t").upsert({"k": 2, "n": 0})
            with connect(url) as writer:
                for number in range(1, 5):
                    writer.table("t").increment((1,), "n")
                    writer.table("t").update({"k": 1, "s": str(number)})
        assert storage.table("t").read((1,)) == {"k": 1, "n": 8, "s": "4"}
