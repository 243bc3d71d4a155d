"""The check of the order entry's invariants finds every planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from benchmarks.workloads.orders.initial import initial_state
from benchmarks.workloads.orders.invariants import Totals, faults, totals
from benchmarks.workloads.orders.model import ROWS, Size, State

SIZE = Size(warehouses=2, districts=2, customers=6, orders=6, items=30)
STATE = initial_state(SIZE)


def test_initial_state_is_consistent() -> None:
    assert faults(STATE) == []
    assert faults(STATE, totals(STATE)) == []
    assert initial_state(SIZE) == STATE
    assert len(STATE.queue) == 2 * 2 * 2
    for name in ROWS:
        rows = getattr(STATE, name)
        assert rows == sorted(rows)


def change(table: str, place: int = 0, **changes: int | None) -> Callable[[State], State]:
    """Change fields of one row."""

    def faulty(state: State) -> State:
        rows = list(getattr(state, table))
        rows[place] = rows[place]._replace(**changes)
        return replace(state, **{table: rows})

    return faulty


def lose(table: str, place: int = 0) -> Callable[[State], State]:
    """Leave one row out."""

    def faulty(state: State) -> State:
        rows = list(getattr(state, table))
        del rows[place]
        return replace(state, **{table: rows})

    return faulty


def again(table: str, place: int = 0, **changes: int | None) -> Callable[[State], State]:
    """Put a row once more, changed."""

    def faulty(state: State) -> State:
        rows = list(getattr(state, table))
        return replace(state, **{table: [*rows, rows[place]._replace(**changes)]})

    return faulty


FAULTS = {
    "a payment that is not in the warehouse": (change("warehouses", received=1), "received by warehouse 1"),
    "a payment that is not in the district": (change("districts", received=1), "received by district (1, 1)"),
    "a payment that the customer does not know": (change("customers", paid=1), "paid by customer (1, 1, 1)"),
    "a lost payment": (lose("payments"), "payments of customer (1, 1, 1)"),
    "a payment twice": (again("payments", number=7), "payments of customer (1, 1, 1)"),
    "payments miscounted": (change("customers", payments=2), "payments of customer (1, 1, 1)"),
    "a number drawn twice": (change("districts", next_order=6), "orders of district (1, 1)"),
    "a number without an order": (change("districts", next_order=8), "orders of district (1, 1)"),
    "a lost order": (lose("orders"), "orders of district (1, 1)"),
    "an order without a customer": (change("orders", customer=99), "order (1, 1, 1) is of customer 99"),
    "a wrong total": (change("orders", total=1), "order (1, 1, 1) has a total of 1"),
    "an order lost from the queue": (lose("queue"), "queued order (1, 1, 5)"),
    "a delivered order in the queue": (again("queue", number=1), "queued order (1, 1, 1)"),
    "a delivery without lines": (change("orders", 5, carrier=3), "is delivered at None"),
    "a line delivered alone": (change("lines", 59, delivered=1), "line (1, 1, 6, 10) is delivered at 1"),
    "a lost line": (lose("lines", 3), "lines of order (1, 1, 1)"),
    "a line twice": (again("lines", 3, line=11), "lines of order (1, 1, 1)"),
    "a line without an order": (again("lines", 3, number=50, line=1), "lines of order (1, 1, 50)"),
    "a wrong amount": (change("lines", amount=1), "line (1, 1, 1, 1) has amount 1"),
    "a sale that stock does not know": (change("stock", 2, sold=999), "sold of stock (1, 3)"),
    "a line that stock does not know": (change("stock", 2, orders=999), "lines of stock (1, 3)"),
    "a quantity overwritten": (change("stock", 2, quantity=99), "stock (1, 3) has 99"),
    "a balance overwritten": (change("customers", balance=0), "owed by customer (1, 1, 1)"),
    "a delivery uncounted": (change("customers", deliveries=99), "deliveries to customer (1, 1, 1)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    plant, message = FAULTS[name]
    found = faults(plant(STATE))
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize("field", [field.name for field in fields(Totals)])
def test_lost_work_is_found(field: str) -> None:
    """A state that is consistent, but lacks something that was acknowledged."""
    expected = replace(totals(STATE), **{field: getattr(totals(STATE), field) + 1})
    (fault,) = faults(STATE, expected)
    assert "acknowledged" in fault


def test_effects_add_to_totals() -> None:
    assert Totals(1, 2, 3).after({"new_order": 10, "payment": 20, "delivery": 30, "stock_level": 40}) == Totals(
        11, 22, 33
    )
