"""What the processes of the example do: write, join, and read."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from structable.spark_bridge.joins import JoinWorker
from structable.spi import (
    ChangeFeed,
    CommitOutcomeUnknownError,
    FeedPosition,
    Row,
    RowKind,
    Storage,
    StructuredTable,
    Transaction,
    connect,
)

from .tables import ORDERS, PRODUCTS, RESULT, join_of

Rows = dict[Any, dict[str, Any]]
_ORDERS, _PRODUCTS = 60, 12


def write(url: str, seed: int, seconds: float) -> None:
    """Change orders and products in transactions, until the time is over."""
    choose = random.Random(seed)
    ends = time.monotonic() + seconds
    with connect(url) as storage:
        while time.monotonic() < ends:
            changes = [_change(choose) for _ in range(choose.choice([1, 1, 3, 12]))]
            # The next changes follow, whether these were made or not.
            with contextlib.suppress(CommitOutcomeUnknownError):
                storage.run(partial(_apply, changes=changes))
            time.sleep(choose.uniform(0, 0.02))


def _change(choose: random.Random) -> tuple[str, dict[str, Any]]:
    sku = f"p{choose.randrange(_PRODUCTS)}"
    what = choose.random()
    if what < 0.15:
        return "put product", {"sku": sku, "name": f"name {choose.randrange(5)}", "price": choose.randrange(100)}
    if what < 0.2:
        return "put product", {"sku": sku, "supplier": f"supplier {choose.randrange(1000)}"}
    if what < 0.25:
        return "delete product", {"sku": sku}
    number = choose.randrange(_ORDERS)
    if what < 0.4:
        return "delete order", {"id": number}
    refers = None if what > 0.9 else sku
    return "put order", {"id": number, "product": refers, "pieces": choose.randrange(10)}


def _apply(tx: Transaction, *, changes: list[tuple[str, dict[str, Any]]]) -> None:
    tables = {"order": tx.table(ORDERS.name), "product": tx.table(PRODUCTS.name)}
    for verb, row in changes:
        what, _, which = verb.partition(" ")
        if what == "put":
            tables[which].upsert(row)
        else:
            tables[which].delete(tuple(row.values()))


def work(url: str, small: int) -> None:
    """Keep the result up to date until the process is killed."""
    with JoinWorker(join_of(url), poll=0.02, small=small) as worker:
        worker.run(threading.Event())


class Check:
    """Reads that found the result to be the join of both tables as they stood at its positions."""

    def __init__(self) -> None:
        self.reads = 0
        self.positions: set[str] = set()


def check_state(storage: Storage, check: Check) -> None:
    """Read the tables, the result and its positions in one snapshot, and compare.

    Raises
    ------
    AssertionError
        If the result is not the join of the tables at its positions, or those of the step that is being committed.
    """

    def read(tx: Transaction) -> tuple[tuple[FeedPosition, FeedPosition], Row, Rows, Rows, Rows] | None:
        now = tx.position(ORDERS.name), tx.position(PRODUCTS.name)
        record = tx.table("structable_progress").read((join_of("memory://").name,))
        if record is None or record["left_position"] is None:
            return None
        orders, products, result = (_rows(tx.table(name)) for name in (ORDERS.name, PRODUCTS.name, RESULT))
        return now, record, orders, products, result

    found = storage.run(read, read_only=True)
    if found is None:
        return
    now, record, orders, products, result = found
    places = [(str(record["left_position"]), str(record["right_position"]))]
    if record["intent"] is not None:
        intent = json.loads(str(record["intent"]))
        places.append((intent["left"], intent["right"]))
    joined = []
    for left, right in places:
        then = [FeedPosition.parse(left), FeedPosition.parse(right)]
        lefts = _as_of(storage.changes(ORDERS.name), orders, now[0], then[0])
        rights = _as_of(storage.changes(PRODUCTS.name), products, now[1], then[1])
        joined.append(_joined(lefts, rights))
    assert result in joined, f"at {places} the result is {result}, and the join {joined}"
    check.reads += 1
    check.positions.add(places[0][0])


def _rows(table: StructuredTable) -> Rows:
    with table.scan() as rows:
        return {row.key: dict(row) for row in rows}


def _as_of(feed: ChangeFeed, rows: Rows, now: FeedPosition, then: FeedPosition) -> Rows:
    """Return rows as they stood at an earlier position: the net changes since, undone."""
    before = dict(rows)
    with feed.read(then, now, net=True) as changes:
        for change in changes:
            key = getattr(change.row, "key", ())
            if change.kind is RowKind.INSERT:
                del before[key]
            elif change.kind is not RowKind.UPDATE_AFTER:
                before[key] = dict(change.row)
    return before


def _joined(orders: Rows, products: Rows) -> Rows:
    nothing: Mapping[str, Any] = {"name": None, "price": None}
    found = {}
    for key, order in orders.items():
        product = products.get((order["product"],), nothing)
        found[key] = {name: order[name] for name in ("id", "product", "pieces")} | {
            name: product[name] for name in ("name", "price")
        }
    return found
