"""Large steps and rebuilds of foreign-key joins as DataFrames: the result equals the batch join at every commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker, distributed, open_join, progress
from structable.spark_bridge.joins.failpoints import failpoints
from structable.spi import Derived, Field, InvalidFieldError, Lower, Storage, connect
from tests.joins.support import programs
from tests.joins.support.cases import of_wrong_type
from tests.joins.support.clocks import LeaseClock
from tests.joins.support.moments import rule_of_a_moment
from tests.joins.support.programs import Program
from tests.joins.support.tables import ORDERS, PRODUCTS, join_of, rows_of, told
from tests.spark.conftest import every_store

SEEDS = {"leveldb": [1, 5, 11], "postgresql": [2, 7], "hbase": [4, 13]}
"""Of all shapes of tables: an index, a leading field, a composite key, a self-join; joiners and soft deletes."""
WHOLE = {1, 7, 13}
"""Those whose steps read whole tables, as they do after many changes."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseClock]:
    clock = LeaseClock()
    monkeypatch.setattr(progress, "time", clock)
    yield clock
    failpoints.clear()


@pytest.fixture(autouse=True)
def distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's tasks read what the driver reads of tables of any size."""
    monkeypatch.setattr(distributed, "DIRECT", 0)


@pytest.fixture
def by_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step of a program be a large one."""

    def opened(join: ForeignKeyJoin, **limits: int) -> JoinWorker:
        return open_join(spark, join, small=0, large=limits.get("large", 1_000_000))

    monkeypatch.setattr(programs, "JoinWorker", opened)


@pytest.fixture
def orders(storage: Storage) -> Storage:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
    return storage


@every_store
@pytest.mark.usefixtures("by_spark")
def test_random_programs(url: str, storage: Storage, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch) -> None:
    few = distributed.FEW
    for seed in SEEDS[url.partition(":")[0]]:
        monkeypatch.setattr(distributed, "FEW", -1 if seed in WHOLE else few)
        program = Program(storage, url, seed, clock)
        try:
            many_writes(program)
            for action in (program.step, program.meet, program.crash, program.crash):
                many_writes(program)
                action()
                program.check()
            clock.pass_lease()
            program.workers[0].run_available()
            program.check()
            program.check_end()
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *program.log]))
            raise
        finally:
            program.close()


def many_writes(program: Program) -> None:
    for _ in range(12):
        program.write()


def test_hot_key_is_seen_whole_or_not_at_all(
    spark: SparkSession, url: str, orders: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row on the right with thousands of rows on the left; few of many are read by their keys."""
    many = 3_000
    orders.table("orders").upsert_many({"id": f"{n:05}", "product": "hot", "pieces": n} for n in range(many))
    orders.table("products").upsert({"sku": "hot", "name": "old"})
    seen: list[set[Any]] = []
    with open_join(spark, join_of(url), small=10) as worker:
        assert worker.run_available().inserted == many
        orders.table("products").upsert({"sku": "hot", "name": "new"})
        orders.table("orders").upsert({"id": "extra", "product": "cold"})
        for point in ("staged", "intent_recorded", "committed"):
            failpoints[point] = lambda: seen.append({row["name"] for row in rows_of(orders)})
        try:
            step = worker.step()
        finally:
            failpoints.clear()
        assert (step.affected, step.updated, step.rebuilt) == (many + 1, many, False)
        assert seen == [{"old"}, {"old"}, {"new"}]
        assert len(told(orders)) == 3 * many

        monkeypatch.setattr(distributed.SparkSteps, "_state", None)
        orders.table("orders").delete_many([(f"{n:05}",) for n in range(100)])
        assert worker.step().deleted == 100
        monkeypatch.setattr(distributed, "_rows", lambda stores: 0)  # of tables of any size
        monkeypatch.setattr(distributed, "DIRECT", many)
        orders.table("products").upsert({"sku": "hot", "name": "newest"})
        assert worker.step().updated == many - 100
        assert worker.verify() == 0


