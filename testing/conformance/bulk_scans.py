"""Rules of `plan_scan` and `read_split`: one snapshot, exact columns, and how long it holds."""

from __future__ import annotations

import gc
import itertools
import math
import pickle
import random
from collections.abc import Iterable
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    FieldType,
    InvalidFieldError,
    Range,
    ScanPlan,
    ScanSplit,
    Storage,
    StructableError,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    Value,
    col,
    connect,
)

from .case import ConformanceCase
from .clients import StoreProcess
from .conditions import OPERATORS
from .samples import EXTREMES, GRID, ITEMS, TYPES, Record, grid_rows, type_name

ARROW_TYPES: dict[FieldType, Any] = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.BYTE: pa.int8(),
    FieldType.SHORT: pa.int16(),
    FieldType.INT: pa.int32(),
    FieldType.LONG: pa.int64(),
    FieldType.FLOAT: pa.float32(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.DECIMAL: pa.decimal128(38, 10),
    FieldType.STRING: pa.string(),
    FieldType.BYTES: pa.binary(),
    FieldType.DATE: pa.date32(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.TIMESTAMP_NTZ: pa.timestamp("us"),
}
"""The Arrow type of each field type, as the contract has it."""

ROWS = grid_rows()


def in_random_order(rows: Iterable[Record]) -> list[Record]:
    """Return rows in another order, the same in each run."""
    shuffled = list(rows)
    random.Random(2).shuffle(shuffled)
    return shuffled


def by_value(rows: Iterable[Record]) -> list[Record]:
    """Return rows in the order of their values, nulls first, since splits and their rows have no order.

    The comparison includes how often each row occurs.
    """
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in sorted(row)])


def rows_of(storage: Storage, splits: Iterable[ScanSplit]) -> list[Record]:
    """Return the rows of splits in the order of their values, with repetitions."""
    return by_value(row for split in splits for batch in storage.read_split(split) for row in batch.to_pylist())


