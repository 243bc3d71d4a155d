"""One change and its step against a hand-written transaction, in tables of 10,000 and of a million rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.spark_bridge.joins import JoinWorker
from structable.spi import FeedPosition, Field, Storage, TableSpecification

from .tables import AREA, Shop

_POSITIONS = TableSpecification("positions_by_hand", [Field.string("join"), Field.string("position")], ["join"])


def measure(storage: Storage, url: str, store: str, scale: Scale, goal: float) -> Iterator[Measurement]:
    """Measure a step after one change of an order, against hand-written reads and writes of the same rows."""
    shop = Shop(url, "small")
    orders = max(100, scale.rows // 20)
    shop.make(storage, orders)
    samples = max(5, scale.samples // 100)
    chance = random.Random(5)
    with JoinWorker(shop.join) as worker:
        worker.step()
        by_hand = _ByHand(storage, shop)

        def change() -> int:
            number = chance.randrange(orders)
            storage.table(shop.orders.name).update({"id": number, "pieces": chance.randrange(1 << 40)})
            return number

        def hand(*, reads_feeds: bool) -> float:
            by_hand.catch_up()
            seconds = 0.0
            for _ in range(samples):
                number = change()
                begin = perf_counter()
                by_hand.step(number, reads_feeds=reads_feeds)
                seconds += perf_counter() - begin
            return seconds / samples

        def step() -> float:
            worker.step()
            seconds = 0.0
            for _ in range(samples):
                change()
                begin = perf_counter()
                done = worker.step()
                seconds += perf_counter() - begin
                assert (done.affected, done.updated) == (1, 1)
            return seconds / samples

        yield from compare(
            AREA,
            "a transaction by hand with the same reads, of both feeds too, and writes",
            lambda: hand(reads_feeds=True),
            [Contender(f"step after one change, {store}", step, goal)],
            scale.rounds,
        )
        yield from compare(
            AREA,
            "a transaction by hand that knows what changed",
            lambda: hand(reads_feeds=False),
            [Contender(f"the same, {store}", step)],
            scale.rounds,
        )


class _ByHand:
    """What a program would write for this one join: the order, its product and its result row, and a position."""

    def __init__(self, storage: Storage, shop: Shop) -> None:
        self._storage = storage
        self._orders, self._products = shop.orders.name, shop.products.name
        self._result = f"{shop.join.result.name}_by_hand"
        spec = storage.admin.get_specification(shop.join.result.name)
        storage.admin.create(spec.evolve(name=self._result))
        storage.admin.create(_POSITIONS)
        with storage.table(shop.join.result.name).scan() as rows:
            storage.table(self._result).upsert_many(rows)
        self.catch_up()

    def catch_up(self) -> None:
        at = self._storage.changes(self._orders).latest(), self._storage.changes(self._products).latest()
        position = f"{at[0]} {at[1]}"
        self._storage.table(_POSITIONS.name).upsert({"join": "by hand", "position": position})

    def step(self, number: int, *, reads_feeds: bool) -> None:
        with self._storage.transaction() as tx:
            now = (tx.position(self._orders), tx.position(self._products)) if reads_feeds else ()
            positions = tx.table(_POSITIONS.name)
            row = positions.read(("by hand",))
            assert row is not None
            if now:
                left, right = map(FeedPosition.parse, str(row["position"]).split())
                [*_, last] = self._storage.changes(self._orders).read(left, now[0])
                order = last.row
                assert [*self._storage.changes(self._products).read(right, now[1])] == []
            else:
                found = tx.table(self._orders).read((number,))
                assert found is not None
                order = found
            product = tx.table(self._products).read((order["product"],))
            result = tx.table(self._result)
            before = result.read((number,))
            assert product is not None
            assert before is not None
            after = {name: order[name] for name in ("id", "product", "pieces", "note")} | {"price": product["price"]}
            if before != after:
                result.replace(after)
            position = " ".join(map(str, now)) or str(row["position"])
            positions.upsert({"join": "by hand", "position": position})


def growth(storage: Storage, url: str, store: str, scale: Scale) -> Iterator[Measurement]:
    """Measure a step after a hundred changes, in tables of a hundred times as many rows."""
    small, large = max(100, scale.rows // 20), max(1_000, scale.many_rows // 2)
    shops = {size: Shop(url, f"of_{size}") for size in (small, large)}
    chance = random.Random(6)
    rounds = max(1, scale.samples // 2_000)

    def changed(worker: JoinWorker, shop: Shop, size: int) -> float:
        seconds = 0.0
        for _ in range(rounds):
            numbers = chance.sample(range(size), 90)
            changes = [{"id": number, "pieces": chance.randrange(1 << 40)} for number in numbers]
            products = [{"sku": number, "price": chance.randrange(1 << 40)} for number in range(1)]
            with storage.transaction() as tx:
                tx.table(shop.orders.name).update_many(changes)
                tx.table(shop.products.name).update_many(products)
            begin = perf_counter()
            done = worker.step()
            seconds += perf_counter() - begin
            assert done.affected >= 90
        return seconds / rounds

    for size, shop in shops.items():
        shop.make(storage, size)
    with JoinWorker(shops[small].join) as one, JoinWorker(shops[large].join) as other:
        one.step()
        other.step()
        contender = Contender(
            f"step after 91 changes, {large:,} orders, {store}", lambda: changed(other, shops[large], large), 1.5
        )
        floor = lambda: changed(one, shops[small], small)  # noqa: E731
        yield from compare(AREA, f"the same, {small:,} orders", floor, [contender], scale.rounds)
