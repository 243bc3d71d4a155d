"""The order entry against structable's interface: rows that belong together are read and written in one call."""

from __future__ import annotations

from collections import Counter

from benchmarks.rows import batches
from structable.spi import Range, Transaction, connect

from .model import RESTOCK, ROWS, SPECIFICATIONS, STOCK_MARGIN, Size, State, as_mapping, total_of
from .requests import (
    RECENT_ORDERS,
    CustomerChoice,
    Delivery,
    NewOrder,
    OrderProgram,
    OrderStatus,
    PaymentMade,
    StockLevel,
    UnknownItemError,
    middle,
)

_ORDER = "warehouse", "district", "number"


class SpiOrders(OrderProgram):
    """A client of a structable store."""

    def __init__(self, url: str, size: Size, *, client: int, clients: int = 1) -> None:
        super().__init__(size, client=client)
        self._storage = connect(url)

    def load(self) -> None:
        state = self.first_state()
        for name, specification in SPECIFICATIONS.items():
            self._storage.admin.create(specification)
            for batch in batches(as_mapping(row) for row in getattr(state, name)):
                self._storage.table(name).upsert_many(batch)

    def state(self) -> State:
        with self._storage.transaction(read_only=True) as tx:
            return State.of({name: (row.values() for row in tx.table(name).scan()) for name in ROWS})

    def close(self) -> None:
        self._storage.close()

    def new_order(self, request: NewOrder) -> int:
        try:
            return self._storage.run(lambda tx: _enter(tx, request))
        except UnknownItemError:
            return 0

    def payment(self, request: PaymentMade) -> int:
        return self._storage.run(lambda tx: _pay(tx, request))

    def order_status(self, request: OrderStatus) -> int:
        return self._storage.run(lambda tx: _status(tx, request), read_only=True)

    def delivery(self, request: Delivery) -> int:
        return self._storage.run(lambda tx: _deliver(tx, request, self.districts))

    def stock_level(self, request: StockLevel) -> int:
        return self._storage.run(lambda tx: _stock(tx, request), read_only=True)


def _enter(tx: Transaction, request: NewOrder) -> int:
    place = {"warehouse": request.warehouse, "district": request.district}
    customer = tx.table("customers").read((*place.values(), request.customer), columns=["discount"])
    warehouse = tx.table("warehouses").read((request.warehouse,), columns=["tax"])
    district = tx.table("districts").read(place, columns=["tax", "next_order"])
    assert customer is not None
    assert warehouse is not None
    assert district is not None
    items = tx.table("items").multi_read([(line.item,) for line in request.lines], columns=["price"])
    prices = {row.item: row.price for row in items}
    stock = tx.table("stock").multi_read([(line.supplier, line.item) for line in request.lines])
    if len(stock) < len(request.lines):
        raise UnknownItemError

    changes, lines, amount = [], [], 0
    order = place | {"number": district.next_order}
    # Requested lines and rows are both sorted by supplier and item.
    for number, (line, row) in enumerate(zip(request.lines, stock, strict=True), 1):
        left = row.quantity - line.quantity
        more = RESTOCK if left < STOCK_MARGIN else 0
        changes.append(
            {
                "warehouse": line.supplier,
                "item": line.item,
                "quantity": left + more,
                "sold": row.sold + line.quantity,
                "restocked": row.restocked + more,
                "orders": row.orders + 1,
            }
        )
        price = line.quantity * prices[line.item]
        amount += price
        lines.append(
            order
            | {
                "line": number,
                "item": line.item,
                "supplier": line.supplier,
                "quantity": line.quantity,
                "amount": price,
            }
        )
    total = total_of(amount, customer.discount, warehouse.tax, district.tax)
    tx.table("districts").upsert(place | {"next_order": district.next_order + 1})
    tx.table("orders").upsert(
        order | {"customer": request.customer, "entered": request.entered, "lines": len(lines), "total": total}
    )
    tx.table("queue").upsert(order | {"entered": request.entered})
    tx.table("lines").upsert_many(lines)
    tx.table("stock").upsert_many(changes)
    return 1