@pytest.mark.parametrize("url", ["leveldb"], indirect=True)
def test_fields_that_reads_compute(spark: SparkSession, url: str, storage: Storage) -> None:
    """Their feeds have images without them."""
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS.evolve(fields=[*PRODUCTS.fields, Field.string("title")]))
    orders, products = storage.table("orders"), storage.table("products")
    orders.upsert_many({"id": f"{n:02}", "product": f"p{n % 3}"} for n in range(30))
    products.upsert_many({"sku": f"p{n}", "name": f"NAME {n}"} for n in range(3))
    with open_join(spark, join_of(url, "left", select={"title": "right.title"}), small=0) as worker:
        worker.step()
        storage.admin.set_rules("products", [Derived("title", "name", Lower())])
        assert worker.step().updated == 30
        products.upsert({"sku": "p0", "price": 1.0})
        products.upsert({"sku": "p1", "name": None})
        orders.upsert({"id": "00", "product": "p2"})
        step = worker.step()
        assert (step.updated, step.rebuilt, worker.verify()) == (11, False, 0)
        assert {row["title"] for row in rows_of(storage)} == {"name 0", None, "name 2"}


@pytest.mark.parametrize("url", ["leveldb"], indirect=True)
def test_rules_of_a_moment(spark: SparkSession, url: str, storage: Storage) -> None:
    """A rule that is set and removed during a large step or a rebuild leaves nothing in the result."""
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS.evolve(fields=[*PRODUCTS.fields, Field.string("title")]))
    storage.table("products").upsert({"sku": "y", "name": "BAR"})
    with open_join(spark, join_of(url, select={"title": "right.title"}), small=0) as worker:
        worker.step()
        for call in (worker.step, worker.rebuild):
            storage.table("orders").upsert({"id": call.__name__, "product": "y"})
            with rule_of_a_moment(storage, "products", Derived("title", "name", Lower())):
                call()
            worker.step()
            assert ({row["title"] for row in rows_of(storage)}, worker.verify()) == ({None}, 0)


@pytest.mark.parametrize("url", ["leveldb"], indirect=True)
def test_tables_of_several_stores(spark: SparkSession, url: str, orders: Storage, postgresql_url: str) -> None:
    with connect(postgresql_url) as other:
        other.admin.create(PRODUCTS)
        elsewhere = TableRef(postgresql_url, "products"), TableRef(postgresql_url, "named_orders")
        orders.table("orders").upsert_many({"id": str(n), "product": f"p{n % 5}", "pieces": n} for n in range(40))
        joins = [join_of(url, "left", "near", right=elsewhere[0]), join_of(url, "left", "far", result=elsewhere[1])]
        for join, products, results in zip(joins, (other, orders), (orders, other), strict=True):
            with open_join(spark, join, small=0) as worker:
                assert worker.step().inserted == 40
                products.table("products").upsert_many({"sku": f"p{n}", "name": f"name {n}"} for n in range(3))
                orders.table("orders").delete(("4",))
                step = worker.step()
                assert (step.affected, step.updated, step.deleted) == (25, 24, 1)
                names = {row["id"]: row["name"] for row in rows_of(results)}
                assert names == {str(n): f"name {n % 5}" if n % 5 < 3 else None for n in range(40) if n != 4}
                orders.table("orders").upsert({"id": "4", "product": "p4", "pieces": 4})
                assert worker.run_available().inserted == 1


def test_error_of_a_joiner_comes_out_as_itself(spark: SparkSession, url: str, orders: Storage) -> None:
    orders.table("orders").upsert({"id": "a", "product": "y", "pieces": 1})
    orders.table("products").upsert({"sku": "y", "name": "bar"})
    join = join_of(url, select=None, joiner=of_wrong_type, result_fields=[Field.float("share")])
    with open_join(spark, join, small=0) as worker:
        with pytest.raises(InvalidFieldError, match="share") as refused:
            worker.step()
        assert "('a',)" in refused.value.__notes__[0]
        assert rows_of(orders) == []