class BulkScanRules(ConformanceCase):
    """A snapshot in picklable parts."""

    @pytest.fixture
    def planned(self, storage: Storage) -> StructuredTable:
        """Return the auto-commit view of GRID with its rows; skip if the store cannot plan scans.

        They are written in another order than the keys', in several commits, and some of them again: a store that
        reuses space has them in no order.
        """
        storage.admin.create(GRID)
        table = storage.table("grid")
        shuffled = in_random_order(ROWS)
        for first in range(0, len(shuffled), 8):
            table.upsert_many({**row, "v": 99, "color": "none"} for row in shuffled[first : first + 8])
        table.upsert_many(shuffled[::2])
        for row in shuffled[1::2]:
            table.replace(row)
        if not self.capabilities.multi_process:
            try:
                storage.plan_scan("grid").close()
            except UnsupportedOperationError:
                self.require("multi_process")
        return storage.table("grid")

    @pytest.mark.parametrize("splits", [1, 2, 5, 100])
    def test_splits_are_the_whole_scan(self, storage: Storage, planned: StructuredTable, splits: int) -> None:
        """The splits together are the scan: each row once, in any order, for any requested number of splits."""
        with storage.plan_scan("grid", splits=splits) as plan:
            assert isinstance(plan, ScanPlan)
            assert len(plan.splits) >= 1
            assert [split.index for split in plan.splits] == list(range(len(plan.splits)))
            assert rows_of(storage, plan.splits) == by_value(ROWS)

    def test_more_splits_than_rows(self, storage: Storage, planned: StructuredTable) -> None:
        """However many splits are requested, a plan is made at once, with at most 10,000."""
        for where in (None, col("v") == 2):
            with storage.plan_scan("grid", where=where, splits=10**30) as plan:
                assert 1 <= len(plan.splits) <= 10_000

    def test_ordered_plan_is_in_key_order(self, storage: Storage, planned: StructuredTable) -> None:
        """A plan declared `ordered` has its rows in key order, split after split."""
        for where in (None, col("v") == 2):
            with storage.plan_scan("grid", where=where, columns=["k1", "k2", "k3"], splits=5) as plan:
                batches = [batch for split in plan.splits for batch in storage.read_split(split)]
                found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
                assert plan.ordered in (False, True)
                assert found == sorted(found) or not plan.ordered

    def test_large_table_is_split(self, storage: Storage, planned: StructuredTable) -> None:
        """A large table comes in several batches and splits, none of which has everything."""
        storage.admin.create(ITEMS)
        items = storage.table("items")
        items.upsert_many(in_random_order({"id": number, "note": "x" * 100} for number in range(20_000)))
        items.update_all(Range((5_000,), (6_000,)), {"note": "y" * 120})
        with storage.plan_scan("items", splits=4) as plan:
            parts = [rows_of(storage, [split]) for split in plan.splits]
        found = sorted((row["id"], row["note"][0]) for part in parts for row in part)
        assert found == [(number, "y" if 5_000 <= number < 6_000 else "x") for number in range(20_000)]
        assert 1 <= len(parts) <= 8

    def test_empty_table(self, storage: Storage, planned: StructuredTable) -> None:
        """A plan without rows has splits, too, and they are empty."""
        storage.admin.create(ITEMS)
        for plan in (
            storage.plan_scan("items", splits=3),
            storage.plan_scan("grid", range=Range((3,), (1,)), splits=3),
            storage.plan_scan("grid", where=col("k1") == 99, splits=3),
        ):
            with plan:
                assert len(plan.splits) >= 1
                assert rows_of(storage, plan.splits) == []

    def test_range_and_filter(self, storage: Storage, planned: StructuredTable) -> None:
        """A plan accepts `range` and `where` as `scan` does, for any returned columns."""
        inside = [row for row in ROWS if row["k1"] in (1, 2)]
        with storage.plan_scan("grid", range=Range((1,), (3,)), splits=3) as plan:
            assert rows_of(storage, plan.splits) == by_value(inside)
        for where, expected in [
            (col("color") == "red", [row for row in ROWS if row["color"] == "red"]),
            (col("v") == 2, [row for row in ROWS if row["v"] == 2]),
            (~(col("color") == "red"), [row for row in ROWS if row["color"] == "green"]),
            (col("k1").isin([0, 2]) & (col("k2") > 1), [row for row in ROWS if row["k1"] in (0, 2) and row["k2"] > 1]),
        ]:
            with storage.plan_scan("grid", where=where, columns=["k3", "k1"], splits=3) as plan:
                wanted = by_value({"k3": row["k3"], "k1": row["k1"]} for row in expected)
                assert rows_of(storage, plan.splits) == wanted

    def test_splits_find_what_a_scan_finds(self, storage: Storage, planned: StructuredTable) -> None:
        """Splits find the same rows as scans, by key, by indexed and by other fields."""
        storage.admin.create(ITEMS)
        items = storage.table("items")
        items.upsert_many(
            in_random_order(
                {
                    "id": number,
                    "n": number % 7,
                    "tag": f"t{number % 400:03}" if number % 5 else None,
                    "rank": number // 3_000,
                }
                for number in range(6_000)
            )
        )
        chances = random.Random(4)
        for number in range(16):
            parts = chances.sample(
                [
                    col("tag") == f"t{chances.randrange(420):03}",
                    col("tag").isin([f"t{chances.randrange(420):03}" for _ in range(chances.randrange(5))]),
                    col("tag").startswith(f"t{chances.randrange(4)}"),
                    col("tag") > f"t{chances.randrange(400):03}",
                    col("tag").is_null(),
                    col("rank") == chances.randrange(3),
                    col("rank") >= chances.randrange(2),
                    col("n") < chances.randrange(7),
                    col("id") > chances.randrange(6_000),
                    col("id").isin([chances.randrange(6_000) for _ in range(3)]),
                ],
                k=chances.choice([1, 1, 2, 3]),
            )
            where = parts[0]
            for part in parts[1:]:
                where = where | part if chances.random() < 0.2 else where & part
            first = chances.randrange(6_000)
            asked = chances.choice([Range.all(), Range.at_least((first,)), Range((first,), (first + 500,))])
            with storage.plan_scan("items", range=asked, where=where, splits=number % 6 + 1) as plan:
                found = rows_of(storage, plan.splits)
            assert found == by_value(map(dict, items.scan(asked, where=where))), str(where)

    def test_splits_compare_values_as_a_scan_does(self, storage: Storage, planned: StructuredTable) -> None:
        """Splits compare values of every type as scans do, the extremes, NaN and null included."""
        storage.admin.create(TYPES)
        types = storage.table("types")
        values = {field.name: EXTREMES[field.type] for field in TYPES.fields if field.name != "id"}
        types.upsert_many(
            [
                {"id": number} | {name: some[number] for name, some in values.items() if number < len(some)}
                for number in range(max(map(len, values.values())) + 1)
            ]
        )
        for name, some in values.items():
            for where in (col(name) >= some[-2], col(name).isin(some[-2:]), ~col(name).isin(some[:1] + some[-1:])):
                with storage.plan_scan("types", where=where, columns=["id"]) as plan:
                    assert rows_of(storage, plan.splits) == by_value(map(dict, types.scan(where=where, columns=["id"])))

    def test_splits_compare_fields_as_a_scan_does(self, storage: Storage) -> None:
        """Splits compare two fields as scans do, NaN, null and decimals of different digits included."""
        pairs = [(Field.double("x"), Field.double("y")), (Field.decimal("p", 20, 2), Field.decimal("q", 38, 30))]
        spec = TableSpecification("pairs", [Field.long("id"), *itertools.chain.from_iterable(pairs)], ["id"])
        storage.admin.create(spec)
        table = storage.table("pairs")
        numbers: list[Value] = [None, -1.5, -0.0, 0.0, 7.25, math.inf, math.nan]
        decimals: list[Value] = [None, *(Decimal(text) for text in ("-1.5", "0", "0.25", "7", "9999999"))]
        combined = itertools.product(itertools.product(numbers, numbers), itertools.product(decimals, decimals))
        table.upsert_many({"id": n, "x": x, "y": y, "p": p, "q": q} for n, ((x, y), (p, q)) in enumerate(combined))
        for one, other in pairs:
            for compare in OPERATORS.values():
                for where in (compare(col(one.name), col(other.name)), ~compare(col(one.name), col(other.name))):
                    with storage.plan_scan("pairs", where=where, columns=["id"], splits=2) as plan:
                        found = rows_of(storage, plan.splits)
                    wanted = by_value(map(dict, table.scan(where=where, columns=["id"])))
                    assert found == wanted, str(where)
                    assert wanted, str(where)

    @pytest.mark.parametrize("columns", [["v"], ["color", "k1"], ["k3", "v", "k1", "k2", "color"], ["k2"]], ids=str)
    def test_batches_hold_exactly_the_columns(
        self, storage: Storage, planned: StructuredTable, columns: list[str]
    ) -> None:
        """Batches hold exactly the requested columns, in that order: key fields are not added."""
        with storage.plan_scan("grid", columns=columns, splits=2) as plan:
            assert plan.columns == tuple(columns)
            batches = [batch for split in plan.splits for batch in storage.read_split(split)]
        assert batches
        assert all(batch.schema.names == columns for batch in batches)
        found = [row for batch in batches for row in batch.to_pylist()]
        assert by_value(found) == by_value({name: row[name] for name in columns} for row in ROWS)

    def test_all_columns_in_the_tables_order(self, storage: Storage, planned: StructuredTable) -> None:
        """Without `columns`, batches hold all of them, in the table's order."""
        with storage.plan_scan("grid") as plan:
            assert plan.columns == tuple(field.name for field in GRID.fields)
            batches = [batch for split in plan.splits for batch in storage.read_split(split)]
        assert all(tuple(batch.schema.names) == plan.columns for batch in batches)

    @pytest.mark.parametrize("kind", list(EXTREMES), ids=type_name)
    def test_arrow_types_and_values(self, storage: Storage, planned: StructuredTable, kind: FieldType) -> None:
        """Each field type has its Arrow type, and its values and nulls arrive unchanged."""
        storage.admin.create(TYPES)
        values = [*EXTREMES[kind], None]
        numbered: list[Record] = [{"id": number, kind.value: value} for number, value in enumerate(values)]
        storage.table("types").upsert_many(in_random_order(numbered))
        with storage.plan_scan("types", columns=[kind.value]) as plan:
            batches = [batch for split in plan.splits for batch in storage.read_split(split)]
        assert all(batch.schema.field(0).type == ARROW_TYPES[kind] for batch in batches)
        # Compared as text, because in Arrow NaN is not equal to itself.
        expected = pa.array(values, ARROW_TYPES[kind])
        found = pa.chunked_array([batch.column(0) for batch in batches], ARROW_TYPES[kind])
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))

    def test_key_columns_of_every_type(self, storage: Storage, planned: StructuredTable) -> None:
        """Key columns arrive as other columns do."""
        keyable = [kind for kind in EXTREMES if kind.keyable]
        fields = [Field(f"k_{kind.value}", kind) for kind in keyable]
        storage.admin.create(TableSpecification("keyed", fields, [field.name for field in fields[::-1]]))
        row: Record = {f"k_{kind.value}": EXTREMES[kind][-1] for kind in keyable}
        storage.table("keyed").insert(row)
        with storage.plan_scan("keyed") as plan:
            assert rows_of(storage, plan.splits) == [row]

    def test_all_splits_see_one_snapshot(self, storage: Storage, planned: StructuredTable) -> None:
        """All splits of a plan see one snapshot, taken when it was made, whenever they are read."""
        with storage.plan_scan("grid", splits=4) as plan:
            first = rows_of(storage, plan.splits[:1])
            planned.delete_all(Range.at_least((2,)))
            planned.update_all(Range.all(), {"v": 77})
            planned.upsert({"k1": 9, "k2": 9, "k3": "new"})
            assert by_value(first + rows_of(storage, plan.splits[1:])) == by_value(ROWS)
            assert rows_of(storage, plan.splits) == by_value(ROWS)
        with storage.plan_scan("grid") as plan:
            assert len(rows_of(storage, plan.splits)) == 17

    def test_splits_are_picklable(self, storage: Storage, planned: StructuredTable) -> None:
        """Splits are picklable, and a copy reads the same as long as the plan is held."""
        with storage.plan_scan("grid", columns=["v", "k1"], splits=3) as plan:
            copies = [pickle.loads(pickle.dumps(split)) for split in plan.splits]
            planned.delete_all(Range.all())
            assert rows_of(storage, copies) == by_value({"v": row["v"], "k1": row["k1"]} for row in ROWS)

    def test_left_plan_cannot_be_read(self, storage: Storage, planned: StructuredTable) -> None:
        """The snapshot holds until the `with` block is left: reading a split after that is an error."""
        with storage.plan_scan("grid", splits=2) as plan:
            copies = [pickle.loads(pickle.dumps(split)) for split in plan.splits]
        plan.close()
        for split in [*plan.splits, *copies]:
            with pytest.raises(TransactionClosedError):
                rows_of(storage, [split])

    @pytest.mark.parametrize("kept", ["plan", "split"])
    def test_snapshot_holds_while_it_is_referenced(self, storage: Storage, planned: StructuredTable, kept: str) -> None:
        """Without `with`, the snapshot holds until neither the plan nor one of its splits is referenced."""
        plan = storage.plan_scan("grid", splits=2)
        copies = [pickle.loads(pickle.dumps(split)) for split in plan.splits]
        reference: object = plan if kept == "plan" else plan.splits[-1]
        del plan
        gc.collect()
        planned.delete_all(Range.all())
        assert rows_of(storage, copies) == by_value(ROWS)
        del reference
        gc.collect()
        with pytest.raises(TransactionClosedError):
            rows_of(storage, copies)

    def test_snapshot_ends_with_its_storage(self, storage_url: str, planned: StructuredTable) -> None:
        """The snapshot ends when its `Storage` is closed."""
        with connect(storage_url) as storage:
            if not storage.admin.exists("grid"):
                pytest.skip("capability restartable is not declared: each connection is a store of its own")
            plan = storage.plan_scan("grid", splits=2)
            copies = [pickle.loads(pickle.dumps(split)) for split in plan.splits]
        with connect(storage_url) as again:
            for split in [*plan.splits, *copies]:
                with pytest.raises(StructableError):
                    rows_of(again, [split])

    def test_plans_are_independent(self, storage: Storage, planned: StructuredTable) -> None:
        """Some 30 plans are open at once, each with its own snapshot; ending one leaves the others."""
        with ExitStack() as stack:
            plans = []
            for number in range(30):
                plans.append(stack.enter_context(storage.plan_scan("grid", splits=2)))
                planned.insert({"k1": 100, "k2": number, "k3": ""})
            plans[3].close()
            for number, plan in enumerate(plans):
                if number != 3:
                    assert len(rows_of(storage, plan.splits)) == len(ROWS) + number

    def test_wrong_arguments(self, storage: Storage, planned: StructuredTable) -> None:
        """A table, field, value or list of columns that does not fit is rejected by the call of `plan_scan`."""
        with pytest.raises(TableNotFoundError):
            storage.plan_scan("missing")
        wrongs: list[dict[str, Any]] = [
            {"columns": []},
            {"columns": ["unknown"]},
            {"where": col("unknown") == 1},
            {"where": col("v") == "x"},
            {"range": Range.prefix(("x",))},
        ]
        for wrong in wrongs:
            with pytest.raises(InvalidFieldError):
                storage.plan_scan("grid", **wrong)

    def test_another_process_reads_a_split(
        self, storage: Storage, planned: StructuredTable, peer: StoreProcess
    ) -> None:
        """A split read in any process has the rows of the plan's snapshot; after the plan's end it is an error."""
        with storage.plan_scan("grid", where=col("color") == "red", splits=3) as plan:
            planned.delete_all(Range.all())
            found = [row for split in plan.splits for row in peer.ask("read_split", split)]
            assert by_value(found) == by_value(row for row in ROWS if row["color"] == "red")
            splits = plan.splits
        with pytest.raises(TransactionClosedError):
            peer.ask("read_split", splits[0])

    def test_a_split_is_read_by_the_url_alone(
        self, storage: Storage, storage_url: str, planned: StructuredTable, peer: StoreProcess
    ) -> None:
        """`read_split` with a URL reads the plan's snapshot in any process; after the plan's end it is an error."""
        with storage.plan_scan("grid", where=col("color") == "red", columns=["v", "color"], splits=3) as plan:
            planned.delete_all(Range.all())
            found = [row for split in plan.splits for row in peer.ask("read_split_by_url", storage_url, split)]
            red = [row for row in ROWS if row["color"] == "red"]
            assert by_value(found) == by_value({name: row[name] for name in ("v", "color")} for row in red)
            splits = plan.splits
        with pytest.raises(TransactionClosedError):
            peer.ask("read_split_by_url", storage_url, splits[0])
