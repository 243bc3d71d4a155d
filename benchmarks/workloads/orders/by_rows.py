"""The order entry by hand in SQL, with one statement a row where rows are looked up or written by key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from .model import RESTOCK, STOCK_MARGIN, Size, total_of
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

Result = TypeVar("Result")
SqlRow = tuple[Any, ...]

_PLACE = "warehouse = ? AND district = ?"
_ORDER = f"{_PLACE} AND number = ?"
_CUSTOMER = f"{_PLACE} AND customer = ?"

_DISCOUNT = f"SELECT discount FROM customers WHERE {_CUSTOMER}"
_WAREHOUSE_TAX = "SELECT tax FROM warehouses WHERE warehouse = ?"
_DRAW = f"UPDATE districts SET next_order = next_order + 1 WHERE {_PLACE} RETURNING next_order - 1, tax"
_PRICE = "SELECT price FROM items WHERE item = ?"
_SELL = (
    f"UPDATE stock SET quantity = quantity - ? + CASE WHEN quantity - ? < {STOCK_MARGIN} THEN {RESTOCK} ELSE 0 END,"
    f" restocked = restocked + CASE WHEN quantity - ? < {STOCK_MARGIN} THEN {RESTOCK} ELSE 0 END,"
    " sold = sold + ?, orders = orders + 1 WHERE warehouse = ? AND item = ?"
)
_ADD_LINE = (
    "INSERT INTO lines (warehouse, district, number, line, item, supplier, quantity, amount)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_ORDER = (
    "INSERT INTO orders (warehouse, district, number, customer, entered, lines, total) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ENQUEUE = "INSERT INTO queue (warehouse, district, number, entered) VALUES (?, ?, ?, ?)"

_BY_SURNAME = f"SELECT forename, customer FROM customers WHERE {_PLACE} AND surname = ?"
_WAREHOUSE_RECEIVES = "UPDATE warehouses SET received = received + ? WHERE warehouse = ?"
_DISTRICT_RECEIVES = f"UPDATE districts SET received = received + ? WHERE {_PLACE}"
_PAY = (
    "UPDATE customers SET balance = balance - ?, paid = paid + ?, payments = payments + 1"
    f" WHERE {_CUSTOMER} RETURNING payments"
)
_ADD_PAYMENT = (
    "INSERT INTO payments (warehouse, district, customer, number, at_warehouse, at_district, amount, paid_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

_NAME = f"SELECT forename, surname, balance FROM customers WHERE {_CUSTOMER}"
_NEWEST = f"SELECT number, entered, carrier, lines, total FROM orders WHERE {_CUSTOMER} ORDER BY number DESC LIMIT 1"
_LINES = f"SELECT line, item, supplier, quantity, amount, delivered FROM lines WHERE {_ORDER} ORDER BY line"

_HEAD = f"SELECT number FROM queue WHERE {_PLACE} ORDER BY number LIMIT 1"
_DEQUEUE = f"DELETE FROM queue WHERE {_ORDER}"
_CARRY = f"UPDATE orders SET carrier = ? WHERE {_ORDER} RETURNING customer"
_DELIVER = f"UPDATE lines SET delivered = ? WHERE {_ORDER}"
_AMOUNT = f"SELECT sum(amount) FROM lines WHERE {_ORDER}"
_OWE = f"UPDATE customers SET balance = balance + ?, deliveries = deliveries + 1 WHERE {_CUSTOMER}"

STOCK_LEVEL = (
    "SELECT count(*) FROM stock WHERE warehouse = ? AND quantity < ? AND item IN ("
    "SELECT lines.item FROM lines JOIN districts"
    " ON lines.warehouse = districts.warehouse AND lines.district = districts.district"
    f" AND lines.number >= districts.next_order - {RECENT_ORDERS}"
    " WHERE districts.warehouse = ? AND districts.district = ?)"
)


class OrdersByRows(OrderProgram):
    """The statements, for any connection."""

    def __init__(self, size: Size, *, client: int) -> None:
        super().__init__(size, client=client)

    @abstractmethod
    def write(self, statement: str, *values: object) -> None:
        """Execute a statement without a result."""

    @abstractmethod
    def select(self, statement: str, *values: object) -> list[SqlRow]:
        """Execute a statement, and return its rows."""

    @abstractmethod
    def run(self, body: Callable[[], Result], *, read_only: bool = False) -> Result:
        """Run a transaction, again after a conflict."""

    def new_order(self, request: NewOrder) -> int:
        try:
            return self.run(lambda: self._enter(request))
        except UnknownItemError:
            return 0

    def payment(self, request: PaymentMade) -> int:
        return self.run(lambda: self._pay(request))

    def order_status(self, request: OrderStatus) -> int:
        return self.run(lambda: self._status(request), read_only=True)

    def delivery(self, request: Delivery) -> int:
        return self.run(lambda: sum(self._deliver(request, district) for district in self.districts))

    def stock_level(self, request: StockLevel) -> int:
        ((found,),) = self.select(
            STOCK_LEVEL, request.warehouse, request.threshold, request.warehouse, request.district
        )
        return int(found)

    def _enter(self, request: NewOrder) -> int:
        write, select = self.write, self.select
        place = request.warehouse, request.district
        ((discount,),) = select(_DISCOUNT, *place, request.customer)
        ((warehouse_tax,),) = select(_WAREHOUSE_TAX, request.warehouse)
        ((number, district_tax),) = select(_DRAW, *place)
        total = 0
        for position, (supplier, item, quantity) in enumerate(request.lines, 1):
            prices = select(_PRICE, item)
            if not prices:
                raise UnknownItemError
            amount = quantity * prices[0][0]
            total += amount
            write(_SELL, quantity, quantity, quantity, quantity, supplier, item)
            write(_ADD_LINE, *place, number, position, item, supplier, quantity, amount)
        total = total_of(total, discount, warehouse_tax, district_tax)
        write(_ADD_ORDER, *place, number, request.customer, request.entered, len(request.lines), total)
        write(_ENQUEUE, *place, number, request.entered)
        return 1

    def _chosen(self, choice: CustomerChoice) -> tuple[int, int, int]:
        number = choice.customer
        if number is None:
            number = middle(self.select(_BY_SURNAME, choice.warehouse, choice.district, choice.surname))
        return choice.warehouse, choice.district, number

    def _pay(self, request: PaymentMade) -> int:
        amount, place = request.amount, (request.warehouse, request.district)
        self.write(_WAREHOUSE_RECEIVES, amount, request.warehouse)
        self.write(_DISTRICT_RECEIVES, amount, *place)
        key = self._chosen(request.customer)
        ((number,),) = self.select(_PAY, amount, amount, *key)
        self.write(_ADD_PAYMENT, *key, number, *place, amount, request.paid_at)
        return 1

    def _status(self, request: OrderStatus) -> int:
        key = self._chosen(request.customer)
        self.select(_NAME, *key)
        orders = self.select(_NEWEST, *key)
        if not orders:
            return 0
        lines = self.select(_LINES, *key[:2], orders[0][0])
        assert len(lines) == orders[0][3]
        return len(lines)

    def _deliver(self, request: Delivery, district: int) -> int:
        place = request.warehouse, district
        heads = self.select(_HEAD, *place)
        if not heads:
            return 0
        order = *place, heads[0][0]
        self.write(_DEQUEUE, *order)
        ((customer,),) = self.select(_CARRY, request.carrier, *order)
        self.write(_DELIVER, request.delivered, *order)
        ((amount,),) = self.select(_AMOUNT, *order)
        self.write(_OWE, amount, *place, customer)
        return 1
