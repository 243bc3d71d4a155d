"""How often a client waits for the server; counted, not timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    Range,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    TransactionClosedError,
    col,
    connect,
)
from structable.spi.authors import MAX_ROW_SIZE
from tests.calls_of_types import CALLS_OF_TYPES, create_tables_of_types

from .support.proxy import Cut, Proxy
from .support.shared import Schema

Row = dict[str, Any]

TABLES = [
    TableSpecification(
        "warehouse", [Field.int("w"), Field.double("tax"), Field.long("paid"), Field.string("name")], ["w"]
    ),
    TableSpecification(
        "district",
        [
            Field.int("w"),
            Field.int("d"),
            Field.double("tax"),
            Field.long("paid"),
            Field.int("next"),
            Field.string("name"),
        ],
        ["w", "d"],
    ),
    TableSpecification(
        "customer",
        [
            *(Field.int(name) for name in ("w", "d", "c")),
            *(Field.long(name) for name in ("balance", "paid", "payments", "deliveries")),
            Field.string("last"),
            Field.string("data"),
        ],
        ["w", "d", "c"],
        ["last"],
    ),
    TableSpecification(
        "history",
        [Field.string("id"), Field.int("w"), Field.int("c"), Field.long("amount"), Field.string("data")],
        ["id"],
    ),
    TableSpecification(
        "orders",
        [*(Field.int(name) for name in ("w", "d", "o", "c", "carrier", "lines")), Field.string("entered")],
        ["w", "d", "o"],
    ),
    TableSpecification("queue", [Field.int("w"), Field.int("d"), Field.int("o")], ["w", "d", "o"]),
    TableSpecification(
        "line",
        [
            *(Field.int(name) for name in ("w", "d", "o", "n", "i", "quantity")),
            Field.long("amount"),
            Field.string("delivered"),
            Field.string("info"),
        ],
        ["w", "d", "o", "n"],
    ),
    TableSpecification("item", [Field.int("i"), Field.long("price"), Field.string("name")], ["i"]),
    TableSpecification(
        "stock",
        [*(Field.int(name) for name in ("w", "i", "quantity", "orders")), Field.long("sold"), Field.string("data")],
        ["w", "i"],
    ),
]
ITEMS = range(1, 41)
DISTRICTS = range(1, 11)


def fill(storage: Storage) -> None:
    for spec in TABLES:
        storage.admin.create(spec)
    storage.run(fill_tables)


def fill_tables(transaction: Transaction) -> None:
    table = transaction.table
    table("warehouse").upsert({"w": 1, "tax": 0.1, "paid": 0, "name": "one"})
    for d in DISTRICTS:
        table("district").upsert({"w": 1, "d": d, "tax": 0.1, "paid": 0, "next": 4, "name": f"d{d}"})
        table("customer").upsert_many(
            {
                "w": 1,
                "d": d,
                "c": c,
                "balance": 0,
                "paid": 0,
                "payments": 0,
                "deliveries": 0,
                "last": f"l{c}",
                "data": "-",
            }
            for c in range(1, 4)
        )
        for o in range(1, 4):
            table("orders").upsert({"w": 1, "d": d, "o": o, "c": o, "lines": 5, "entered": "then"})
            table("queue").upsert({"w": 1, "d": d, "o": o})
            table("line").upsert_many(
                {"w": 1, "d": d, "o": o, "n": n, "i": n, "quantity": 1, "amount": 10, "info": "x"} for n in range(1, 6)
            )
    table("item").upsert_many({"i": i, "price": i, "name": f"i{i}"} for i in ITEMS)
    table("stock").upsert_many({"w": 1, "i": i, "quantity": 50, "orders": 0, "sold": 0, "data": "s"} for i in ITEMS)


@pytest.fixture
def storage(postgresql_schema: Schema, proxy: Proxy) -> Iterator[Storage]:
    with connect(postgresql_schema.url) as storage:
        fill(storage)
    with connect(proxy.url(postgresql_schema.url)) as storage:
        for spec in TABLES:
            storage.table(spec.name).count()
        yield storage


def new_order(transaction: Transaction) -> None:
    table = transaction.table
    assert table("warehouse").read((1,)) is not None
    district = table("district").read((1, 2))
    assert table("customer").read((1, 2, 3)) is not None
    assert district is not None
    number = district.next
    table("district").upsert({"w": 1, "d": 2, "next": number + 1})
    wanted = [(i, i % 3 + 1) for i in ITEMS if i % 4 == 0]
    prices = {row.i: row.price for row in table("item").multi_read([(i,) for i, _ in wanted])}
    stock = {row.i: row for row in table("stock").multi_read([(1, i) for i, _ in wanted])}
    table("orders").upsert({"w": 1, "d": 2, "o": number, "c": 3, "carrier": None, "lines": 10, "entered": "now"})
    table("queue").upsert({"w": 1, "d": 2, "o": number})
    table("stock").upsert_many(
        {"w": 1, "i": i, "quantity": stock[i].quantity - amount, "sold": stock[i].sold + amount} for i, amount in wanted
    )
    table("line").upsert_many(
        {"w": 1, "d": 2, "o": number, "n": n, "i": i, "quantity": amount, "amount": amount * prices[i], "info": "y"}
        for n, (i, amount) in enumerate(wanted)
    )


def payment(transaction: Transaction) -> None:
    table = transaction.table
    table("warehouse").increment((1,), "paid", 7)
    table("district").increment((1, 2), "paid", 7)
    names = [table(name).read(key) for name, key in (("warehouse", (1,)), ("district", (1, 2)))]
    assert None not in names
    [customer] = table("customer").scan_index("last", "l3", range=Range.prefix((1, 2)))
    table("customer").increment_many(
        [(customer.key, "balance", -7), (customer.key, "paid", 7), (customer.key, "payments", 1)]
    )
    table("customer").upsert({"w": 1, "d": 2, "c": customer.c, "data": "paid"})
    table("history").upsert({"id": "1", "w": 1, "c": customer.c, "amount": 7, "data": "x"})


def delivery(transaction: Transaction) -> None:
    table = transaction.table
    prefixes = [Range.prefix((1, d)) for d in DISTRICTS]
    oldest = [row.key for row in table("queue").multi_scan(prefixes, limit_per_range=1)]
    table("queue").delete_many(oldest)
    orders = table("orders").multi_read(oldest)
    table("orders").upsert_many({"w": row.w, "d": row.d, "o": row.o, "carrier": 5} for row in orders)
    lines = list(table("line").multi_scan([Range.prefix(key) for key in oldest]))
    table("line").upsert_many(
        {**dict(zip(("w", "d", "o", "n"), row.key, strict=True)), "delivered": "now"} for row in lines
    )
    customers = {row.key: (row.w, row.d, row.c) for row in orders}
    table("customer").increment_many([(customers[row.key[:3]], "balance", row.amount) for row in lines])
    table("customer").increment_many([(customer, "deliveries", 1) for customer in customers.values()])


@pytest.mark.parametrize(("program", "most"), [(new_order, 6), (payment, 5), (delivery, 4)])
def test_round_trips_of_order_entry(
    storage: Storage, proxy: Proxy, program: Callable[[Transaction], None], most: int
) -> None:
    """A transaction waits for what it reads, and once for all that it writes."""
    storage.run(program)  # prepares the statements
    assert proxy.trips_of(lambda: storage.run(program)) == most


def test_what_order_entry_leaves(storage: Storage) -> None:
    for program in (new_order, payment, delivery, delivery):
        storage.run(program)
    table = storage.table
    assert table("district").read((1, 2), ["next", "paid"]) == {"w": 1, "d": 2, "next": 5, "paid": 7}
    assert [row.key for row in table("queue").scan(Range.prefix((1, 2)))] == [(1, 2, 3), (1, 2, 4)]
    assert table("orders").count(where=col("carrier") == 5) == 20
    assert table("line").count(where=col("delivered") == "now") == 100
    assert table("line").count([Range.prefix((1, 2, 4))]) == 10
    found = table("customer").read((1, 2, 3))
    assert found is not None
    assert (found["balance"], found["paid"], found["payments"], found["data"]) == (-7, 7, 1, "paid")
    customers = [(row["balance"], row["deliveries"]) for row in table("customer").scan(Range.prefix((1, 5)))]
    assert customers == [(50, 1), (50, 1), (0, 0)]
    assert [row["quantity"] for row in table("stock").scan(Range.prefix((1, 4)))] == [48]


ONE_TRIP: dict[str, Callable[[StructuredTable], object]] = {
    "scan with a limit": lambda table: list(table.scan(Range.prefix((1, 2)), limit=1)),
    "scan of few rows": lambda table: list(table.scan(Range.prefix((1, 2)))),
    "scan with a filter and a limit": lambda table: list(table.scan(where=col("carrier") == 5, limit=3)),
    "limit per range": lambda table: list(
        table.multi_scan([Range.prefix((1, d)) for d in DISTRICTS], limit_per_range=1)
    ),
    "limit per range of other ranges": lambda table: list(
        table.multi_scan([Range.above((1, 2)), Range((1,), (1, 5))], limit_per_range=1)
    ),
    "multi_scan of prefixes": lambda table: list(table.multi_scan([Range.prefix((1, d)) for d in DISTRICTS])),
    "count of keys": lambda table: table.count([Range.prefix((1, d, 1)) for d in DISTRICTS], col("carrier").is_null()),
    "update_all": lambda table: table.update_all(Range.prefix((1, 2, 3)), {"carrier": 1}),
    "delete_all": lambda table: table.delete_all(Range.prefix((1, 2, 2))),
}


@pytest.mark.parametrize("name", ONE_TRIP)
def test_read_takes_one(storage: Storage, proxy: Proxy, name: str) -> None:
    with storage.transaction() as transaction:
        table = transaction.table("orders")
        assert table.read((1, 1, 1)) is not None
        assert proxy.trips_of(lambda: ONE_TRIP[name](table)) == 1


def test_scan_of_many_rows_opens_a_cursor(storage: Storage, proxy: Proxy) -> None:
    """The next scan of the shape does so at once, until one finds few rows."""
    with storage.transaction() as transaction:
        table = transaction.table("line")
        assert table.read((1, 1, 1, 1)) is not None
        for warehouse, expected in ((1, 3), (1, 2), (2, 1), (2, 1), (1, 3)):
            before = proxy.round_trips
            rows = list(table.scan(Range.prefix((warehouse,))))
            used = proxy.round_trips - before
            assert (len(rows), used) == (150 if warehouse == 1 else 0, expected)


def test_scan_of_small_rows_takes_one(storage: Storage, proxy: Proxy) -> None:
    """Up to 1,000 of them, if none of the columns has a variable length."""
    with storage.transaction() as transaction:
        transaction.table("queue").upsert_many({"w": 9, "d": d, "o": 0} for d in range(1_000))
    with storage.transaction() as transaction:
        line, queue = transaction.table("line"), transaction.table("queue")
        assert line.read((1, 1, 1, 1)) is not None

        def trips(table: StructuredTable, warehouse: int, expected: int, columns: list[str] | None = None) -> int:
            before = proxy.round_trips
            rows = list(table.scan(Range.prefix((warehouse,)), columns=columns))
            assert [row.key for row in rows] == sorted(row.key for row in rows)
            assert len({row.key for row in rows}) == expected
            return proxy.round_trips - before

        assert [trips(line, 1, 150, ["i"]) for _ in range(3)] == [1, 1, 1]
        assert [trips(queue, 9, 1_000) for _ in range(2)] == [1, 1]
        queue.upsert({"w": 9, "d": 1_000, "o": 0})
        transaction.table("line").scan(Range.prefix((5,))).close()
        assert [trips(queue, 9, 1_001) for _ in range(2)] == [3, 2]
        queue.delete_many([(9, d, 0) for d in (1, 2)])
        assert [trips(queue, 9, 999) for _ in range(2)] == [1, 1]


def received(storage: Storage) -> int:
    traffic = storage.traffic()
    assert traffic is not None
    assert traffic.received is not None
    return traffic.received


def test_scan_of_wide_rows_takes_small_chunks(storage: Storage) -> None:
    """However many numbers a row has, a scan of which one row is taken receives some hundred kilobytes at most."""
    fields = [Field.int("k"), *(Field.double(f"v{place}") for place in range(100))]
    storage.admin.create(TableSpecification("wide", fields, ["k"]))
    row: Row = {field.name: 1.5 for field in fields[1:]}
    storage.table("wide").upsert_many({"k": key} | row for key in range(1_500))
    with storage.transaction() as transaction:
        assert transaction.table("wide").read((0,)) is not None
        before = received(storage)
        rows = transaction.table("wide").scan()
        assert next(rows).key == (0,)
        assert 100_000 < received(storage) - before < 400_000
        assert sum(1 for _ in rows) == 1_499


def test_scan_of_an_indexed_value_in_a_range_is_prepared(storage: Storage, proxy: Proxy) -> None:
    """Its first run aside, nothing is planned: the index has such rows side by side, however many there are."""
    with storage.transaction() as transaction:
        table = transaction.table("customer")

        def scan(district: int) -> None:
            rows = table.scan_index("last", "l2", range=Range.prefix((1, district)), columns=["balance"])
            assert [row.key for row in rows] == [(1, district, 2)]

        scan(1)
        planned = proxy.trap(lambda message: message.kind == b"P", Cut.BEFORE)
        assert [proxy.trips_of(partial(scan, district)) for district in DISTRICTS] == [1] * len(DISTRICTS)
        assert not planned.sprung


def test_scan_of_the_auto_commit_view_takes_one(storage: Storage, proxy: Proxy) -> None:
    """With a small limit it needs no transaction."""
    table = storage.table("line")
    for _ in range(2):
        before = proxy.round_trips
        rows = list(table.scan(Range.at_least((1, 3)), limit=100))
        assert (len(rows), rows[0].key, proxy.round_trips - before) == (100, (1, 3, 1, 1), 1)
    rows_left = table.scan(Range.prefix((1,)), limit=2)
    assert next(rows_left).key == (1, 1, 1, 1)
    rows_left.close()
    with pytest.raises(TransactionClosedError):
        next(rows_left)


BLIND: dict[str, Callable[[StructuredTable], object]] = {
    "increment": lambda table: table.increment((1, 2, 1), "paid"),
    "increment_many": lambda table: table.increment_many([((1, d, 1), "paid", 1) for d in DISTRICTS]),
    "delete": lambda table: table.delete((1, 2, 1)),
    "delete_many": lambda table: table.delete_many([(1, d, 1) for d in DISTRICTS]),
}


@pytest.mark.parametrize("name", BLIND)
def test_blind_write_takes_none(storage: Storage, proxy: Proxy, name: str) -> None:
    """Whatever the row is, its write is sent with the commit."""
    with storage.transaction() as transaction:
        table = transaction.table("customer")
        assert table.read((1, 1, 3)) is not None
        assert proxy.trips_of(lambda: BLIND[name](table)) == 0
        assert proxy.trips_of(transaction.commit) == 1


AUTO_COMMIT: dict[str, Callable[[StructuredTable], object]] = {
    **{name: BLIND[name] for name in ("increment", "delete")},
    "update": lambda table: table.update({"w": 1, "d": 2, "c": 1, "data": "new"}),
    "update of a row that is not there": lambda table: table.update({"w": 0, "d": 0, "c": 0, "data": "n"}, {"paid": 1}),
    "upsert of a field": lambda table: table.upsert({"w": 1, "d": 2, "c": 1, "data": "new"}),
    "upsert of a new row": lambda table: table.upsert({"w": 9, "d": 9, "c": 9, "data": "new"}),
    "replace": lambda table: table.replace({"w": 1, "d": 2, "c": 1, "data": "new"}),
}


@pytest.mark.parametrize("name", AUTO_COMMIT)
def test_write_of_the_auto_commit_view_takes_two(storage: Storage, proxy: Proxy, name: str) -> None:
    """The write, which also begins the transaction and tells whether the row is there, and the commit."""
    table = storage.table("customer")
    assert proxy.trips_of(lambda: AUTO_COMMIT[name](table)) == 2
    with pytest.raises(RecordNotFoundError):
        table.update({"w": 5, "d": 5, "c": 5, "data": "new"})
    assert table.read((5, 5, 5)) is None


SINGLE = {name: AUTO_COMMIT[name] for name in AUTO_COMMIT if "not there" not in name} | {
    "insert": lambda table: table.insert({"w": time.monotonic_ns() % 2**31, "d": 9, "c": 9, "data": "new"})
}


@pytest.mark.parametrize("name", SINGLE)
def test_writes_of_one_kind_come_to_one_each(storage: Storage, proxy: Proxy, name: str) -> None:
    """Whatever the first write of a connection is, later ones of its kind are one round trip."""
    table = storage.table("customer")
    for _ in range(3):
        SINGLE[name](table)
    assert proxy.trips_of(lambda: SINGLE[name](table)) == 1


READS: dict[str, Callable[[StructuredTable], object]] = {
    "read": lambda table: table.read((1, 2, 1)),
    "multi_read": lambda table: table.multi_read([(1, 2, 1)]),
    "scan": lambda table: list(table.scan(Range.prefix((1, 2)))),
    "large scan": lambda table: next(table.scan(limit=100)),
    "multi_scan": lambda table: list(table.multi_scan([Range.prefix((1, d)) for d in DISTRICTS])),
    "scan_index": lambda table: list(table.scan_index("last", "l1")),
    "upsert": lambda table: table.replace({"w": 1, "d": 2, "c": 1, "last": "l", "data": "d"}),
    "upsert_many": lambda table: table.upsert_many(
        {"w": 1, "d": 2, "c": 1, "last": "l", "data": "d", "balance": 0, "paid": 0, "payments": 0, "deliveries": 0}
        for _ in range(2)
    ),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.upsert({"w": 1, "d": 2, "c": 1, "data": "new"}),
        lambda table: table.update({"w": 1, "d": 2, "c": 1, "data": "new"}),
        lambda table: table.upsert_many([{"w": 1, "d": 2, "c": 1, "data": "new"}]),
    ],
    ids=["upsert", "update", "upsert_many"],
)
def test_partial_write_of_a_seen_row_takes_none(
    storage: Storage, proxy: Proxy, name: str, write: Callable[[StructuredTable], object]
) -> None:
    with storage.transaction() as transaction:
        table = transaction.table("customer")
        assert table.read((1, 1, 3)) is not None
        READS[name](table)
        assert proxy.trips_of(lambda: write(table)) == 0
    found = storage.table("customer").read((1, 2, 1))
    assert found is not None
    assert found["data"] == "new"


def test_scan_that_goes_on_after_a_delete_does_not_bring_the_row_back(storage: Storage) -> None:
    """Rows of a cursor are those of its call: what the transaction knows of them may be newer."""
    with storage.transaction() as transaction:
        table = transaction.table("line")
        rows = table.scan()
        assert next(rows).key == (1, 1, 1, 1)
        table.delete((1, 10, 3, 5))
        assert [row.key for row in rows][-1] == (1, 10, 3, 5)
        table.upsert({"w": 1, "d": 10, "o": 3, "n": 5, "quantity": 9})
        assert table.read((1, 10, 3, 5), ["quantity", "info"]) == {
            **dict(zip(("w", "d", "o", "n"), (1, 10, 3, 5), strict=True)),
            "quantity": 9,
            "info": None,
        }


FULL = TableSpecification("full", [Field.int("k"), Field.long("n"), Field.byte("b"), Field.bytes("p")], ["k"])


@pytest.fixture
def full(storage: Storage) -> Storage:
    """Give a table with rows that take no more: of 8 MiB, or next to the largest numbers."""
    storage.admin.create(FULL)
    storage.table("full").upsert({"k": 1, "p": bytes(MAX_ROW_SIZE - 4)})
    storage.table("full").upsert_many([{"k": k, "n": 2**63 - 2, "b": 126} for k in range(2, 10)])
    return storage


REFUSED: dict[str, tuple[type[Exception], Callable[[StructuredTable], None]]] = {
    "overflow": (InvalidFieldError, lambda table: table.increment((2,), "n", 2)),
    "overflow of eight bits": (InvalidFieldError, lambda table: table.increment((2,), "b", 2)),
    "overflow of one of two": (
        InvalidFieldError,
        lambda table: table.increment_many([((2,), "n", 1), ((2,), "b", 2)]),
    ),
    "overflow of many": (
        InvalidFieldError,
        lambda table: table.increment_many([((k,), "n", 1) for k in range(2, 10)] + [((9,), "n", 1)]),
    ),
    "size": (FieldSizeLimitError, lambda table: table.increment((1,), "n")),
    "size of many": (FieldSizeLimitError, lambda table: table.increment_many([((k,), "n", 1) for k in range(8)])),
}


def test_update_of_the_auto_commit_view_that_does_not_fit(full: Storage) -> None:
    """The server rejects it as it finds the row, and writes nothing."""
    table = full.table("full")
    changes: list[Row] = [{"n": 5}, {"n": 5, "b": 3}, {"n": 5, "p": bytes(MAX_ROW_SIZE)}]
    for change in changes:
        with pytest.raises(FieldSizeLimitError) as refusal:
            table.update({"k": 1, **change})
        assert refusal.value.limit == MAX_ROW_SIZE
    assert table.read((1,), ["n", "b"]) == {"k": 1, "n": None, "b": None}
    table.update({"k": 1, "n": 5, "p": bytes(5)})
    assert table.read((1,)) == {"k": 1, "n": 5, "b": None, "p": bytes(5)}


@pytest.mark.parametrize("name", REFUSED)
def test_increment_that_does_not_fit(full: Storage, name: str) -> None:
    """The commit refuses it, and before that each read that would see it; other operations go on."""
    error, increment = REFUSED[name]
    before = [dict(row) for row in full.table("full").scan(columns=["n", "b"])]
    transaction = full.transaction()
    table = transaction.table("full")
    table.upsert({"k": 20, "n": 1})
    increment(table)
    for _ in range(2):
        with pytest.raises(error):
            table.count()
        assert transaction.table("item").read((3,)) is not None
    table.upsert({"k": 21})
    with pytest.raises(error) as refusal:
        transaction.commit()
    if isinstance(refusal.value, FieldSizeLimitError):
        assert (refusal.value.size, refusal.value.limit) == (MAX_ROW_SIZE + 8, MAX_ROW_SIZE)
    assert [dict(row) for row in full.table("full").scan(columns=["n", "b"])] == before


@pytest.mark.parametrize(
    "write",
    [lambda table: table.delete((2,)), lambda table: table.replace({"k": 2, "n": 5})],
    ids=["delete", "replace"],
)
def test_increment_that_a_later_write_makes_void(full: Storage, write: Callable[[StructuredTable], None]) -> None:
    with full.transaction() as transaction:
        table = transaction.table("full")
        table.increment((2,), "n", 7)
        write(table)
    found = full.table("full").read((2,), ["n"])
    assert found is None or found["n"] == 5


def test_scan_closed_before_a_refused_write(full: Storage) -> None:
    """Its cursor stays closed, whatever is undone."""
    full.table("full").upsert_many([{"k": k, "n": 1} for k in range(100, 300)])
    with full.transaction() as transaction:
        table = transaction.table("full")
        rows = table.scan(Range.at_least((100,)))
        next(rows)
        table.increment((3,), "n")
        rows.close()
        table.increment((2,), "n", 7)
        with pytest.raises(InvalidFieldError):
            table.read((2,))
        table.delete((2,))
    found = full.table("full").read((3,), ["n"])
    assert found is not None
    assert found["n"] == 2**63 - 1


def test_writes_before_a_refused_one_are_sent_once(full: Storage) -> None:
    """What a transaction had to send before stays done, and what it copied afterwards is undone alone."""
    transaction = full.transaction()
    table = transaction.table("full")
    table.upsert_many([{"k": k, "n": k, "b": 0, "p": b""} for k in range(100, 300)])
    table.delete((100,))
    table.increment((2,), "n", 7)
    for _ in range(2):
        with pytest.raises(InvalidFieldError):
            list(table.scan(Range.prefix((101,))))
    with pytest.raises(InvalidFieldError):
        table.upsert_many([{"k": k, "n": k, "b": 0, "p": b""} for k in range(300, 500)])
    table.delete((2,))
    with pytest.raises(InvalidFieldError):
        table.upsert_many([{"k": k, "n": k, "b": k, "p": b""} for k in range(300, 500)])
    table.increment((101,), "n", 1)
    assert table.count([Range.at_least((2,))]) == 7 + 199
    transaction.commit()
    assert full.table("full").read((101,), ["n"]) == {"k": 101, "n": 102}
    assert full.table("full").count([Range.at_least((2,))]) == 7 + 199


def test_refused_write_of_a_large_transaction_ends_it(full: Storage) -> None:
    """Deferred writes that become many are sent; if one of them is refused, there is nothing left to commit."""
    transaction = full.transaction()
    table = transaction.table("full")
    table.increment((2,), "n", 7)
    for k in range(254):
        table.delete((100 + k,))
    with pytest.raises(InvalidFieldError):
        table.delete((400,))
    with pytest.raises(InvalidFieldError):
        transaction.table("item").read((3,))
    with pytest.raises(InvalidFieldError):
        transaction.commit()
    assert full.table("full").count() == 9


@pytest.mark.parametrize("name", CALLS_OF_TYPES)
def test_round_trips_of_table_types(storage: Storage, proxy: Proxy, name: str) -> None:
    """The table of docs/spi.md: merges and tables without a key."""
    create_tables_of_types(storage)
    of_table, call = CALLS_OF_TYPES[name]
    with storage.transaction() as transaction:
        assert transaction.table("customer").read((1, 1, 3)) is not None
        view = transaction.table(of_table)
        assert proxy.trips_of(lambda: call(view)) == int(name == "insert_many")
        assert proxy.trips_of(transaction.commit) == 1
