"""Metrics where PostgreSQL loses connections, beside a proxy that counts what clients wait for."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structable.backends.postgresql.driver import commit_outcome
from structable.spi import CommitOutcomeUnknownError, Storage, StorageUnavailableError, Traffic, Transaction, connect
from tests.postgresql.support.proxy import COMMIT, Cut, Proxy
from tests.postgresql.support.shared import Schema

from .conftest import ITEMS
from .sdk import Metrics


@pytest.fixture
def proxy(postgresql_schema: Schema) -> Iterator[Proxy]:
    with Proxy(postgresql_schema.conninfo) as proxy:
        yield proxy


@pytest.fixture
def storage(metrics: Metrics, postgresql_schema: Schema, proxy: Proxy) -> Iterator[Storage]:
    with connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 0})
        yield storage


def ended(metrics: Metrics, call: Callable[[], object]) -> dict[str, int]:
    """Return the numbers of transactions that a call changes."""
    before = metrics.transactions()
    call()
    after = metrics.transactions()
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


@pytest.mark.parametrize("through_run", [False, True])
def test_unknown_outcome(
    storage: Storage, metrics: Metrics, proxy: Proxy, through_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer is lost, and that cannot be looked up, is counted as unknown, and never retried."""
    monkeypatch.setattr(commit_outcome, "_SECONDS", 0.5)

    def body(transaction: Transaction) -> None:
        transaction.table("items").upsert({"id": 1, "n": 1})
        proxy.trap(COMMIT, Cut.AFTER)
        proxy.refuse()

    def work() -> None:
        with pytest.raises(CommitOutcomeUnknownError):
            storage.run(body) if through_run else in_a_transaction(storage, body)

    assert ended(metrics, work) == {"begun": 1, "unknown": 1}
    proxy.accept()


def in_a_transaction(storage: Storage, body: Callable[[Transaction], None]) -> None:
    with storage.transaction() as transaction:
        body(transaction)


@pytest.mark.parametrize(("cut", "outcome"), [(Cut.BEFORE, "unavailable"), (Cut.AFTER, "committed")])
def test_lost_connection(storage: Storage, metrics: Metrics, proxy: Proxy, cut: Cut, outcome: str) -> None:
    """A commit that is looked up is counted as what became of it."""

    def work() -> None:
        try:
            with storage.transaction() as transaction:
                transaction.table("items").upsert({"id": 1, "n": 1})
                proxy.trap(COMMIT, cut)
        except StorageUnavailableError:
            assert outcome == "unavailable"

    assert ended(metrics, work) == {"begun": 1, outcome: 1}


def test_lost_connection_is_retried(storage: Storage, metrics: Metrics, proxy: Proxy) -> None:
    trapped = False

    def body(transaction: Transaction) -> None:
        nonlocal trapped
        transaction.table("items").upsert({"id": 1, "n": 1})
        if not trapped:
            trapped = True
            proxy.trap(COMMIT, Cut.BEFORE)

    found = ended(metrics, lambda: storage.run(body))
    assert found == {"begun": 2, "unavailable": 1, "retried": 1, "committed": 1}


def test_round_trips_are_those_of_the_wire(storage: Storage, proxy: Proxy) -> None:
    """`traffic` counts what a proxy sees, for calls of every kind, copies apart."""
    table = storage.table("items")

    def in_transaction() -> None:
        with storage.transaction() as transaction:
            transaction.table("items").read((1,))
            transaction.table("items").upsert_many([{"id": number, "n": 1} for number in range(50)])
            list(transaction.table("items").scan())

    calls: list[Callable[[], object]] = [
        lambda: table.read((1,)),
        lambda: table.upsert({"id": 2, "n": 1}),
        lambda: table.multi_read([(1,), (2,)]),
        in_transaction,
        lambda: list(table.scan()),
        lambda: table.delete_many([(1,), (2,)]),
    ]
    for call in calls:
        before, seen = storage.traffic(), proxy.round_trips
        call()
        after = storage.traffic()
        assert before is not None
        assert after is not None
        assert before.round_trips is not None
        assert after.round_trips is not None
        assert after.round_trips - before.round_trips == proxy.round_trips - seen


def test_bytes_are_those_of_the_wire(storage: Storage) -> None:
    """Large values are seen in the bytes sent and received; of a closed storage, too."""
    wide = type(ITEMS)("wide", [*ITEMS.fields, type(ITEMS.fields[0]).bytes("b")], ["id"])
    storage.admin.create(wide)
    before = storage.traffic()
    storage.table("wide").upsert({"id": 1, "b": bytes(1_000_000)})
    between = storage.traffic()
    assert storage.table("wide").read((1,)) is not None
    storage.close()
    after = storage.traffic()
    for one, other, sent, received in ((before, between, 1, 0), (between, after, 0, 1)):
        assert one is not None
        assert other is not None
        if one.sent is None:
            pytest.skip("this system does not count the bytes of a connection")
        assert one.received is not None
        assert other.sent is not None
        assert other.received is not None
        assert 1_000_000 * sent <= other.sent - one.sent < 1_000_000 * sent + 100_000
        assert 1_000_000 * received <= other.received - one.received < 1_000_000 * received + 100_000


def test_traffic_of_a_lost_connection_stays(storage: Storage, proxy: Proxy) -> None:
    storage.table("items").read((1,))
    before = storage.traffic()
    proxy.cut_all()
    storage.table("items").upsert({"id": 1, "n": 3})
    after = storage.traffic()
    assert before is not None
    assert after is not None
    for name in Traffic.__slots__:
        assert getattr(after, name) is None or getattr(after, name) > getattr(before, name)


def test_store_is_named_without_secrets(metrics: Metrics, postgresql_schema: Schema, tmp_path: Path) -> None:
    """The name of the store has its host, database and schema, and neither a user nor a password or other options."""
    passwords = tmp_path / "hidden-8"
    passwords.touch(mode=0o600)
    with connect(postgresql_schema.url, application_name="hidden-7", passfile=str(passwords)) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        text = repr(metrics.points())
        (store,) = {key[0] for key in metrics.numbers("structable.transactions.begun", "store")}
    assert store.startswith("postgresql://")
    assert postgresql_schema.name in store
    assert "hidden" not in text
    assert "@" not in store
