"""The order entry's requests, and the clients that make them.

Of a hundred requests 44 are new orders, 40 payments, 6 ask for an order's status, 4 deliver the oldest order of each
district, and 6 look for items that are low in stock. A client belongs to one warehouse. One line in a hundred
comes from the stock of another, three payments in twenty are made for a customer of another, and one new order in a
hundred names an item that does not exist and is rolled back. Some customers and items are more popular than others.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from benchmarks.workloads.programs import Action, Program, Step

from . import invariants
from .initial import EPOCH, initial_state, surname
from .invariants import Totals
from .model import Size, State

WORK = "orders"
"""The only kind of work."""

RECENT_ORDERS = 20
"""The orders of a district whose items a stock level is about."""

_PARTS = {"new_order": 44, "payment": 40, "order_status": 6, "delivery": 4, "stock_level": 6}
_BY_SURNAME = 0.4
_AWAY = 0.15
_ELSEWHERE = 0.01
_UNKNOWN = 0.01
_FEWEST_LINES, _MOST_LINES = 5, 15
_MOST = 10
_CARRIERS = 10


class UnknownItemError(LookupError):
    """A new order names an item that does not exist; it is rolled back."""


class CustomerChoice(NamedTuple):
    """A customer of a district, by number, or the middle one of a surname by forename."""

    warehouse: int
    district: int
    customer: int | None
    surname: str


class RequestedLine(NamedTuple):
    """A quantity of an item, from the stock of a warehouse."""

    supplier: int
    item: int
    quantity: int


@dataclass(frozen=True, slots=True)
class NewOrder:
    """A customer's order; its lines have different items, sorted by supplier and item."""

    warehouse: int
    district: int
    customer: int
    lines: tuple[RequestedLine, ...]
    entered: int


@dataclass(frozen=True, slots=True)
class PaymentMade:
    """A payment, made at a district."""

    warehouse: int
    district: int
    customer: CustomerChoice
    amount: int
    paid_at: int


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """The newest order of a customer."""

    customer: CustomerChoice


@dataclass(frozen=True, slots=True)
class Delivery:
    """The oldest order of each district that is not delivered."""

    warehouse: int
    carrier: int
    delivered: int


@dataclass(frozen=True, slots=True)
class StockLevel:
    """The number of items of the newest orders whose stock in the warehouse is below the threshold."""

    warehouse: int
    district: int
    threshold: int


def middle(customers: list[tuple[str, int]]) -> int:
    """Return the middle one of customers, given as forenames and numbers."""
    return sorted(customers)[len(customers) // 2][1]


class OrderProgram(Program):
    """A client of the order entry; each kind of store has its own.

    Parameters
    ----------
    size : Size
        The numbers of rows at first.
    client : int
        The client's number from 0; its warehouse follows.
    """

    def __init__(self, size: Size, *, client: int) -> None:
        self.size = size
        self.districts = range(1, size.districts + 1)
        self._client = client
        self._home = client % size.warehouses + 1

    @abstractmethod
    def load(self) -> None:
        """Create the tables with their first rows."""

    @abstractmethod
    def new_order(self, request: NewOrder) -> int:
        """Enter an order, and return 1, or 0 if an item does not exist."""

    @abstractmethod
    def payment(self, request: PaymentMade) -> int:
        """Enter a payment, and return 1."""

    @abstractmethod
    def order_status(self, request: OrderStatus) -> int:
        """Read the customer, the newest order and its lines, and return the number of lines; 0 without an order."""

    @abstractmethod
    def delivery(self, request: Delivery) -> int:
        """Deliver orders, and return their number."""

    @abstractmethod
    def stock_level(self, request: StockLevel) -> int:
        """Return the number of items."""

    @abstractmethod
    def state(self) -> State:
        """Return all rows, in key order."""

    def first_state(self) -> State:
        """Return the rows to load."""
        return initial_state(self.size)

    def totals(self) -> Totals:
        """Count what was done."""
        return invariants.totals(self.state())

    def faults(self, expected: Totals) -> list[str]:
        """Check all rows."""
        return invariants.faults(self.state(), expected)

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in _PARTS}

    def plan(self, work: str, seed: int, amount: int) -> list[Step]:
        chosen = random.Random(f"{work} {seed} {self._client}")
        now = count(EPOCH + (seed + 2) * 10**9 + self._client, 100)
        names, parts = list(_PARTS), list(_PARTS.values())
        make: Mapping[str, Callable[[random.Random, int], object]] = {
            "new_order": self._new_order,
            "payment": self._payment,
            "order_status": self._order_status,
            "delivery": self._delivery,
            "stock_level": self._stock_level,
        }
        steps: list[Step] = []
        for _ in range(amount):
            (name,) = chosen.choices(names, parts)
            steps.append((name, (make[name](chosen, next(now)),)))
        return steps

    def performed(self, steps: list[Step]) -> None:
        """Requests do not depend on earlier ones."""

    def _new_order(self, chosen: random.Random, now: int) -> NewOrder:
        numbers: set[int] = set()
        for _ in range(chosen.randint(_FEWEST_LINES, _MOST_LINES)):
            numbers.add(_popular(chosen, self.size.items))
        if chosen.random() < _UNKNOWN:
            numbers.add(self.size.items + 1)
        lines = sorted(
            RequestedLine(self._supplier(chosen), number, chosen.randint(1, _MOST)) for number in sorted(numbers)
        )
        return NewOrder(self._home, self._district(chosen), _popular(chosen, self.size.customers), tuple(lines), now)

    def _payment(self, chosen: random.Random, now: int) -> PaymentMade:
        home = self._other(chosen) if chosen.random() < _AWAY else self._home
        return PaymentMade(
            self._home, self._district(chosen), self._customer(chosen, home), chosen.randint(100, 500_000), now
        )

    def _order_status(self, chosen: random.Random, now: int) -> OrderStatus:
        return OrderStatus(self._customer(chosen, self._home))

    def _delivery(self, chosen: random.Random, now: int) -> Delivery:
        return Delivery(self._home, chosen.randint(1, _CARRIERS), now)

    def _stock_level(self, chosen: random.Random, now: int) -> StockLevel:
        return StockLevel(self._home, self._district(chosen), chosen.randint(15, 25))

    def _district(self, chosen: random.Random) -> int:
        return chosen.choice(self.districts)

    def _customer(self, chosen: random.Random, warehouse: int) -> CustomerChoice:
        number = None if chosen.random() < _BY_SURNAME else _popular(chosen, self.size.customers)
        name = surname(chosen.randrange(self.size.surnames))
        return CustomerChoice(warehouse, self._district(chosen), number, name)

    def _supplier(self, chosen: random.Random) -> int:
        return self._other(chosen) if chosen.random() < _ELSEWHERE else self._home

    def _other(self, chosen: random.Random) -> int:
        return chosen.randint(1, self.size.warehouses)


def _popular(chosen: random.Random, most: int) -> int:
    """Return a number up to `most`; a half of them are of the first quarter."""
    return int(most * chosen.random() ** 2) + 1
