"""The order entry's tables and rows.

Warehouses deliver to districts, which have customers. An order has lines, each of an item from the stock of some
warehouse, and waits in its district's queue until it is delivered. Amounts are in hundredths, times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from structable.spi import Field, TableSpecification, Value

FULL_STOCK = 100
"""The quantity of each item in stock at first."""

STOCK_MARGIN = 10
RESTOCK = 91
"""A sale that would leave less than the margin orders this number more."""


class Warehouse(NamedTuple):
    """A warehouse, and the sum of the payments that it received."""

    warehouse: int
    name: str
    tax: int
    received: int = 0


class District(NamedTuple):
    """A district; it numbers its orders from 1."""

    warehouse: int
    district: int
    name: str
    tax: int
    received: int
    next_order: int


class Customer(NamedTuple):
    """A customer; the balance is the sum of delivered orders without what was paid."""

    warehouse: int
    district: int
    customer: int
    surname: str
    forename: str
    discount: int
    balance: int
    paid: int
    payments: int
    deliveries: int
    note: str


class Payment(NamedTuple):
    """A customer's payment; each has payments from 1, made in any district."""

    warehouse: int
    district: int
    customer: int
    number: int
    at_warehouse: int
    at_district: int
    amount: int
    paid_at: int


class Order(NamedTuple):
    """An order; one that is not delivered has no carrier. The total is `total_of` its lines."""

    warehouse: int
    district: int
    number: int
    customer: int
    entered: int
    carrier: int | None
    lines: int
    total: int


class Queued(NamedTuple):
    """An order that is not delivered."""

    warehouse: int
    district: int
    number: int
    entered: int


class Line(NamedTuple):
    """A line of an order, from 1, with the time of its delivery."""

    warehouse: int
    district: int
    number: int
    line: int
    item: int
    supplier: int
    quantity: int
    amount: int
    delivered: int | None


class Item(NamedTuple):
    """An item."""

    item: int
    name: str
    price: int


class Stock(NamedTuple):
    """An item in a warehouse: `quantity + sold - restocked` never changes; `orders` counts lines."""

    warehouse: int
    item: int
    quantity: int
    sold: int
    restocked: int
    orders: int
    note: str


RowClass: TypeAlias = type[Warehouse | District | Customer | Payment | Order | Queued | Line | Item | Stock]

ROWS: Mapping[str, RowClass] = {
    "warehouses": Warehouse,
    "districts": District,
    "customers": Customer,
    "payments": Payment,
    "orders": Order,
    "queue": Queued,
    "lines": Line,
    "items": Item,
    "stock": Stock,
}
"""The class of the rows of each table."""

_KEYS = {
    "warehouses": 1,
    "districts": 2,
    "customers": 3,
    "payments": 4,
    "orders": 3,
    "queue": 3,
    "lines": 4,
    "items": 1,
    "stock": 2,
}
_INDEXES = {"customers": "surname", "orders": "customer"}
_TEXTS = {"name", "surname", "forename", "note"}
_LONGS = {
    "received",
    "balance",
    "paid",
    "amount",
    "paid_at",
    "entered",
    "delivered",
    "price",
    "total",
    "sold",
    "restocked",
}


def _specification(table: str, row: RowClass) -> TableSpecification:
    names = row._fields
    fields = [
        Field.string(name) if name in _TEXTS else Field.long(name) if name in _LONGS else Field.int(name)
        for name in names
    ]
    index = _INDEXES.get(table)
    return TableSpecification(table, fields, names[: _KEYS[table]], indexes=[index] if index else [])


SPECIFICATIONS = {table: _specification(table, row) for table, row in ROWS.items()}
"""The tables; customers are also found by surname, orders by customer."""


def total_of(amount: int, discount: int, warehouse_tax: int, district_tax: int) -> int:
    """Return an order's total from the amount of its lines, with discount and taxes in hundredths of a percent."""
    return amount * (10_000 - discount) * (10_000 + warehouse_tax + district_tax) // 10**8


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of rows at first.

    Parameters
    ----------
    warehouses, items : int
        Of all.
    districts, customers, orders : int
        Of a warehouse, and of each district.
    """

    warehouses: int = 4
    districts: int = 10
    customers: int = 1_000
    orders: int = 30
    items: int = 10_000

    @classmethod
    def of(cls, records: int) -> Size:
        """Return the numbers that go with the given number of YCSB's records."""
        return cls(customers=max(records // 100, 1), items=records // 10)

    @property
    def surnames(self) -> int:
        """The number of surnames; three customers of a district share one."""
        return max(self.customers // 3, 1)


@dataclass(frozen=True, slots=True)
class State:
    """All rows of all tables, each in key order."""

    warehouses: list[Warehouse]
    districts: list[District]
    customers: list[Customer]
    payments: list[Payment]
    orders: list[Order]
    queue: list[Queued]
    lines: list[Line]
    items: list[Item]
    stock: list[Stock]

    @classmethod
    def of(cls, tables: Mapping[str, Iterable[Iterable[Value]]]) -> State:
        """Make rows of the values of each table, in the order of the specification."""
        return cls(**{name: [ROWS[name](*values) for values in rows] for name, rows in tables.items()})  # type: ignore[arg-type]


def as_mapping(row: NamedTuple) -> dict[str, Value]:
    """Return a row by the names of its fields."""
    return row._asdict()
