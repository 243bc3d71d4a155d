"""The Spark form: changes of one row in a hundred, a hot key, and tables that only grow, against hand-written Spark.

The floors keep no promise of a join: they write whole tables, or the rows that their author knows to be affected.
"""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.spark_bridge.joins import join_available
from structable.spi import Storage, TableSpecification, Value

from .tables import AREA, Shop, load

_ROUNDS = 3
_STATES = 4
"""Partitions of the state of the stream-stream join; Spark's 200 would take most of its time."""


def measure(spark: SparkSession, storage: Storage, url: str, store: str, scale: Scale) -> Iterator[Measurement]:
    """Measure one store; the names of its tables differ from the names in other measurements.

    The goals apply to LevelDB and PostgreSQL.
    """
    yield from changes_of_some(spark, storage, url, store, scale.many_rows // 2, scale, 0.25)
    yield from _hot_key(spark, storage, url, store, scale)
    yield from _inserts(spark, storage, url, store, scale)


def changes_of_some(
    spark: SparkSession, storage: Storage, url: str, store: str, orders: int, scale: Scale, goal: float | None
) -> list[Measurement]:
    """Change one of a hundred rows of each table, ten orders for a product."""
    shop = Shop(url, f"some_{orders}")
    products = orders // 10
    _make(storage, shop, orders, lambda number: number % products, products)
    whole = _of_result(storage, shop, "recomputed", feed=False)
    chance = random.Random(8)
    join_available(spark, shop.join)

    def recompute() -> float:
        begin = perf_counter()
        _joined(_read(spark, url, shop.orders.name), _read(spark, url, shop.products.name)).write.format(
            "structable"
        ).option("url", url).option("table", whole).mode("overwrite").save()
        seconds = perf_counter() - begin
        # LevelDB deletes the rows that it replaced in the background: its own work, though its time leaves it out.
        for thread in threading.enumerate():
            if thread.name == "structable-garbage":
                thread.join()
        return seconds

    def step() -> float:
        some = chance.sample(range(orders), orders // 100)
        storage.table(shop.orders.name).update_many([{"id": n, "pieces": chance.randrange(1 << 40)} for n in some])
        some = chance.sample(range(products), products // 100)
        storage.table(shop.products.name).update_many([{"sku": n, "price": chance.randrange(1 << 40)} for n in some])
        begin = perf_counter()
        done = join_available(spark, shop.join)
        seconds = perf_counter() - begin
        assert done.updated == done.affected > orders // 100
        assert not done.rebuilt
        return seconds

    title = f"join on Spark, 1 % of {orders:,} and {products:,} rows changed, {store}"
    contender = Contender(title, step, goal)
    return compare(AREA, "a full recompute and overwrite by Spark", recompute, [contender], _rounds(scale))


def _hot_key(spark: SparkSession, storage: Storage, url: str, store: str, scale: Scale) -> list[Measurement]:
    """Change the product of every other order."""
    shop, orders = Shop(url, "hot_half"), scale.many_rows
    products = orders // 100
    _make(storage, shop, orders, lambda number: 0 if number % 2 else number % products, products)
    by_hand = _of_result(storage, shop, "by_hand", feed=True)
    join_available(spark, shop.join)
    _written(_joined(_read(spark, url, shop.orders.name), _read(spark, url, shop.products.name)), url, by_hand)
    prices = itertools.count(1_000)

    def change() -> None:
        storage.table(shop.products.name).update({"sku": 0, "price": next(prices)})

    def hand() -> float:
        change()
        begin = perf_counter()
        hot = _read(spark, url, shop.orders.name).where("product = 0")
        _written(_joined(hot, _read(spark, url, shop.products.name).where("sku = 0")), url, by_hand)
        return perf_counter() - begin

    def step() -> float:
        change()
        begin = perf_counter()
        done = join_available(spark, shop.join)
        seconds = perf_counter() - begin
        assert done.updated >= orders // 2
        assert not done.rebuilt
        return seconds

    contender = Contender(f"join on Spark, hot key of {orders // 2:,} of {orders:,} rows, {store}", step, 1.5)
    return compare(AREA, "a Spark job by hand that joins and upserts these rows", hand, [contender], _rounds(scale))


def _inserts(spark: SparkSession, storage: Storage, url: str, store: str, scale: Scale) -> list[Measurement]:
    """Fill both tables, a product for each order."""
    rows = scale.records
    numbers = itertools.count()

    def empty() -> Shop:
        shop = Shop(url, f"grow{next(numbers)}")
        storage.admin.create(shop.orders)
        storage.admin.create(shop.products)
        return shop

    def filled(shop: Shop, work: Callable[[], None]) -> float:
        _fill(storage, shop, rows, lambda number: number, rows)
        begin = perf_counter()
        work()
        seconds = perf_counter() - begin
        assert storage.table(shop.join.result.name).count() == rows
        for spec in (shop.orders, shop.products):
            storage.admin.drop(spec.name)
        return seconds

    def stream() -> float:
        shop = empty()
        storage.admin.create(_specification(shop))

        def changes(table: str) -> DataFrame:
            reader = spark.readStream.format("structable").option("url", url).option("table", table)
            return reader.option("readChangeFeed", "true").option("startingVersion", "earliest").load()

        def run() -> None:
            joined = _joined(changes(shop.orders.name), changes(shop.products.name))
            writer = joined.writeStream.format("structable").option("url", url)
            writer = writer.option("table", shop.join.result.name).trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{_folder(spark)}/{uuid.uuid4().hex}").start()
            query.awaitTermination()

        partitions = "spark.sql.shuffle.partitions"
        before = str(spark.conf.get(partitions))
        spark.conf.set(partitions, _STATES)
        try:
            return filled(shop, run)
        finally:
            spark.conf.set(partitions, before)

    def step() -> float:
        shop = empty()
        join_available(spark, shop.join)

        def run() -> None:
            assert join_available(spark, shop.join).inserted == rows

        return filled(shop, run)

    contender = Contender(f"join on Spark, {rows:,} rows inserted a side, {store}", step, 1.5)
    return compare(AREA, "Spark's stream-stream join, with state", stream, [contender], _rounds(scale))


def _rounds(scale: Scale) -> int:
    return min(_ROUNDS, scale.rounds)


def _folder(spark: SparkSession) -> Path:
    return Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))


def _make(storage: Storage, shop: Shop, orders: int, product_of: Callable[[int], int], products: int) -> None:
    storage.admin.create(shop.orders)
    storage.admin.create(shop.products)
    _fill(storage, shop, orders, product_of, products)


def _fill(storage: Storage, shop: Shop, orders: int, product_of: Callable[[int], int], products: int) -> None:
    load(storage, shop.products, ({"sku": n, "name": f"product {n}", "price": n % 90} for n in range(products)))
    rows: Iterator[dict[str, Value]] = (
        {"id": n, "product": product_of(n), "pieces": 1, "note": "x" * 100} for n in range(orders)
    )
    load(storage, shop.orders, rows)


def _of_result(storage: Storage, shop: Shop, name: str, *, feed: bool) -> str:
    """Create a table as the join's result, with its feed or without one; return its name."""
    spec = _specification(shop)
    options = spec.options if feed else {}
    storage.admin.create(spec.evolve(name=f"{spec.name}_{name}", options=options))
    return f"{spec.name}_{name}"


def _specification(shop: Shop) -> TableSpecification:
    orders, products = shop.orders, shop.products
    fields = [*orders.fields, products.field("price")]
    return TableSpecification(shop.join.result.name, fields, ["id"], options=orders.options)


def _joined(orders: DataFrame, products: DataFrame) -> DataFrame:
    columns = [f.col(name) for name in ("id", "product", "pieces", "note", "price")]
    return orders.join(products, orders["product"] == products["sku"]).select(*columns)


def _read(spark: SparkSession, url: str, table: str) -> DataFrame:
    return spark.read.format("structable").option("url", url).option("table", table).load()


def _written(rows: DataFrame, url: str, table: str) -> None:
    rows.write.format("structable").option("url", url).option("table", table).mode("append").save()
