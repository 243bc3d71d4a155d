"""The checks of a state: sums, counters, queues and references that every transaction keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .model import FULL_STOCK, STOCK_MARGIN, State, total_of


@dataclass(frozen=True, slots=True)
class Totals:
    """What clients have done, as the tables count it.

    Parameters
    ----------
    orders, payments, delivered : int
        Orders, payments, and orders that are delivered.
    """

    orders: int
    payments: int
    delivered: int

    def after(self, effects: Mapping[str, int]) -> Totals:
        """Return the totals after actions with these effects, all of them acknowledged."""
        return Totals(
            self.orders + effects.get("new_order", 0),
            self.payments + effects.get("payment", 0),
            self.delivered + effects.get("delivery", 0),
        )


def totals(state: State) -> Totals:
    """Count what was done."""
    return Totals(len(state.orders), len(state.payments), sum(order.carrier is not None for order in state.orders))


def faults(state: State, expected: Totals | None = None) -> list[str]:
    """Return descriptions of all faults of a state; none is a consistent one.

    Parameters
    ----------
    state : State
        All rows.
    expected : Totals, optional
        The totals that were acknowledged.
    """
    return [
        *_payments(state),
        *_orders(state),
        *_lines(state),
        *_stock(state),
        *_customers(state),
        *([] if expected is None else _differences("acknowledged", {"totals": expected}, {"totals": totals(state)})),
    ]


def _payments(state: State) -> Iterator[str]:
    """What warehouses and districts received is the sum of payments; customers number theirs from 1."""
    by_district, by_warehouse, by_customer = (Counter[object]() for _ in range(3))
    numbers: dict[object, list[int]] = {}
    for payment in state.payments:
        by_district[payment.at_warehouse, payment.at_district] += payment.amount
        by_warehouse[payment.at_warehouse] += payment.amount
        by_customer[payment[:3]] += payment.amount
        numbers.setdefault(payment[:3], []).append(payment.number)
    yield from _differences("received by district", by_district, {row[:2]: row.received for row in state.districts})
    yield from _differences(
        "received by warehouse", by_warehouse, {row.warehouse: row.received for row in state.warehouses}
    )
    yield from _differences("paid by customer", by_customer, {row[:3]: row.paid for row in state.customers})
    yield from _differences(
        "payments of customer",
        {key: sorted(found) for key, found in numbers.items()},
        {row[:3]: list(range(1, row.payments + 1)) for row in state.customers},
        [],
    )


def _orders(state: State) -> Iterator[str]:
    """Districts number their orders from 1 without gaps, and queue exactly those that are not delivered."""
    numbers: dict[object, list[int]] = {}
    for order in state.orders:
        numbers.setdefault(order[:2], []).append(order.number)
    yield from _differences(
        "orders of district",
        {key: sorted(found) for key, found in numbers.items()},
        {row[:2]: list(range(1, row.next_order)) for row in state.districts},
        [],
    )
    yield from _differences(
        "queued order",
        {row[:3]: row.entered for row in state.orders if row.carrier is None},
        {row[:3]: row.entered for row in state.queue},
        None,
    )
    yield from _order_totals(state)


def _order_totals(state: State) -> Iterator[str]:
    """An order's customer exists, and its total follows from its lines, the discount and the taxes."""
    amounts = Counter[object]()
    for line in state.lines:
        amounts[line[:3]] += line.amount
    discounts = {row[:3]: row.discount for row in state.customers}
    warehouse_taxes = {row.warehouse: row.tax for row in state.warehouses}
    district_taxes = {row[:2]: row.tax for row in state.districts}
    for order in state.orders:
        discount = discounts.get((order.warehouse, order.district, order.customer))
        if discount is None:
            yield f"order {order[:3]} is of customer {order.customer}, who does not exist"
            continue
        total = total_of(amounts[order[:3]], discount, warehouse_taxes[order.warehouse], district_taxes[order[:2]])
        if order.total != total:
            yield f"order {order[:3]} has a total of {order.total} instead of {total}"


def _lines(state: State) -> Iterator[str]:
    """An order has the lines that it counts, from 1, of items that exist, at their prices, delivered with the order."""
    numbers: dict[object, list[int]] = {}
    delivered = {order[:3]: order.carrier is not None for order in state.orders}
    prices = {item.item: item.price for item in state.items}
    for line in state.lines:
        numbers.setdefault(line[:3], []).append(line.line)
        if line[:3] in delivered and (line.delivered is not None) != delivered[line[:3]]:
            yield f"line {line[:4]} is delivered at {line.delivered}, other than its order"
        if line.amount != line.quantity * prices.get(line.item, -1):
            yield f"line {line[:4]} has amount {line.amount} for {line.quantity} of item {line.item}"
    yield from _differences(
        "lines of order",
        {row[:3]: list(range(1, row.lines + 1)) for row in state.orders},
        {key: sorted(found) for key, found in numbers.items()},
        [],
    )


def _stock(state: State) -> Iterator[str]:
    """What stock sold is the sum of the lines, and what it has is what it had at first, restocked and sold."""
    sold, orders = Counter[object](), Counter[object]()
    for line in state.lines:
        sold[line.supplier, line.item] += line.quantity
        orders[line.supplier, line.item] += 1
    yield from _differences("sold of stock", sold, {row[:2]: row.sold for row in state.stock})
    yield from _differences("lines of stock", orders, {row[:2]: row.orders for row in state.stock})
    for row in state.stock:
        if row.quantity + row.sold - row.restocked != FULL_STOCK or row.quantity < STOCK_MARGIN:
            yield f"stock {row[:2]} has {row.quantity} after {row.sold} sold and {row.restocked} restocked"


def _customers(state: State) -> Iterator[str]:
    """A customer's balance is the sum of delivered orders without payments."""
    amounts, owed, deliveries = (Counter[object]() for _ in range(3))
    for line in state.lines:
        amounts[line[:3]] += line.amount
    for order in state.orders:
        if order.carrier is not None:
            customer = order.warehouse, order.district, order.customer
            owed[customer] += amounts[order[:3]]
            deliveries[customer] += 1
    yield from _differences("owed by customer", owed, {row[:3]: row.balance + row.paid for row in state.customers})
    yield from _differences("deliveries to customer", deliveries, {row[:3]: row.deliveries for row in state.customers})


def _differences(
    what: str, expected: Mapping[object, object], found: Mapping[object, object], absent: object = 0
) -> Iterator[str]:
    for key in {**expected, **found}:
        one, other = expected.get(key, absent), found.get(key, absent)
        if one != other:
            yield f"{what} {key}: {other} instead of {one}"
