"""The order entry's programs do the same on every store, and keep its invariants with several clients at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.workloads.orders.invariants import faults, totals
from benchmarks.workloads.orders.model import Size
from benchmarks.workloads.orders.psycopg_program import PsycopgOrders
from benchmarks.workloads.orders.psycopg_whole_program import PsycopgWholeOrders
from benchmarks.workloads.orders.requests import WORK, NewOrder, OrderProgram
from benchmarks.workloads.orders.spi_program import SpiOrders
from benchmarks.workloads.orders.sqlite_program import SqliteOrders
from benchmarks.workloads.postgresql import fresh_place
from benchmarks.workloads.sqlite import MEMORY, SqlitePlace

SIZE = Size(warehouses=2, districts=3, customers=12, orders=6, items=40)
STEPS = 400
STORES = ["memory", "leveldb", "postgresql", "hbase", "psycopg", "psycopg whole"]


@contextmanager
def opened(store: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[OrderProgram]:
    program = _open(store, folder, request)
    program.load()
    yield program
    program.close()


def _open(store: str, folder: Path, request: pytest.FixtureRequest) -> OrderProgram:
    if store == "sqlite":
        return SqliteOrders(SqlitePlace(MEMORY), SIZE, client=0)
    if store in ("psycopg", "psycopg whole"):
        place = fresh_place(request.getfixturevalue("postgresql_schema"))
        return (PsycopgOrders if store == "psycopg" else PsycopgWholeOrders)(place, SIZE, client=0)
    if store in ("postgresql", "hbase"):
        return SpiOrders(request.getfixturevalue(f"{store}_url"), SIZE, client=0)
    return SpiOrders("memory://" if store == "memory" else f"leveldb://{folder}/ours", SIZE, client=0)


@pytest.mark.parametrize("store", STORES)
def test_programs_do_the_same(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    steps = 100 if store == "hbase" else STEPS
    with opened("sqlite", tmp_path, request) as by_hand, opened(store, tmp_path, request) as other:
        assert other.state() == by_hand.state() == by_hand.first_state()
        before, effects = by_hand.totals(), Counter[str]()
        for action, arguments in by_hand.plan(WORK, 1, steps):
            done = by_hand.actions[action](*arguments)
            assert other.actions[action](*arguments) == done, (action, arguments)
            effects[action] += done
        assert other.state() == by_hand.state()
        assert other.faults(before.after(effects)) == []
        assert totals(other.state()) != before


def test_requests_have_their_parts() -> None:
    with_others = Size(warehouses=4, districts=10, customers=100, orders=0, items=500)
    program = SqliteOrders(SqlitePlace(MEMORY), with_others, client=1)
    steps = program.plan(WORK, 1, 20_000)
    parts = Counter(action for action, _ in steps)
    assert {action: round(count / 200) for action, count in parts.items()} == pytest.approx(
        {"new_order": 44, "payment": 40, "order_status": 6, "delivery": 4, "stock_level": 6}, abs=1
    )
    orders = [request for _, (request,) in steps if isinstance(request, NewOrder)]
    assert {order.warehouse for order in orders} == {2}
    assert 0 < sum(any(line.item > 500 for line in order.lines) for order in orders) / len(orders) < 0.02
    lines = [line for order in orders for line in order.lines]
    assert 0 < sum(line.supplier != 2 for line in lines) / len(lines) < 0.02
    assert all(list(order.lines) == sorted(set(order.lines)) for order in orders)
    assert program.plan(WORK, 1, 100) == steps[:100] != program.plan(WORK, 2, 100)
    program.close()


def test_a_fault_of_a_program_is_found() -> None:
    """A payment that changes the customer alone."""
    program = SqliteOrders(SqlitePlace(MEMORY), SIZE, client=0)
    program.load()
    program.write("UPDATE customers SET paid = paid + 1, balance = balance - 1 WHERE warehouse = 1 AND customer = 3")
    assert len(faults(program.state())) == 3
    program.close()
