"""The rows at first: a consistent state, in which two thirds of the orders are delivered."""

from __future__ import annotations

import random
import string
from collections import Counter, defaultdict
from itertools import product

from .model import (
    FULL_STOCK,
    Customer,
    District,
    Item,
    Line,
    Order,
    Payment,
    Queued,
    Size,
    State,
    Stock,
    Warehouse,
    total_of,
)

EPOCH = 1_700_000_000_000_000
"""The time of everything at first, in microseconds."""

_LINES = 10
_QUANTITY = 5
_CARRIER = 1
_OPENING_PAYMENT = 1_000
_NOTE = 200
_STOCK_NOTE = 50


def surname(number: int) -> str:
    """Return a surname."""
    return f"surname-{number:05}"


def initial_state(size: Size) -> State:
    """Return all rows, always the same ones."""
    chosen = random.Random(2013)
    items = [Item(number, f"item-{number:06}", chosen.randrange(100, 10_000)) for number in _numbers(size.items)]
    places = list(product(_numbers(size.warehouses), _numbers(size.districts)))
    orders, lines = _orders(size, places, items, chosen)
    payments = [
        Payment(*place, customer, 1, *place, _OPENING_PAYMENT, EPOCH)
        for place in places
        for customer in _numbers(size.customers)
    ]
    received = size.customers * _OPENING_PAYMENT
    sold = Counter((line.supplier, line.item) for line in lines)
    return State(
        warehouses=[
            Warehouse(number, f"warehouse-{number}", _tax(number), received * size.districts)
            for number in _numbers(size.warehouses)
        ],
        districts=[
            District(*place, f"district-{place[1]}", _tax(place[1]), received, size.orders + 1) for place in places
        ],
        customers=_customers(size, orders, lines, payments, chosen),
        payments=payments,
        orders=orders,
        queue=[Queued(*order[:3], order.entered) for order in orders if order.carrier is None],
        lines=lines,
        items=items,
        stock=[
            Stock(*key, FULL_STOCK, sold[key] * _QUANTITY, sold[key] * _QUANTITY, sold[key], _text(chosen, _STOCK_NOTE))
            for key in product(_numbers(size.warehouses), _numbers(size.items))
        ],
    )


def _orders(
    size: Size, places: list[tuple[int, int]], items: list[Item], chosen: random.Random
) -> tuple[list[Order], list[Line]]:
    orders, lines = [], []
    for (warehouse, district), number in product(places, _numbers(size.orders)):
        carrier, delivered = (_CARRIER, EPOCH) if number <= size.orders * 2 // 3 else (None, None)
        customer = chosen.randrange(size.customers) + 1
        added = [
            Line(warehouse, district, number, line, item.item, warehouse, _QUANTITY, _QUANTITY * item.price, delivered)
            for line, item in enumerate(chosen.sample(items, _LINES), 1)
        ]
        amount = sum(line.amount for line in added)
        total = total_of(amount, _discount(customer), _tax(warehouse), _tax(district))
        orders.append(Order(warehouse, district, number, customer, EPOCH, carrier, _LINES, total))
        lines += added
    return orders, lines


def _numbers(count: int) -> range:
    return range(1, count + 1)


def _tax(number: int) -> int:
    return number * 37 % 2_000


def _discount(customer: int) -> int:
    return customer * 41 % 5_000


def _text(chosen: random.Random, length: int) -> str:
    return "".join(chosen.choices(string.ascii_letters, k=length))


def _customers(
    size: Size, orders: list[Order], lines: list[Line], payments: list[Payment], chosen: random.Random
) -> list[Customer]:
    amounts = Counter[tuple[int, ...]]()
    for line in lines:
        amounts[line[:3]] += line.amount
    delivered: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for order in orders:
        if order.carrier is not None:
            delivered[order.warehouse, order.district, order.customer].append(amounts[order[:3]])
    return [
        Customer(
            *payment[:3],
            surname=surname(payment.customer % size.surnames),
            forename=f"forename-{chosen.randrange(1_000):03}",
            discount=_discount(payment.customer),
            balance=sum(delivered[payment[:3]]) - payment.amount,
            paid=payment.amount,
            payments=payment.number,
            deliveries=len(delivered[payment[:3]]),
            note=_text(chosen, _NOTE),
        )
        for payment in payments
    ]
