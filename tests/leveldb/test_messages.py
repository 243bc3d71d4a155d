"""The messages between a client and the owner: each costs a round trip, or the time to send it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from structable.backends.leveldb.protocol import messages
from structable.backends.leveldb.protocol.channel import Channel
from structable.spi import (
    Field,
    Isolation,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    Value,
    col,
    connect,
)
from structable.testing.conformance.clients import StoreProcess
from tests.calls_of_types import CALLS_OF_TYPES, READ_FIRST, create_tables_of_types

DISTRICTS = range(1, 11)
QUEUE = TableSpecification("queue", [Field.int("district"), Field.int("number")], ["district", "number"])
ORDERS = TableSpecification(
    "orders",
    [Field.int("district"), Field.int("number"), Field.int("customer"), Field.int("carrier")],
    ["district", "number"],
    indexes=["customer"],
)
LINES = TableSpecification(
    "lines",
    [Field.int("district"), Field.int("number"), Field.int("line"), Field.long("amount"), Field.long("delivered")],
    ["district", "number", "line"],
)
CUSTOMERS = TableSpecification(
    "customers",
    [Field.int("district"), Field.int("customer"), Field.string("last"), Field.long("balance")],
    ["district", "customer"],
    indexes=["last"],
)
ITEMS = TableSpecification(
    "items",
    [Field.int("item"), Field.string("name"), Field.string("kind"), Field.int("stock"), Field.string("note")],
    ["item"],
    indexes=["kind"],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store that another process owns."""
    url = f"leveldb://{tmp_path_factory.mktemp('messages')}/store?durability=process"
    owner = StoreProcess(url, "obey")
    try:
        assert owner.next() == "ready"
        yield url
    finally:
        owner.close()


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with connect(url) as storage:
        tables: list[tuple[TableSpecification, list[dict[str, object]]]] = [
            (QUEUE, [{"district": d, "number": n} for d in DISTRICTS for n in range(40)]),
            (ORDERS, [{"district": d, "number": n, "customer": n} for d in DISTRICTS for n in range(40)]),
            (
                LINES,
                [
                    {"district": d, "number": n, "line": line, "amount": 7}
                    for d in DISTRICTS
                    for n in range(5)
                    for line in range(10)
                ],
            ),
            (
                CUSTOMERS,
                [{"district": d, "customer": c, "last": "BAR", "balance": 0} for d in DISTRICTS for c in (0, 1)],
            ),
            (ITEMS, [{"item": i, "name": "x" * 30, "kind": f"k{i % 4}", "stock": 9} for i in range(2_000)]),
        ]
        for spec, rows in tables:
            storage.admin.drop(spec.name)
            storage.admin.create(spec)
            storage.table(spec.name).upsert_many(rows)  # type: ignore[arg-type]
        yield storage


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The messages that this process sends and waits for, or ends a scan with."""
    sent: list[int] = []
    send = Channel.send

    def noted(channel: Channel, message: int, body: bytes = b"") -> None:
        # Other threads delete dropped tables, and a thread that finds no idle connection opens one; the snapshots that
        # they have read are released by any.
        if message not in {messages.HELLO, messages.RELEASE} and threading.current_thread() is threading.main_thread():
            sent.append(message)
        send(channel, message, body)

    monkeypatch.setattr(Channel, "send", noted)
    return sent


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each frame that this process receives, without the greetings of new connections."""
    received: list[int] = []
    begin, receive = Channel.__init__, Channel.receive
    greeted: list[Channel] = []

    def begun(channel: Channel, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of `Channel`
        begin(channel, *args, **kwargs)
        greeted.append(channel)

    def noted(channel: Channel) -> bytes:
        frame = receive(channel)
        if any(channel is one for one in greeted):
            greeted.remove(channel)
        elif threading.current_thread() is threading.main_thread():
            received.append(len(frame))
        return frame

    monkeypatch.setattr(Channel, "__init__", begun)
    monkeypatch.setattr(Channel, "receive", noted)
    return received


def deliver(tx: Transaction) -> None:
    """Deliver the oldest order of each district."""
    queue, orders, lines, customers = (tx.table(name) for name in ("queue", "orders", "lines", "customers"))
    for district in DISTRICTS:
        head = next(iter(queue.scan(Range.prefix((district,)), limit=1)))
        queue.delete(head.key)
        order = orders.read(head.key)
        assert order is not None
        orders.upsert({"district": district, "number": head.number, "carrier": 3})
        total = 0
        for line in lines.scan(Range.prefix(head.key)):
            total += line.amount
            lines.update({**dict(zip(("district", "number", "line"), line.key, strict=True)), "delivered": 5})
        customers.increment((district, order.customer), "balance", total)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_delivery_reads_each_row_once(storage: Storage, sent: list[int], isolation: Isolation) -> None:
    """The head of the queue, the order and the lines; the customers, which have an index, together; the commit."""
    with storage.transaction(isolation) as tx:
        for name in ("queue", "orders", "lines", "customers"):
            tx.table(name)
        del sent[:]
        deliver(tx)
    assert len(sent) == 3 * len(DISTRICTS) + 3
    assert storage.table("queue").count() == 39 * 10
    assert storage.table("orders").read((1, 0))["carrier"] == 3  # type: ignore[index]
    assert [line.delivered for line in storage.table("lines").scan(Range.prefix((10, 0)))] == [5] * 10
    assert storage.table("customers").read((4, 0))["balance"] == 70  # type: ignore[index]


def read(tx: Transaction) -> list[int]:
    row = tx.table("items").read((7,))
    assert row is not None
    return [row["item"]]  # type: ignore[list-item]


def multi_read(tx: Transaction) -> list[int]:
    return [row.item for row in tx.table("items").multi_read([(i,) for i in range(0, 200, 10)])]


def scan(tx: Transaction) -> list[int]:
    return [row.item for row in tx.table("items").scan(Range.at_least((100,)), limit=20)]


def scan_columns(tx: Transaction) -> list[int]:
    return [row.item for row in tx.table("items").scan(Range.at_least((100,)), columns=["item"], limit=20)]


def scan_in_reverse(tx: Transaction) -> list[int]:
    return [row.item for row in tx.table("items").scan(reverse=True, limit=20)]


def multi_scan(tx: Transaction) -> list[int]:
    ranges = [Range((n,), (n + 5,)) for n in range(0, 100, 10)]
    return [row.item for row in tx.table("items").multi_scan(ranges)]


def scan_index(tx: Transaction) -> list[int]:
    return [row.item for row in tx.table("items").scan_index("kind", "k1", limit=10)]


READS = [read, multi_read, scan, scan_columns, scan_in_reverse, multi_scan, scan_index]


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("look", READS)
def test_rows_that_were_read_are_not_asked_for_again(
    storage: Storage, sent: list[int], look: Callable[[Transaction], list[int]], isolation: Isolation
) -> None:
    with storage.transaction(isolation) as tx:
        found = sorted(look(tx))
        items = tx.table("items")
        del sent[:]
        for number, item in enumerate(found):
            if number % 4 == 0:
                items.upsert({"item": item, "stock": 100})
            elif number % 4 == 1:
                items.update({"item": item, "kind": "changed"})
            elif number % 4 == 2:
                items.increment((item,), "stock", 91)
            else:
                items.delete((item,))
        items.upsert_many([{"item": item, "note": "seen"} for item in found])
        assert sent == []
    assert len(sent) == 1
    rows = storage.table("items").multi_read([(item,) for item in found])
    assert [row.note for row in rows] == ["seen"] * len(found)
    for number, row in enumerate(rows):
        assert row.stock == (100, 9, 100, None)[number % 4]
    assert {row.item for row in storage.table("items").scan_index("kind", "changed")} == set(found[1::4])


@pytest.mark.parametrize("look", READS[:3])
def test_rows_that_were_read_are_recorded(storage: Storage, look: Callable[[Transaction], list[int]]) -> None:
    """Write skew: a row that came from an earlier read was read all the same."""
    one, other = storage.transaction(Isolation.SERIALIZABLE), storage.transaction(Isolation.SERIALIZABLE)
    first = look(one)[0]
    look(other)
    one.table("items").update({"item": first, "stock": 1})
    assert one.table("items").read((first,)) is not None
    assert other.table("items").read((first,))["stock"] == 9  # type: ignore[index]
    other.table("queue").upsert({"district": 99, "number": first})
    one.commit()
    with pytest.raises(TransactionConflictError):
        other.commit()


@pytest.mark.parametrize(
    "look",
    [
        lambda table: table.scan(limit=100),
        lambda table: table.scan(limit=100, reverse=True),
        lambda table: table.scan(order_by="kind", limit=10),
        lambda table: table.multi_scan([Range((n,), (n + 5,)) for n in range(0, 1_000, 50)]),
        lambda table: table.multi_scan([Range((n,), (n + 9,)) for n in range(0, 1_000, 50)], limit=40),
    ],
    ids=["limit", "reverse", "index", "ranges", "ranges with a limit"],
)
def test_a_scan_with_few_rows_takes_one_exchange(
    storage: Storage, sent: list[int], look: Callable[..., Iterator[object]]
) -> None:
    with storage.transaction() as tx:
        table = tx.table("items")
        del sent[:]
        assert len(list(look(table))) >= 10
        assert len(sent) <= 2  # a path by an index also fetches the rows


def test_a_limit_reaches_the_owner(storage: Storage, received: list[int]) -> None:
    with storage.transaction() as tx:
        table = tx.table("items")
        del received[:]
        assert len(list(table.scan(limit=1))) == 1
        one = received.pop()
        assert one < 200
        assert len(list(table.scan(limit=2))) == 2
        assert received.pop() < 2 * one
        table.delete((0,))
        table.delete((1,))
        assert [row.item for row in table.scan(limit=2)] == [2, 3]
        assert received.pop() < 6 * one
        assert [row.item for row in table.scan(where=col("stock") == 9, limit=2)] == [2, 3]
        assert received.pop() > 20 * one, "the owner cannot know which rows count"


def test_a_limit_counts_rows_that_the_transaction_sees(storage: Storage) -> None:
    with storage.transaction() as tx:
        table = tx.table("items")
        for item in range(0, 40, 2):
            table.delete((item,))
        table.upsert({"item": -5, "kind": "k0"})
        table.upsert({"item": 5_000, "kind": "k0"})
        assert [row.item for row in table.scan(limit=5)] == [-5, 1, 3, 5, 7]
        assert [row.item for row in table.scan(limit=2, reverse=True)] == [5_000, 1_999]
        assert [row.item for row in table.scan_index("kind", "k0", limit=3)] == [-5, 40, 44]
        table.increment((3,), "stock", 1)
        table.increment((9_999,), "stock", 1)
        assert [row.stock for row in table.scan(limit=3)] == [None, 9, 10]
        assert [row.item for row in table.scan(limit=2, reverse=True)] == [9_999, 5_000]


def test_rows_of_a_scan_after_increments_are_asked_for_together(storage: Storage, sent: list[int]) -> None:
    with storage.transaction() as tx:
        customers = tx.table("customers")
        lines = tx.table("lines")
        for district in DISTRICTS:
            lines.increment((district, 0, 0), "amount", 1)
        assert customers.count() == 20
        del sent[:]
        assert [row.amount for row in lines.scan(Range.prefix((2, 0)), limit=2)] == [8, 7]
        assert len(sent) <= 2
        del sent[:]
        assert sum(row.amount for row in lines.scan(limit=400)) == 400 * 7 + 8
        assert len(sent) <= 2


def test_an_increment_that_creates_a_row_is_found_by_indexes(storage: Storage, sent: list[int]) -> None:
    with storage.transaction() as tx:
        items = tx.table("items")
        assert items.read((0,)) is not None
        del sent[:]
        for item in (-1, -2, 1, 2):
            items.increment((item,), "stock", 5)
        assert sent == []
        assert [row.item for row in items.scan_index("kind", None)] == [-2, -1]
        items.increment((-3,), "stock", 5)
    with storage.transaction() as tx:
        assert [(row.item, row.stock) for row in tx.table("items").scan_index("kind", None)] == [
            (-3, 5),
            (-2, 5),
            (-1, 5),
        ]
        assert [row.stock for row in tx.table("items").multi_read([(1,), (2,)])] == [14, 14]


def test_many_random_keys_are_one_request(storage: Storage, sent: list[int], received: list[int]) -> None:
    with storage.transaction() as tx:
        table = tx.table("items")
        del sent[:], received[:]
        rows = table.multi_read([(7 * n % 2_000,) for n in range(200)])
        assert len(rows) == 200
        assert len(sent) == len(received) == 1
        assert received[0] < 200 * 120


WHOLE_KEYS = [Range.prefix((15 * n,)) for n in range(200)]


@pytest.mark.parametrize(
    ("look", "found"),
    [
        (lambda table: table.count(WHOLE_KEYS, col("stock") == 9), 134),
        (lambda table: len(list(table.multi_scan(WHOLE_KEYS, reverse=True, columns=["name"]))), 134),
        (lambda table: len(list(table.multi_scan(WHOLE_KEYS, limit_per_range=1, limit=5))), 5),
        (lambda table: table.count(where=col("item").isin([3, 5_000, 9]) & (col("kind") == "k3")), 1),
        (lambda table: table.update_all(Range.prefix((3,)), {"stock": 8}, col("stock") == 9), 1),
        (lambda table: table.delete_all(Range.prefix((5_000,))), 0),
    ],
    ids=["count", "multi_scan", "limit per range", "filter", "update_all", "delete_all"],
)
def test_whole_keys_are_looked_up_in_one_exchange(
    storage: Storage, sent: list[int], look: Callable[..., int], found: int
) -> None:
    with storage.transaction() as tx:
        table = tx.table("items")
        del sent[:]
        assert look(table) == found
        assert sent == [messages.READ_MANY]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_rows_of_many_ranges_are_one_exchange(storage: Storage, sent: list[int], reverse: bool) -> None:
    ranges = [Range.prefix((district,)) for district in reversed(DISTRICTS)]
    with storage.transaction() as tx:
        queue = tx.table("queue")
        del sent[:]
        heads = sorted([(district, 39 if reverse else 0) for district in DISTRICTS], reverse=reverse)
        assert [row.key for row in queue.multi_scan(ranges, limit_per_range=1, reverse=reverse)] == heads
        assert sent == [messages.SCAN]
        for district in (3, 4):
            queue.delete((district, 0))
            queue.delete((district, 39))
        queue.upsert({"district": 4, "number": 40})
        queue.upsert({"district": 5, "number": -1})
        del sent[:]
        changed = {3: 38 if reverse else 1, 4: 40 if reverse else 1, 5: 39 if reverse else -1}
        expected = [(district, changed.get(district, number)) for district, number in heads]
        for limit in (None, 4):
            found = queue.multi_scan(ranges, limit_per_range=1, reverse=reverse, limit=limit)
            assert [row.key for row in found] == expected[:limit]
        assert sent == [messages.SCAN] * 2


LINE: dict[str, Value] = {"district": 3, "number": 2, "line": 1}
"""The key of a row that was not read."""
ROW_KEY = tuple(LINE.values())

CALLS: dict[str, tuple[int, Callable[[StructuredTable], object]]] = {
    "read": (1, lambda table: table.read(ROW_KEY)),
    "multi_read": (1, lambda table: table.multi_read([(3, n, 1) for n in range(5)])),
    "scan of a key": (1, lambda table: list(table.scan(Range.prefix(ROW_KEY)))),
    "scan with a limit": (1, lambda table: list(table.scan(Range.prefix((3,)), limit=40))),
    "scan of few rows": (1, lambda table: list(table.scan(Range.prefix((3, 2))))),
    "limit per range": (
        1,
        lambda table: list(table.multi_scan([Range.prefix((d,)) for d in DISTRICTS], limit_per_range=5)),
    ),
    "upsert of a whole row": (0, lambda table: table.upsert({**LINE, "amount": 1, "delivered": 1})),
    "replace": (0, lambda table: table.replace({**LINE, "amount": 1})),
    "upsert_many of whole rows": (0, lambda table: table.upsert_many([{**LINE, "amount": 1, "delivered": 1}])),
    "increment": (0, lambda table: table.increment(ROW_KEY, "amount")),
    "increment_many": (0, lambda table: table.increment_many([((3, n, 1), "amount", 1) for n in range(5)])),
    "upsert of some fields": (1, lambda table: table.upsert({**LINE, "amount": 1})),
    "upsert_many of some fields": (1, lambda table: table.upsert_many([{**LINE, "line": n} for n in range(5)])),
    "delete": (1, lambda table: table.delete(ROW_KEY)),
    "delete_many": (1, lambda table: table.delete_many([(3, n, 1) for n in range(5)])),
    "insert": (1, lambda table: table.insert({**LINE, "line": 77})),
    "update": (1, lambda table: table.update({**LINE, "amount": 2})),
    "compare_and_swap": (1, lambda table: table.compare_and_swap(ROW_KEY, "amount", 7, 8)),
    "update_all": (1, lambda table: table.update_all(Range.prefix((3, 2)), {"amount": 1})),
    "delete_all": (1, lambda table: table.delete_all(Range.prefix((3, 2)))),
    "count": (1, lambda table: table.count([Range.prefix((3, 2))])),
}


@pytest.mark.parametrize("name", CALLS)
def test_exchanges_of_each_call(storage: Storage, received: list[int], name: str) -> None:
    """The table of docs/spi.md: each call, first of rows not seen and then of rows seen, and the commit."""
    exchanges, call = CALLS[name]
    assert storage.table("lines").count([]) == 0  # the schema is known from now on
    if name in SEEN:
        tx = storage.transaction()
        assert tx.table("lines").count([Range.prefix((3,))], col("amount") >= 0) == 50
        del received[:]
        call(tx.table("lines"))
        assert received == []
        tx.rollback()
    with storage.transaction() as tx:
        del received[:]
        table = tx.table("lines")
        assert received == []
        call(table)
        assert len(received) == exchanges
        del received[:]
    assert len(received) == (exchanges == 0 or name in (*SEEN, "insert", "update_all", "delete_all"))


SEEN = (
    "upsert of some fields",
    "upsert_many of some fields",
    "delete",
    "delete_many",
    "update",
    "compare_and_swap",
)
"""Writes that ask for their rows, unless the transaction has seen them."""


def test_blind_merge_asks_for_no_row(storage: Storage, received: list[int]) -> None:
    """The commit alone is sent, once."""
    options = {"merge-engine": "aggregation", "fields.hits.aggregate-function": "sum"}
    storage.admin.create(TableSpecification("hits", [Field.int("page"), Field.long("hits")], ["page"], options=options))
    assert storage.table("hits").count() == 0
    with storage.transaction() as tx:
        table = tx.table("hits")
        del received[:]
        table.upsert({"page": 1, "hits": 1})
        table.upsert_many([{"page": page, "hits": 1} for page in range(3)])
        table.apply_changes([("-D", {"page": 5, "hits": 1})])
        assert received == []
    assert len(received) == 1
    assert [row.hits for row in storage.table("hits").scan()] == [1, 2, 1, -1]


def test_exchanges_of_a_commit_with_an_index(storage: Storage, received: list[int]) -> None:
    assert storage.table("items").count([]) == 0
    for seen, exchanges in ((False, 2), (True, 1)):
        with storage.transaction() as tx:
            items = tx.table("items")
            if seen:
                items.multi_read([(n,) for n in range(5)])
            items.upsert_many(
                {"item": n, "name": "y", "kind": f"new {seen}", "stock": 1, "note": "-"} for n in range(5)
            )
            del received[:]
        assert len(received) == exchanges
    with storage.transaction() as tx:
        assert tx.table("items").read((1,)) is not None
        del received[:]
    assert received == []


def test_exchanges_of_table_types(storage: Storage, received: list[int]) -> None:
    """The table of docs/spi.md: merges and tables without a key."""
    create_tables_of_types(storage)
    found: dict[str, int] = {}
    for name, (table, call) in CALLS_OF_TYPES.items():
        with storage.transaction() as tx:
            view = tx.table(table)
            del received[:]
            call(view)
            found[name] = len(received)
            tx.rollback()
    assert found == {name: int(name in READ_FIRST) for name in CALLS_OF_TYPES}
    with storage.transaction() as tx:
        view = tx.table("parts")
        assert view.count([Range.all()], col("hits") == 1) == 5
        del received[:]
        view.upsert({"id": 1, "note": "x"})
        assert received == []
