"""Queues of orders: their heads in the owner after deletes, and small scans and whole deliveries by a client.

The floor in the owner is plyvel's seek to the first row of a queue from which nothing was ever taken. The floor of a
client is one round trip over a bare Unix socket, see `client`; a delivery of ten orders reads ten heads of queues, ten
orders and the ten lines of each, all of which it changes, and a counter of each customer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from structable.spi import Field, Range, Row, Storage, TableSpecification, Transaction, Value, connect

from .peers import bare_exchange, on_one_core, owner
from .stores import RawDatabase, open_raw, url_of

AREA = "queues"
_DISTRICTS = 10
_LINES = 10
_ROW_BYTES = 100
_QUEUE = TableSpecification("queue", [Field.int("district"), Field.int("number")], ["district", "number"])
_ORDERS = TableSpecification(
    "orders",
    [Field.int("district"), Field.int("number"), Field.int("customer"), Field.int("carrier"), Field.string("note")],
    ["district", "number"],
)
_LINES_OF_ORDERS = TableSpecification(
    "lines",
    [Field.int("district"), Field.int("number"), Field.int("line"), Field.long("amount"), Field.long("delivered")],
    ["district", "number", "line"],
)
_CUSTOMERS = TableSpecification(
    "customers",
    [Field.int("district"), Field.int("customer"), Field.string("last"), Field.long("balance")],
    ["district", "customer"],
    indexes=["last"],
)


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure queues."""
    yield from _heads(folder, scale)
    url = url_of(folder / "served")
    with (
        owner(url),
        connect(url) as storage,
        tempfile.TemporaryDirectory() as short,
        bare_exchange(Path(short)) as exchange,
    ):
        yield from _by_client(storage, exchange, scale)


def _heads(folder: Path, scale: Scale) -> Iterator[Measurement]:
    taken, left = max(scale.rows // 40, 20), max(scale.rows // 10, 100)
    raw = open_raw(folder / "raw")
    for district in range(_DISTRICTS):
        for number in range(left // _DISTRICTS):
            raw.put(_raw_key(district, number), b"\1")
    samples = max(scale.samples // 10, 10)
    with connect(url_of(folder / "ours")) as storage:
        storage.admin.create(_QUEUE)
        rows = [{"district": d, "number": n} for d in range(_DISTRICTS) for n in range(taken + left // _DISTRICTS)]
        storage.table("queue").upsert_many(rows)
        for district, deletes in ((1, taken // 5), (2, taken)):
            for _ in range(deletes):
                with storage.transaction() as tx:
                    queue = tx.table("queue")
                    queue.delete(_head(queue.scan(Range.prefix((district,)), limit=1)))

        def ours(district: int) -> Round:
            table = storage.table("queue")

            def work() -> float:
                begin = perf_counter()
                for _ in range(samples):
                    _head(table.scan(Range.prefix((district,)), limit=1))
                return (perf_counter() - begin) / samples

            return work

        yield from compare(
            AREA,
            "plyvel's first row of a prefix, nothing deleted",
            lambda: _raw_heads(raw, samples),
            [
                Contender("head of a queue, auto-commit view", ours(0)),
                Contender(f"head of a queue after {taken // 5:,} deletes", ours(1)),
                Contender(f"head of a queue after {taken:,} deletes", ours(2)),
            ],
            scale.rounds,
        )
    raw.close()


def _raw_key(district: int, number: int) -> bytes:
    return b"queue" + district.to_bytes(4) + number.to_bytes(4)


def _raw_heads(raw: RawDatabase, samples: int) -> float:
    begin = perf_counter()
    for _ in range(samples):
        with raw.iterator(start=_raw_key(0, 0), stop=_raw_key(1, 0)) as iterator:
            next(iterator)
    return (perf_counter() - begin) / samples


def _head(rows: Iterator[Row]) -> tuple[Value, ...]:
    [row] = rows
    return row.key


def _by_client(storage: Storage, exchange: Callable[[int, int], None], scale: Scale) -> Iterator[Measurement]:
    for spec in (_QUEUE, _ORDERS, _LINES_OF_ORDERS, _CUSTOMERS):
        storage.admin.create(spec)
    customers: list[dict[str, Value]] = [
        {"district": district, "customer": customer, "last": "BARBAR", "balance": 0}
        for district in range(_DISTRICTS)
        for customer in range(10)
    ]
    storage.table("customers").upsert_many(customers)
    samples = max(scale.samples // 10, 10)
    deliveries = max(scale.samples // 400, 2)
    numbers = count()
    _add_orders(storage, [next(numbers) for _ in range(20)])

    def scans(limit: int) -> Round:
        table = storage.table("lines")

        def work() -> float:
            begin = perf_counter()
            for number in range(samples):
                assert len(list(table.scan(Range.prefix((number % _DISTRICTS,)), limit=limit))) == limit
            return (perf_counter() - begin) / samples

        return work

    def deliver() -> float:
        _add_orders(storage, [next(numbers) for _ in range(deliveries)])
        begin = perf_counter()
        for _ in range(deliveries):
            with storage.transaction() as tx:
                _deliver(tx)
        return (perf_counter() - begin) / deliveries

    def floor() -> float:
        with on_one_core():
            begin = perf_counter()
            for _ in range(samples):
                exchange(40, _ROW_BYTES)
            return (perf_counter() - begin) / samples

    yield from compare(
        AREA,
        "bare round trip: a key there, a row back",
        floor,
        [
            Contender("scan of one row by a client, auto-commit view", scans(1)),
            Contender("scan of 10 rows by a client, auto-commit view", scans(10)),
            Contender("delivery of ten orders by a client", deliver),
        ],
        scale.rounds,
    )


def _add_orders(storage: Storage, numbers: list[int]) -> None:
    of_all: list[dict[str, Value]] = [
        {"district": district, "number": number} for district in range(_DISTRICTS) for number in numbers
    ]
    with storage.transaction() as tx:
        tx.table("orders").upsert_many([{**one, "customer": 3, "note": "x" * 24} for one in of_all])
        lines = [{**one, "line": line, "amount": 7} for one in of_all for line in range(_LINES)]
        tx.table("lines").upsert_many(lines)
        tx.table("queue").upsert_many(of_all)


def _deliver(tx: Transaction) -> None:
    queue, orders, lines, customers = (tx.table(name) for name in ("queue", "orders", "lines", "customers"))
    for district in range(_DISTRICTS):
        key = _head(queue.scan(Range.prefix((district,)), limit=1))
        queue.delete(key)
        order = orders.read(key)
        assert order is not None
        orders.upsert({"district": district, "number": order.number, "carrier": 3})
        found = list(lines.scan(Range.prefix((district, order.number))))
        lines.upsert_many([{**dict(line), "delivered": 5} for line in found])
        customers.increment((district, order.customer), "balance", sum(line.amount for line in found))
