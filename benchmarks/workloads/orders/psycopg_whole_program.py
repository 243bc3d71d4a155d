"""The order entry by hand against PostgreSQL, with one statement for all rows of a table, in arrays."""

from __future__ import annotations

from benchmarks.workloads.postgresql import PostgresqlPlace

from .by_rows import STOCK_LEVEL
from .model import RESTOCK, STOCK_MARGIN, Size, State, total_of
from .psycopg_program import load_tables, read_state
from .requests import (
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

_PLACE = b"warehouse = %s AND district = %s"
_CUSTOMER = _PLACE + b" AND customer = %s"

_TERMS = b"SELECT discount, tax FROM customers JOIN warehouses USING (warehouse) WHERE " + _CUSTOMER
_DRAW = b"UPDATE districts SET next_order = next_order + 1 WHERE " + _PLACE + b" RETURNING next_order - 1, tax"
_PRICES = b"SELECT item, price FROM items WHERE item = ANY(%s::integer[])"
_SELL = (
    f"UPDATE stock SET quantity = stock.quantity - l.quantity"
    f" + CASE WHEN stock.quantity - l.quantity < {STOCK_MARGIN} THEN {RESTOCK} ELSE 0 END,"
    f" restocked = restocked + CASE WHEN stock.quantity - l.quantity < {STOCK_MARGIN} THEN {RESTOCK} ELSE 0 END,"
    " sold = sold + l.quantity, orders = orders + 1"
    " FROM unnest(%s::integer[], %s::integer[], %s::integer[]) AS l (supplier, item, quantity)"
    " WHERE stock.warehouse = l.supplier AND stock.item = l.item"
).encode()
_ADD_ORDER = (
    b"INSERT INTO orders (warehouse, district, number, customer, entered, lines, total)"
    b" VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_ENQUEUE = b"INSERT INTO queue (warehouse, district, number, entered) VALUES (%s, %s, %s, %s)"
_ADD_LINES = (
    b"INSERT INTO lines (warehouse, district, number, line, supplier, item, quantity, amount)"
    b" SELECT %s, %s, %s, l.line, l.supplier, l.item, l.quantity, l.amount"
    b" FROM unnest(%s::integer[], %s::integer[], %s::integer[], %s::bigint[])"
    b" WITH ORDINALITY AS l (supplier, item, quantity, amount, line)"
)

_BY_SURNAME = b"SELECT forename, customer FROM customers WHERE " + _PLACE + b" AND surname = %s"
_WAREHOUSE_RECEIVES = b"UPDATE warehouses SET received = received + %s WHERE warehouse = %s"
_DISTRICT_RECEIVES = b"UPDATE districts SET received = received + %s WHERE " + _PLACE
_PAY = (
    b"UPDATE customers SET balance = balance - %s, paid = paid + %s, payments = payments + 1 WHERE "
    + _CUSTOMER
    + b" RETURNING payments"
)
_ADD_PAYMENT = (
    b"INSERT INTO payments (warehouse, district, customer, number, at_warehouse, at_district, amount, paid_at)"
    b" VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
)

_STATUS = (
    b"SELECT c.forename, c.surname, c.balance, o.number, o.entered, o.carrier, o.lines, o.total,"
    b" l.line, l.item, l.supplier, l.quantity, l.amount, l.delivered"
    b" FROM customers c CROSS JOIN LATERAL (SELECT * FROM orders WHERE warehouse = c.warehouse"
    b" AND district = c.district AND customer = c.customer ORDER BY number DESC LIMIT 1) o"
    b" JOIN lines l ON l.warehouse = o.warehouse AND l.district = o.district AND l.number = o.number"
    b" WHERE c.warehouse = %s AND c.district = %s AND c.customer = %s ORDER BY l.line"
)

_DEQUEUE = (
    b"DELETE FROM queue USING (SELECT head.* FROM unnest(%s::integer[]) AS d (district) CROSS JOIN LATERAL"
    b" (SELECT warehouse, district, number FROM queue WHERE warehouse = %s AND district = d.district"
    b" ORDER BY number LIMIT 1) head) AS oldest"
    b" WHERE queue.warehouse = oldest.warehouse AND queue.district = oldest.district AND queue.number = oldest.number"
    b" RETURNING queue.district, queue.number"
)
_CARRY = (
    b"UPDATE orders SET carrier = %s FROM unnest(%s::integer[], %s::integer[]) AS d (district, number)"
    b" WHERE orders.warehouse = %s AND orders.district = d.district AND orders.number = d.number"
    b" RETURNING orders.district, orders.customer"
)
_DELIVER = (
    b"WITH delivered AS (UPDATE lines SET delivered = %s"
    b" FROM unnest(%s::integer[], %s::integer[]) AS d (district, number)"
    b" WHERE lines.warehouse = %s AND lines.district = d.district AND lines.number = d.number"
    b" RETURNING lines.district, lines.amount) SELECT district, sum(amount)::bigint FROM delivered GROUP BY district"
)
_OWE = (
    b"UPDATE customers SET balance = balance + d.amount, deliveries = deliveries + 1"
    b" FROM unnest(%s::integer[], %s::integer[], %s::bigint[]) AS d (district, customer, amount)"
    b" WHERE customers.warehouse = %s AND customers.district = d.district AND customers.customer = d.customer"
)
_STOCK_LEVEL = STOCK_LEVEL.replace("?", "%s").encode()


class PsycopgWholeOrders(OrderProgram):
    """A client of a PostgreSQL database."""

    def __init__(self, place: PostgresqlPlace, size: Size, *, client: int, clients: int = 1) -> None:
        super().__init__(size, client=client)
        self._database = place.connect()
        self._execute = self._database.execute

    def load(self) -> None:
        load_tables(self._database, self.first_state())

    def state(self) -> State:
        return read_state(self._database)

    def close(self) -> None:
        self._database.close()

    def new_order(self, request: NewOrder) -> int:
        try:
            return self._database.run(lambda: self._enter(request))
        except UnknownItemError:
            return 0

    def payment(self, request: PaymentMade) -> int:
        return self._database.run(lambda: self._pay(request))

    def order_status(self, request: OrderStatus) -> int:
        if request.customer.customer is None:
            return self._database.run(lambda: self._status(request), read_only=True)
        return self._status(request)

    def delivery(self, request: Delivery) -> int:
        return self._database.run(lambda: self._deliver(request))

    def stock_level(self, request: StockLevel) -> int:
        found = self._execute(
            _STOCK_LEVEL, request.warehouse, request.threshold, request.warehouse, request.district
        ).fetchall()
        return int(found[0][0])

    def _enter(self, request: NewOrder) -> int:
        place = request.warehouse, request.district
        suppliers, items, quantities = map(list, zip(*request.lines, strict=True))
        ((discount, warehouse_tax),) = self._execute(_TERMS, *place, request.customer).fetchall()
        ((number, district_tax),) = self._execute(_DRAW, *place).fetchall()
        prices = dict(self._execute(_PRICES, items).fetchall())
        if len(prices) < len(items):
            raise UnknownItemError
        amounts = [quantity * prices[item] for item, quantity in zip(items, quantities, strict=True)]
        total = total_of(sum(amounts), discount, warehouse_tax, district_tax)
        self._execute(_SELL, suppliers, items, quantities)
        self._execute(_ADD_ORDER, *place, number, request.customer, request.entered, len(items), total)
        self._execute(_ENQUEUE, *place, number, request.entered)
        self._execute(_ADD_LINES, *place, number, suppliers, items, quantities, amounts)
        return 1

    def _chosen(self, choice: CustomerChoice) -> tuple[int, int, int]:
        number = choice.customer
        if number is None:
            found = self._execute(_BY_SURNAME, choice.warehouse, choice.district, choice.surname).fetchall()
            number = middle([(forename, customer) for forename, customer in found])
        return choice.warehouse, choice.district, number

    def _pay(self, request: PaymentMade) -> int:
        amount, place = request.amount, (request.warehouse, request.district)
        self._execute(_WAREHOUSE_RECEIVES, amount, request.warehouse)
        self._execute(_DISTRICT_RECEIVES, amount, *place)
        key = self._chosen(request.customer)
        ((number,),) = self._execute(_PAY, amount, amount, *key).fetchall()
        self._execute(_ADD_PAYMENT, *key, number, *place, amount, request.paid_at)
        return 1

    def _status(self, request: OrderStatus) -> int:
        rows = self._execute(_STATUS, *self._chosen(request.customer)).fetchall()
        assert not rows or len(rows) == rows[0][6]
        return len(rows)

    def _deliver(self, request: Delivery) -> int:
        warehouse = request.warehouse
        oldest = self._execute(_DEQUEUE, list(self.districts), warehouse).fetchall()
        if not oldest:
            return 0
        districts, numbers = [row[0] for row in oldest], [row[1] for row in oldest]
        carried = dict(self._execute(_CARRY, request.carrier, districts, numbers, warehouse).fetchall())
        amounts = dict(self._execute(_DELIVER, request.delivered, districts, numbers, warehouse).fetchall())
        customers = [carried[district] for district in districts]
        self._execute(_OWE, districts, customers, [amounts[district] for district in districts], warehouse)
        return len(oldest)