def _chosen(tx: Transaction, choice: CustomerChoice) -> tuple[int, int, int]:
    """Return the key of a customer."""
    number = choice.customer
    if number is None:
        district = Range.prefix((choice.warehouse, choice.district))
        found = tx.table("customers").scan_index("surname", choice.surname, range=district, columns=["forename"])
        number = middle([(row.forename, row.customer) for row in found])
    return choice.warehouse, choice.district, number


def _pay(tx: Transaction, request: PaymentMade) -> int:
    key = _chosen(tx, request.customer)
    customer = tx.table("customers").read(key, columns=["balance", "paid", "payments"])
    assert customer is not None
    owner = dict(zip(("warehouse", "district", "customer"), key, strict=True))
    tx.table("warehouses").increment((request.warehouse,), "received", request.amount)
    tx.table("districts").increment((request.warehouse, request.district), "received", request.amount)
    tx.table("customers").upsert(
        owner
        | {
            "balance": customer.balance - request.amount,
            "paid": customer.paid + request.amount,
            "payments": customer.payments + 1,
        }
    )
    tx.table("payments").upsert(
        owner
        | {
            "number": customer.payments + 1,
            "at_warehouse": request.warehouse,
            "at_district": request.district,
            "amount": request.amount,
            "paid_at": request.paid_at,
        }
    )
    return 1


def _status(tx: Transaction, request: OrderStatus) -> int:
    warehouse, district, number = _chosen(tx, request.customer)
    customer = tx.table("customers").read((warehouse, district, number), columns=["forename", "surname", "balance"])
    assert customer is not None
    orders = tx.table("orders").scan_index(
        "customer", number, range=Range.prefix((warehouse, district)), reverse=True, limit=1
    )
    order = next(orders, None)
    if order is None:
        return 0
    lines = list(tx.table("lines").scan(Range.prefix(order.key)))
    assert len(lines) == order["lines"]
    return len(lines)


def _deliver(tx: Transaction, request: Delivery, districts: range) -> int:
    queues = [Range.prefix((request.warehouse, district)) for district in districts]
    oldest = [row.key for row in tx.table("queue").multi_scan(queues, limit_per_range=1)]
    if not oldest:
        return 0
    orders = {row.key: row.customer for row in tx.table("orders").multi_read(oldest, columns=["customer"])}
    amounts, delivered = Counter[tuple[int, int, int]](), []
    for line in tx.table("lines").multi_scan(map(Range.prefix, oldest), columns=["amount"]):
        order = line.warehouse, line.district, line.number
        amounts[line.warehouse, line.district, orders[order]] += line.amount
        delivered.append(dict(zip((*_ORDER, "line"), line.key, strict=True)) | {"delivered": request.delivered})
    tx.table("queue").delete_many(oldest)
    tx.table("orders").upsert_many(dict(zip(_ORDER, key, strict=True)) | {"carrier": request.carrier} for key in oldest)
    tx.table("lines").upsert_many(delivered)
    tx.table("customers").increment_many(
        [(key, "balance", amount) for key, amount in amounts.items()] + [(key, "deliveries", 1) for key in amounts]
    )
    return len(oldest)


def _stock(tx: Transaction, request: StockLevel) -> int:
    place = request.warehouse, request.district
    district = tx.table("districts").read(place, columns=["next_order"])
    assert district is not None
    recent = Range((*place, district.next_order - RECENT_ORDERS), place, end_inclusive=True)
    lines = tx.table("lines").scan(recent, columns=["item"])
    items = {(request.warehouse, line.item) for line in lines}
    stock = tx.table("stock").multi_read(items, columns=["quantity"])
    return sum(row.quantity < request.threshold for row in stock)
