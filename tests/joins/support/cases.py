"""What a foreign-key join promises on every store: a class to subclass, with a fixture of the URL of an empty store."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import JoinWorker, progress
from structable.spark_bridge.joins import worker as worker_module
from structable.spark_bridge.joins.failpoints import failpoints
from structable.spark_bridge.joins.progress import PROGRESS
from structable.spi import (
    DataCorruptionError,
    Derived,
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    Listener,
    Lower,
    PlanChangedError,
    Renamed,
    Row,
    RowKind,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    TransactionClosedError,
    Value,
    connect,
)
from structable.spi.authors import JOB_RETENTION_SECONDS, lowered_limit, wait_for_any
from tests.waiting import until

from .clocks import LeaseClock
from .moments import rule_of_a_moment
from .programs import Crash, run_program
from .tables import FEED, ORDERS, PRODUCTS, Limits, join_of, rows_of, told

LIMITS = [
    pytest.param({}, id="small"),
    pytest.param({"small": 0}, id="large"),
    pytest.param({"small": 0, "large": 0}, id="rebuild"),
]


def of_pieces(left: Row, right: Row | None) -> dict[str, Value] | None:
    """Return a number that FLOAT rounds."""
    return None if left["pieces"] is None else {"share": left.pieces / 10}


def of_wrong_type(left: Row, right: Row | None) -> dict[str, Value]:
    return {"share": "a third"}


class JoinCases:
    """The rules, through the public API."""

    programs = 10

    @pytest.fixture
    def storage(self, url: str) -> Iterator[Storage]:
        with connect(url) as storage:
            yield storage

    @pytest.fixture
    def tables(self, storage: Storage) -> Storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        return storage

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseClock]:
        clock = LeaseClock()
        monkeypatch.setattr(progress, "time", clock)
        yield clock
        failpoints.clear()

    def put(self, storage: Storage, key: str, product: str | None, pieces: int = 1, **others: Value) -> None:
        storage.table("orders").upsert({"id": key, "product": product, "pieces": pieces, **others})

    def name(self, storage: Storage, sku: str, name: str, **others: Value) -> None:
        storage.table("products").upsert({"sku": sku, "name": name, **others})

    @pytest.mark.parametrize("limits", LIMITS)
    @pytest.mark.parametrize("how", ["inner", "left"])
    def test_events_of_both_sides(self, url: str, tables: Storage, how: str, limits: Limits) -> None:
        """The event tables of Kafka Streams' foreign-key join, event by event, without its unneeded tombstones."""

        def row(key: str, pieces: int, name: str | None) -> dict[str, Any]:
            return {"id": key, "pieces": pieces, "name": name}

        orders, products = tables.table("orders"), tables.table("products")
        inner = how == "inner"
        products.upsert({"sku": "1", "name": "foo"})
        with JoinWorker(join_of(url, how), **limits) as worker:
            worker.step()
            expected: list[tuple[str, dict[str, Any]]] = []
            events: list[tuple[Any, list[tuple[str, dict[str, Any]]]]] = [
                (lambda: self.put(tables, "k", "1", 1), [("+I", row("k", 1, "foo"))]),
                (
                    lambda: self.put(tables, "k", "2", 2),
                    [("-D", row("k", 1, "foo"))] if inner else [("-U", row("k", 1, "foo")), ("+U", row("k", 2, None))],
                ),
                # An inner join has nothing to take back here, nor at the deletion of a row that had no match.
                (
                    lambda: self.put(tables, "k", "3", 3),
                    [] if inner else [("-U", row("k", 2, None)), ("+U", row("k", 3, None))],
                ),
                (
                    lambda: self.name(tables, "3", "bar"),
                    [("+I", row("k", 3, "bar"))] if inner else [("-U", row("k", 3, None)), ("+U", row("k", 3, "bar"))],
                ),
                (lambda: orders.delete(("k",)), [("-D", row("k", 3, "bar"))]),
                (lambda: self.put(tables, "k", "1", 1), [("+I", row("k", 1, "foo"))]),
                (lambda: self.put(tables, "q", "10", 7), [] if inner else [("+I", row("q", 7, None))]),
                (
                    lambda: self.name(tables, "10", "baz"),
                    [("+I", row("q", 7, "baz"))] if inner else [("-U", row("q", 7, None)), ("+U", row("q", 7, "baz"))],
                ),
                (lambda: self.put(tables, "n", None, 4), [] if inner else [("+I", row("n", 4, None))]),
                (lambda: orders.delete(("n",)), [] if inner else [("-D", row("n", 4, None))]),
                (
                    lambda: products.delete(("1",)),
                    [("-D", row("k", 1, "foo"))] if inner else [("-U", row("k", 1, "foo")), ("+U", row("k", 1, None))],
                ),
                (lambda: products.delete(("absent",)), []),
            ]
            for event, changes in events:
                event()
                worker.step()
                expected += changes
                assert told(tables) == expected
                assert worker.verify() == 0

    def test_rapid_changes_between_two_steps_give_one(self, url: str, tables: Storage) -> None:
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            for pieces in range(1, 4):
                self.put(tables, "a", "y", pieces)
            step = worker.step()
            assert (step.affected, step.inserted, step.updated, step.deleted) == (1, 1, 0, 0)
            self.put(tables, "a", "z", 4)
            self.put(tables, "a", "y", 3)
            self.name(tables, "y", "other")
            self.name(tables, "y", "bar")
            step = worker.step()
            assert (step.affected, step.unchanged) == (1, 1)
            assert told(tables) == [("+I", {"id": "a", "pieces": 3, "name": "bar"})]

    def test_changes_of_unselected_fields_are_not_looked_at(self, url: str, tables: Storage) -> None:
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar", price=0.0)
        with JoinWorker(join_of(url)) as worker:
            first = worker.step()
            assert (first.rebuilt, first.affected, first.inserted) == (True, 1, 1)
            self.put(tables, "a", "y", 1, note="changed")
            self.name(tables, "y", "bar", price=float("nan"))
            step = worker.step()
            assert (step.rebuilt, step.affected) == (False, 0)
            recorded = tables.table(PROGRESS.name).read(("named",))
            assert recorded is not None
            assert first.left_position is not None
            assert step.left_position is not None
            assert recorded["left_position"] == str(step.left_position)
            assert step.left_position > first.left_position
            assert recorded["intent"] is None

    @pytest.mark.parametrize("limits", LIMITS)
    def test_values_that_are_equal_are_not_written(self, url: str, tables: Storage, limits: Limits) -> None:
        """NaN equals NaN, -0.0 equals 0.0, and a joiner's FLOAT is compared as it is stored."""
        select = {"price": "right.price"}
        numbers = join_of(url, name="priced", select=select, result=TableRef(url, "priced"))
        fields = [Field.float("share")]
        shares = join_of(
            url, name="shared", select=None, joiner=of_pieces, result_fields=fields, result=TableRef(url, "shared")
        )
        self.put(tables, "a", "y", 1)
        self.put(tables, "b", "z", 1)
        self.name(tables, "y", "bar", price=float("nan"))
        self.name(tables, "z", "bar", price=0.0)
        with JoinWorker(numbers, **limits) as one, JoinWorker(shares, **limits) as other:
            one.step()
            other.step()
            tables.table("products").delete(("y",))
            self.name(tables, "y", "foo", price=float("nan"))
            tables.table("products").delete(("z",))
            self.name(tables, "z", "foo", price=-0.0)
            for worker in (one, other):
                step = worker.step()
                assert (step.unchanged, worker.verify()) == (0 if limits.get("large") == 0 else 2, 0)
            assert len(told(tables, "priced")) == len(told(tables, "shared")) == 2

    def test_composite_keys_and_leading_fields(self, url: str, storage: Storage) -> None:
        """A foreign key of two fields, found by an index on one, and by the leading field of the left's key."""
        for name, key, indexes in (("indexed", ["id"], ["b"]), ("leading", ["a", "id"], [])):
            fields = [Field.long("id"), Field.long("a"), Field.string("b")]
            storage.admin.create(TableSpecification(name, fields, key, indexes, FEED))
            target = [Field.string("x"), Field.long("y"), Field.string("is")]
            storage.admin.create(TableSpecification(f"{name}_right", target, ["x", "y"], options=FEED))
            join = join_of(
                url,
                "left",
                name,
                left=TableRef(url, name),
                right=TableRef(url, f"{name}_right"),
                on=["b", "a"],
                select={"is": "right.is"},
                result=TableRef(url, f"{name}_result"),
            )
            left, right = storage.table(name), storage.table(f"{name}_right")
            left.upsert_many({"id": number, "a": number % 2, "b": b} for number, b in enumerate(["u", "v", "u", None]))
            with JoinWorker(join) as worker:
                worker.step()
                right.upsert_many([{"x": "u", "y": 0, "is": "u0"}, {"x": "v", "y": 1, "is": "v1"}])
                assert worker.step().affected == 3
                assert worker.verify() == 0
                found = [row["is"] for row in sorted(rows_of(storage, join.result.name), key=lambda row: row["id"])]
                assert found == ["u0", "v1", "u0", None]
                right.delete(("v", 1))
                step = worker.step()
                assert (step.affected, step.updated) == (1, 1)

    def test_late_and_deleted_rows(self, url: str, storage: Storage) -> None:
        """An older record changes nothing and emits nothing; a row that is deleted softly counts as absent."""
        sequence = {**FEED, "sequence.field": "at", "soft-delete.field": "gone"}
        extra = [Field.long("at"), Field.boolean("gone")]
        storage.admin.create(ORDERS.evolve(fields=[*ORDERS.fields, *extra], options=sequence))
        storage.admin.create(PRODUCTS.evolve(fields=[*PRODUCTS.fields, *extra], options=sequence))
        orders, products = storage.table("orders"), storage.table("products")
        orders.upsert({"id": "a", "product": "y", "pieces": 1, "at": 5})
        products.upsert({"sku": "y", "name": "bar", "at": 5})
        with JoinWorker(join_of(url, "left")) as worker:
            worker.step()
            products.upsert({"sku": "y", "name": "late", "at": 4})
            assert worker.step().affected == 0
            products.apply_changes([(RowKind.DELETE, {"sku": "y", "at": 6})])
            assert worker.step().updated == 1
            products.upsert({"sku": "y", "name": "late", "at": 5})
            assert worker.step().affected == 0
            assert rows_of(storage) == [{"id": "a", "pieces": 1, "name": None}]
            orders.apply_changes([(RowKind.DELETE, {"id": "a", "at": 6})])
            assert worker.step().deleted == 1
            orders.upsert({"id": "a", "product": "y", "pieces": 9, "at": 5})
            assert worker.step().affected == 0
            assert (rows_of(storage), worker.verify()) == ([], 0)

    def test_self_join_and_chain(self, url: str, storage: Storage) -> None:
        """Employees with the name of their manager, and that result with the name of the manager's office."""
        fields = [Field.string("id"), Field.string("name"), Field.string("manager"), Field.string("office")]
        storage.admin.create(TableSpecification("people", fields, ["id"], ["manager"], FEED))
        storage.admin.create(
            TableSpecification("offices", [Field.string("id"), Field.string("city")], ["id"], [], FEED)
        )
        people, offices = storage.table("people"), storage.table("offices")
        people.upsert_many(
            [{"id": "1", "name": "Ada", "office": "x"}, {"id": "2", "name": "Ben", "manager": "1", "office": "y"}]
        )
        ref = TableRef(url, "people")
        select = {"name": "left.name", "manager": "right.name", "office": "right.office"}
        first = join_of(
            url,
            name="managed",
            left=ref,
            right=ref,
            on={"manager": "id"},
            select=select,
            result=TableRef(url, "managed"),
        )
        with JoinWorker(first) as one:
            one.step()
            storage.admin.create_or_update(storage.admin.get_specification("managed").evolve(indexes=["office"]))
            second = join_of(
                url,
                "left",
                "located",
                left=TableRef(url, "managed"),
                right=TableRef(url, "offices"),
                on={"office": "id"},
                select={"name": "left.name", "manager": "left.manager", "city": "right.city"},
                result=TableRef(url, "located"),
            )
            with JoinWorker(second) as two:
                two.step()
                offices.upsert({"id": "x", "city": "Rome"})
                people.upsert({"id": "1", "name": "Eva"})
                one.step()
                two.step()
                assert rows_of(storage, "located") == [{"id": "2", "name": "Ben", "manager": "Eva", "city": "Rome"}]
                people.upsert({"id": "2", "manager": "2"})
                one.step()
                two.step()
                assert rows_of(storage, "located") == [{"id": "2", "name": "Ben", "manager": "Ben", "city": None}]
                assert (one.verify(), two.verify()) == (0, 0)

    @pytest.mark.parametrize("limits", LIMITS)
    def test_tables_in_several_stores(self, url: str, tables: Storage, limits: Limits) -> None:
        """The right table in another store, and then the result."""
        other_url = f"memory://{uuid.uuid4().hex}"
        with connect(other_url) as other:
            other.admin.create(PRODUCTS)
            self.put(tables, "a", "y")
            right = join_of(url, right=TableRef(other_url, "products"))
            with JoinWorker(right, **limits) as worker:
                worker.step()
                self.name(other, "y", "bar")
                assert worker.step().inserted == 1
                assert (rows_of(tables), worker.verify()) == ([{"id": "a", "pieces": 1, "name": "bar"}], 0)
            self.name(tables, "y", "foo")
            result = join_of(url, result=TableRef(other_url, "named_orders"))
            with JoinWorker(result, **limits) as worker:
                worker.step()
                self.put(tables, "b", "y")
                assert worker.step().inserted == 1
                assert len(rows_of(other)) == 2
                assert worker.run_available().affected == 0

    def test_lost_changes_rebuild_by_differences(self, url: str, tables: Storage) -> None:
        """Expired positions, and a table that was dropped and made again."""
        self.put(tables, "a", "y")
        self.put(tables, "b", "y")
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            self.put(tables, "b", "z")
            feed = tables.changes("orders")
            feed.expire(feed.latest())
            step = worker.step()
            assert (step.rebuilt, step.affected, step.deleted) == (True, 1, 1)
            tables.admin.drop("products")
            tables.admin.create(PRODUCTS)
            self.name(tables, "z", "zed")
            step = worker.step()
            assert (step.rebuilt, step.inserted, step.deleted) == (True, 1, 1)
            assert len(told(tables)) == 5
            tables.admin.drop("orders")
            tables.admin.create(ORDERS.evolve(options={"changelog-producer": "input"}))
            with pytest.raises(Exception, match="changelog-producer=lookup"):
                worker.step()

    def test_result_edited_or_dropped_by_hand(self, url: str, tables: Storage) -> None:
        self.put(tables, "a", "y")
        self.put(tables, "b", "y")
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            result = tables.table("named_orders")
            result.delete(("a",))
            result.upsert({"id": "c", "pieces": 0})
            result.upsert({"id": "b", "pieces": 0})
            assert (worker.step().affected, worker.verify()) == (0, 3)
            mended = worker.rebuild()
            assert (mended.affected, mended.inserted, mended.updated, mended.deleted) == (3, 1, 1, 1)
            assert worker.verify() == 0
            tables.admin.drop_field("named_orders", "name")
            assert (worker.step().rebuilt, worker.verify()) == (True, 0)
            tables.admin.drop("named_orders")
            assert worker.verify() == 2
            step = worker.step()
            assert (step.rebuilt, step.inserted) == (True, 2)

    @pytest.mark.parametrize("field", ["left_position", "definition", "intent"])
    def test_damaged_record(self, url: str, tables: Storage, field: str) -> None:
        """The error names the cure: without its row the join is joined from the start."""
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            tables.table(PROGRESS.name).update({"consumer": "named", field: "damaged"})
            for call in (worker.step, worker.rebuild, worker.verify):
                with pytest.raises(DataCorruptionError, match=r"(?s)delete .*row.*rebuilt"):
                    call()
            tables.table(PROGRESS.name).delete(("named",))
            step = worker.step()
            assert (step.rebuilt, step.affected, worker.verify()) == (True, 0, 0)

    def test_changed_definition(self, url: str, tables: Storage) -> None:
        """It is refused until `rebuild` takes it on; a selection that was not given stays until then."""
        self.put(tables, "a", "y", note="n")
        self.name(tables, "y", "bar", price=1.5)
        with JoinWorker(join_of(url)) as worker:
            worker.step()
        wider = join_of(url, "left", select={"pieces": "left.pieces", "name": "right.name", "price": "right.price"})
        with JoinWorker(wider) as worker:
            with pytest.raises(PlanChangedError, match="rebuild") as refused:
                worker.step()
            assert [one.partition(" ")[0] for one in refused.value.differences] == ["how", "select"]
            with pytest.raises(PlanChangedError):
                worker.verify()
            with pytest.raises(PlanChangedError):
                worker.check()
            assert worker.rebuild().updated == 1
            worker.check()
            assert rows_of(tables) == [{"id": "a", "pieces": 1, "name": "bar", "price": 1.5}]
            assert (worker.step().affected, worker.verify()) == (0, 0)
        with JoinWorker(join_of(url, "left", select=None)) as worker:
            tables.admin.create_or_update(PRODUCTS.evolve(fields=[*PRODUCTS.fields, Field.int("stock")]))
            self.name(tables, "y", "foo", stock=3)
            assert worker.step().updated == 1
            assert (len(rows_of(tables)[0]), worker.verify()) == (4, 0)
            worker.rebuild()
            [row] = rows_of(tables)
            assert (row["stock"], row["note"], row["product"], worker.verify()) == (3, "n", "y", 0)
        other = join_of(url, "left", result=TableRef(url, "elsewhere"))
        with JoinWorker(other) as worker:
            for call in (worker.step, worker.rebuild, worker.verify):
                with pytest.raises(PlanChangedError, match="result was named_orders"):
                    call()
        with pytest.raises(InvalidSpecificationError, match="the result of the join 'named'"):
            JoinWorker(join_of(url, name="second"))

    def test_definition_with_fewer_fields(self, url: str, tables: Storage, clock: LeaseClock) -> None:
        """`rebuild` drops what the join no longer makes; if it dies, the program of before joins everything again."""
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")
        both, row = join_of(url), {"id": "a", "pieces": 1, "name": "bar"}
        fewer = join_of(url, select={"name": "right.name"})
        with JoinWorker(both) as worker:
            worker.step()

        def die() -> None:
            raise Crash

        with JoinWorker(fewer) as worker:
            with pytest.raises(PlanChangedError):
                worker.step()
            failpoints["staged"] = die
            with pytest.raises(Crash):
                worker.rebuild()
            failpoints.clear()
        with JoinWorker(both) as worker:
            assert (worker.step().rebuilt, rows_of(tables), worker.verify()) == (True, [row], 0)
        tables.admin.create_or_update(tables.admin.get_specification("named_orders").evolve(indexes=["pieces"]))
        with JoinWorker(fewer) as worker:
            with pytest.raises(SchemaIncompatibleError, match="'pieces' is not a field of the join, and has an index"):
                worker.rebuild()
            tables.admin.drop_index("named_orders", "pieces")
            worker.rebuild()
            assert (rows_of(tables), worker.verify()) == ([{"id": "a", "name": "bar"}], 0)
            assert (worker.step().rebuilt, worker.step().affected) == (False, 0)
        retyped = join_of(url, select={"name": "right.price"})
        with JoinWorker(retyped) as worker, pytest.raises(SchemaIncompatibleError, match="'name' is string"):
            worker.rebuild()

    def test_two_new_joins_with_one_result(self, url: str, tables: Storage, clock: LeaseClock) -> None:
        """The first that records itself has it, though both were opened before."""
        self.put(tables, "a", "y")
        with JoinWorker(join_of(url)) as first, JoinWorker(join_of(url, "left", "second")) as second:

            def between() -> None:
                failpoints.clear()
                second.step()

            failpoints["staged"] = between
            for call in (first.step, first.rebuild):
                with pytest.raises(InvalidSpecificationError, match="the result of the join 'second'"):
                    call()
            assert (len(rows_of(tables)), second.verify()) == (1, 0)

    def test_widened_and_extended_inputs(self, url: str, tables: Storage) -> None:
        """The result follows a number that was widened; a new field is no part of it."""
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            fields = [Field.long(one.name) if one.name == "pieces" else one for one in ORDERS.fields]
            tables.admin.create_or_update(ORDERS.evolve(fields=[*fields, Field.string("added")]))
            self.put(tables, "a", "y", 1 << 40, added="x")
            step = worker.step()
            assert (step.rebuilt, step.updated, worker.verify()) == (False, 1, 0)
            assert rows_of(tables) == [{"id": "a", "pieces": 1 << 40, "name": "bar"}]

    @pytest.mark.parametrize("limits", LIMITS)
    def test_fields_that_reads_compute(self, url: str, storage: Storage, limits: Limits) -> None:
        """A field that stored rows lack is joined as reads have it: once its rule is set, until it is filled, after."""
        storage.admin.create(ORDERS.evolve(fields=[*ORDERS.fields, Field.string("remark")]))
        storage.admin.create(PRODUCTS.evolve(fields=[*PRODUCTS.fields, Field.string("title")]))
        orders, products = storage.table("orders"), storage.table("products")
        self.put(storage, "a", "y", note="n")
        self.put(storage, "b", "z", note="m")
        self.name(storage, "y", "BAR")
        self.name(storage, "z", "ZED")
        join = join_of(url, "left", select={"remark": "left.remark", "title": "right.title"})

        def found() -> list[tuple[Any, ...]]:
            return [(row["id"], row["remark"], row["title"]) for row in rows_of(storage)]

        with JoinWorker(join, **limits) as worker:
            worker.step()
            assert found() == [("a", None, None), ("b", None, None)]
            title, remark = Derived("title", "name", Lower()), Renamed("note", "remark")
            storage.admin.set_rules("products", [title])
            storage.admin.set_rules("orders", [remark])
            assert worker.step().rebuilt
            assert (found(), worker.verify()) == ([("a", "n", "bar"), ("b", "m", "zed")], 0)
            orders.upsert({"id": "a", "pieces": 2})
            products.upsert({"sku": "y", "price": 1.0})
            worker.step()
            assert (found(), worker.verify()) == ([("a", "n", "bar"), ("b", "m", "zed")], 0)
            orders.upsert({"id": "b", "note": None})
            products.upsert({"sku": "z", "name": None})
            worker.step()
            assert (found(), worker.verify()) == ([("a", "n", "bar"), ("b", None, None)], 0)
            orders.upsert_many([{"id": row.id, "remark": row.remark} for row in orders.scan()])
            products.upsert_many([{"sku": row.sku, "title": row.title} for row in products.scan()])
            worker.step()
            storage.admin.set_rules("products", [replace(title, ready=True)])
            storage.admin.set_rules("orders", [replace(remark, ready=True)])
            self.name(storage, "y", "FOO")
        with JoinWorker(join, **limits) as worker:
            worker.step()
            assert (found(), worker.verify()) == ([("a", "n", "foo"), ("b", None, None)], 0)
        changes = told(storage)
        assert len(changes) == 2 + 4 + 2 + 2
        assert all(kind != "-U" or one != other for (kind, one), (_, other) in pairwise(changes))

    @pytest.mark.parametrize("call", ["step", "rebuild"])
    @pytest.mark.parametrize("side", ["orders", "products"])
    def test_rules_of_a_moment(self, url: str, storage: Storage, side: str, call: str) -> None:
        """A rule that is set and removed during a large step or a rebuild leaves nothing in the result."""
        computed = [Field.string("computed")]
        storage.admin.create(ORDERS.evolve(fields=[*ORDERS.fields, *(computed if side == "orders" else [])]))
        storage.admin.create(PRODUCTS.evolve(fields=[*PRODUCTS.fields, *(computed if side == "products" else [])]))
        source, select = ("product", "left") if side == "orders" else ("name", "right")
        with JoinWorker(join_of(url, select={"computed": f"{select}.computed"}), small=0) as worker:
            worker.step()
            self.put(storage, "a", "y")
            self.name(storage, "y", "bar")
            with rule_of_a_moment(storage, side, Derived("computed", source, Lower())):
                getattr(worker, call)()
            worker.step()
            assert (rows_of(storage), worker.verify()) == ([{"id": "a", "computed": None}], 0)

    def test_foreign_key_by_a_new_name(self, url: str, storage: Storage) -> None:
        """A renamed field that is being filled is found by the index of its old name."""
        storage.admin.create(ORDERS.evolve(fields=[*ORDERS.fields, Field.string("item")]))
        storage.admin.create(PRODUCTS)
        self.put(storage, "a", "y", 1)
        self.name(storage, "y", "bar")
        renamed = Renamed("product", "item")
        storage.admin.set_rules("orders", [renamed])
        with JoinWorker(join_of(url, on={"item": "sku"})) as worker:
            worker.step()
            storage.table("orders").upsert({"id": "a", "pieces": 2})
            assert worker.step().updated == 1
            self.name(storage, "y", "foo")
            assert worker.step().updated == 1
            assert (rows_of(storage), worker.verify()) == ([{"id": "a", "pieces": 2, "name": "foo"}], 0)

    @pytest.mark.parametrize("point", ["staged", "intent_recorded", "committed"])
    @pytest.mark.parametrize("dropped", ["named_orders", "products"])
    def test_table_dropped_in_a_step(
        self, url: str, tables: Storage, clock: LeaseClock, dropped: str, point: str
    ) -> None:
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")

        def drop() -> None:
            failpoints.clear()
            tables.admin.drop(dropped)
            if dropped == "products":
                tables.admin.create(PRODUCTS)
                self.name(tables, "y", "new")

        with JoinWorker(join_of(url), small=0) as worker:
            worker.step()
            self.put(tables, "b", "y")
            failpoints[point] = drop
            worker.step()
            worker.run_available()
            assert {row["name"] for row in rows_of(tables)} == {"new" if dropped == "products" else "bar"}
            assert (len(rows_of(tables)), worker.verify()) == (2, 0)

    def test_rows_too_large_for_one_transaction(self, url: str, tables: Storage) -> None:
        tables.table("orders").upsert_many({"id": f"{n:02}", "product": "y"} for n in range(40))
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            self.name(tables, "y", "long" * 250)
            with lowered_limit(20_000):
                step = worker.step()
            assert (step.inserted, step.rebuilt, worker.verify()) == (40, False, 0)

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [
            (
                TableSpecification("named_orders", [Field.string("id"), Field.int("pieces")], ["id"], options=FEED),
                "name",
            ),
            (
                TableSpecification(
                    "named_orders",
                    [Field.string("id"), Field.long("pieces"), Field.string("name"), Field.int("more")],
                    ["id"],
                    options=FEED,
                ),
                "pieces.*more|more.*pieces",
            ),
            (
                TableSpecification(
                    "named_orders", [Field.string("id"), Field.int("pieces"), Field.string("name")], ["id"]
                ),
                "must be lookup",
            ),
        ],
        ids=["lacks", "others", "producer"],
    )
    def test_other_table_as_the_result(self, url: str, tables: Storage, spec: TableSpecification, reason: str) -> None:
        tables.admin.create(spec)
        with pytest.raises(SchemaIncompatibleError, match=f"(?s){reason}"):
            JoinWorker(join_of(url))
        assert PROGRESS.name not in tables.admin.list()

    def test_users_part_of_the_result(self, url: str, tables: Storage) -> None:
        """Indexes, retention and options of the user stay as they are, and rows that are there are compared."""
        options = {**FEED, "changelog.time-retained": "3 d", "user.owner": "shop"}
        fields = [Field.string("name"), Field.string("id"), Field.int("pieces")]
        spec = TableSpecification("named_orders", fields, ["id"], ["name"], options)
        tables.admin.create(spec)
        tables.table("named_orders").upsert({"id": "stale", "name": "x"})
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")
        with JoinWorker(join_of(url)) as worker:
            step = worker.step()
            assert (step.inserted, step.deleted) == (1, 1)
        assert tables.admin.get_specification("named_orders") == spec
        assert [row.id for row in tables.table("named_orders").scan_index("name", "bar")] == ["a"]

    @pytest.mark.parametrize("limits", LIMITS)
    def test_refused_row_leaves_everything(self, url: str, tables: Storage, limits: Limits) -> None:
        """A joiner's wrong value comes out with the left key, and nothing is written."""
        fields = [Field.float("share")]
        join = join_of(url, select=None, joiner=of_wrong_type, result_fields=fields)
        with JoinWorker(join, **limits) as worker:
            worker.step()
            before = tables.table(PROGRESS.name).read(("named",))
            self.put(tables, "a", "y")
            self.name(tables, "y", "bar")
            for _ in range(2):
                with pytest.raises(InvalidFieldError, match="share") as refused:
                    worker.step()
                assert "('a',)" in refused.value.__notes__[0]
            assert (rows_of(tables), tables.table(PROGRESS.name).read(("named",))) == ([], before)
        with pytest.raises(TransactionClosedError):
            worker.step()

    @pytest.mark.parametrize("point", ["intent_recorded", "committed"])
    def test_dead_owner_of_an_intent(self, url: str, tables: Storage, clock: LeaseClock, point: str) -> None:
        """Others wait for its lease, then end what it began: nobody sees a state between."""
        self.put(tables, "a", "y")
        self.name(tables, "y", "bar")

        def die() -> None:
            raise Crash

        with JoinWorker(join_of(url), small=0) as dying, JoinWorker(join_of(url), poll=0.01) as other:
            other.step()
            self.put(tables, "b", "y")
            failpoints[point] = die
            with pytest.raises(Crash):
                dying.step()
            failpoints.clear()
            blocked = other.step()
            assert (blocked.affected, len(rows_of(tables))) == (0, 2 if point == "committed" else 1)
            clock.pass_lease()
            other.run_available()
            assert (len(rows_of(tables)), other.verify()) == (2, 0)
            assert [kind for kind, _ in told(tables)] == ["+I", "+I"]

    def test_job_that_the_store_may_have_forgotten(self, url: str, tables: Storage, clock: LeaseClock) -> None:
        """Nobody knows whether it was committed: the next worker compares everything."""

        def die() -> None:
            raise Crash

        with JoinWorker(join_of(url), small=0) as dying, JoinWorker(join_of(url)) as other:
            other.step()
            self.put(tables, "a", "y")
            self.name(tables, "y", "bar")
            failpoints["intent_recorded"] = die
            with pytest.raises(Crash):
                dying.step()
            failpoints.clear()
            clock.ahead += JOB_RETENTION_SECONDS
            step = other.step()
            assert (step.rebuilt, step.inserted, other.verify()) == (True, 1, 0)

    def test_end_of_an_intent_wakes_those_who_wait(
        self, url: str, tables: Storage, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting, go = [], threading.Event()

        def wait(listeners: Sequence[Listener], stop: threading.Event, timeout: float) -> bool:
            waiting.append(timeout)
            return wait_for_any(listeners, stop, timeout)

        monkeypatch.setattr(worker_module, "wait_for_any", wait)
        workers = [JoinWorker(join_of(url), small=0, poll=3600.0) for _ in range(4)]
        try:
            workers[0].step()
            self.put(tables, "a", "y")
            self.name(tables, "y", "bar")

            def hold() -> None:
                failpoints.clear()
                held.set()
                go.wait()

            held = threading.Event()
            failpoints["intent_recorded"] = hold
            calls: list[Callable[[], object]] = [workers[0].step, workers[1].run_available, workers[2].rebuild]
            calls.append(partial(workers[3].run, threading.Event()))
            threads = [threading.Thread(target=call) for call in calls]
            threads[0].start()
            held.wait()
            for thread in threads[1:]:
                thread.start()
            until(lambda: len(waiting) >= 3)
            go.set()
            until(lambda: not any(thread.is_alive() for thread in threads[:3]))
            assert (len(rows_of(tables)), workers[1].verify()) == (1, 0)
            until(lambda: len(waiting) >= 4)
            workers[3].close()
            until(lambda: not threads[3].is_alive())
        finally:
            go.set()
            for worker in workers:
                worker.close()

    def test_position_moves_before_it_expires(self, url: str, storage: Storage) -> None:
        """At the latest after a tenth of the retention, though nothing changed."""
        short = {**FEED, "changelog.time-retained": "5 s"}
        storage.admin.create(ORDERS.evolve(options=short))
        storage.admin.create(PRODUCTS)
        storage.admin.create(TableSpecification("noise", [Field.long("id")], ["id"], options=FEED))
        with JoinWorker(join_of(url)) as worker:
            worker.step()
            first = storage.table(PROGRESS.name).read(("named",))
            assert first is not None
            ends = time.monotonic() + 60
            while storage.table(PROGRESS.name).read(("named",)) == first:
                assert time.monotonic() < ends
                storage.table("noise").upsert({"id": time.monotonic_ns()})
                assert worker.step().affected == 0
                time.sleep(0.05)

    def test_workers_at_once(self, url: str, tables: Storage) -> None:
        """Two threads of workers and a writer: what is there in the end is the join, told without a repetition."""
        with JoinWorker(join_of(url, "left"), poll=0.01) as one, JoinWorker(join_of(url, "left"), poll=0.01) as two:
            one.step()
            one.start()
            two.start()
            for number in range(25):
                self.put(tables, f"o{number % 5}", f"p{number % 3}", number)
                self.name(tables, f"p{number % 4}", f"name {number}")
            one.stop()
            two.stop()
            one.run_available()
            assert one.verify() == 0
        told_rows: dict[str, Any] = {}
        for kind, row in told(tables):
            if kind in ("-D", "-U"):
                assert told_rows.pop(row["id"]) == row
            else:
                assert told_rows.setdefault(row["id"], row) is row
        assert sorted(told_rows) == [row["id"] for row in rows_of(tables)]

    def test_random_programs(self, url: str, storage: Storage, clock: LeaseClock) -> None:
        for seed in range(int(os.environ.get("STRUCTABLE_TEST_JOIN_STORE_PROGRAMS", self.programs))):
            run_program(storage, url, seed, clock)

    def test_arguments_and_life_of_a_worker(self, url: str, tables: Storage) -> None:
        wrong: dict[str, Any]
        for wrong in ({"poll": 0}, {"small": -1}, {"small": True}, {"large": 1.5}, {"small": 2, "large": 1}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                JoinWorker(join_of(url), **wrong)
        worker = JoinWorker(join_of(url))
        stop = threading.Event()
        stop.set()
        worker.run(stop)
        worker.start()
        worker.start()
        worker.close()
        worker.close()
        for call in (worker.step, worker.run_available, worker.rebuild, worker.verify, worker.start):
            with pytest.raises(TransactionClosedError):
                call()
