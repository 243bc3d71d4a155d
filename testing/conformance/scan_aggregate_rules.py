"""Rules of aggregates in scan plans: the exact sum of the partial results, whatever the splits are."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    AggregateExpression,
    AggregateFunction,
    Aggregation,
    Field,
    FieldType,
    Filter,
    InvalidFieldError,
    Range,
    ScanPlan,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
    col,
    read_split,
)
from structable.spi.arrow import aggregate_schema

from .case import ConformanceCase
from .samples import EXTREMES, GRID, ITEMS, TYPES, Record, grid_rows, item
from .write_jobs import batch

count, total, least, greatest = (
    AggregateExpression.count,
    AggregateExpression.sum,
    AggregateExpression.min,
    AggregateExpression.max,
)

SALES = TableSpecification(
    "sales",
    [
        Field.long("id"),
        Field.string("shop"),
        Field.int("pieces"),
        Field.decimal("price", 15, 2),
        Field.decimal("discount", 4, 2),
        Field.decimal("huge", 38, 0),
        Field.date("day"),
    ],
    primary_key=["id"],
    indexes=["shop"],
)

_MANY = 30_000
_EXACT = Context(prec=100)
_UNORDERED = (FieldType.FLOAT, FieldType.DOUBLE)
_WHOLE = Range()

Groups = dict[tuple[Any, ...], list[Any]]
"""The values of each group's functions."""


def combined(parts: Iterable[Record], aggregation: Aggregation) -> Groups:
    """Return what partial results add up to."""
    groups: Groups = {}
    for part in parts:
        assert tuple(part) == aggregation.columns
        group = tuple(part[name] for name in aggregation.group_by)
        found = [part[str(one)] for one in aggregation.functions]
        before = groups.setdefault(group, [None] * len(found))
        groups[group] = [
            _both(one.function, *pair) for one, *pair in zip(aggregation.functions, before, found, strict=True)
        ]
    return groups


def _both(function: AggregateFunction, one: Any, other: Any) -> Any:  # noqa: ANN401 - values of any type
    if one is None or other is None:
        return other if one is None else one
    match function:
        case AggregateFunction.MIN:
            return min(one, other)
        case AggregateFunction.MAX:
            return max(one, other)
    return int(one) + int(other) if isinstance(one, int) else _EXACT.add(one, other)


def modelled(rows: Iterable[Record], aggregation: Aggregation, values: dict[str, Any]) -> Groups:
    """Return the aggregates of rows; `values` has a function of a row for each expression, by its text."""
    parts = [
        {
            **{name: row[name] for name in aggregation.group_by},
            **{str(one): _of_row(row, one, values) for one in aggregation.functions},
        }
        for row in rows
    ]
    return combined(parts, aggregation)


def _of_row(row: Record, one: AggregateExpression, values: dict[str, Any]) -> Any:  # noqa: ANN401 - values of any type
    if one.argument is None:
        return 1
    argument = str(one.argument)
    value = values[argument](row) if argument in values else row[argument]
    if one.function is AggregateFunction.COUNT:
        return 0 if value is None else 1
    return Decimal(value) if one.function is AggregateFunction.SUM and value is not None else value


class ScanAggregateRules(ConformanceCase):
    """Partial aggregates of a plan's splits, whose sum is the aggregate of all rows."""

    @pytest.fixture
    def aggregating(self, storage: Storage) -> Storage:
        """Return a store that aggregates."""
        self.require("aggregates")
        return storage

    def parts(self, storage: Storage, plan: ScanPlan) -> list[Record]:
        """Return the partial results of all splits, which other processes could read."""
        splits = pickle.loads(pickle.dumps(plan.splits)) if self.capabilities.multi_process else plan.splits
        return [row for split in splits for part in storage.read_split(split) for row in part.to_pylist()]

    def found(
        self,
        storage: Storage,
        table: str,
        aggregation: Aggregation,
        **arguments: Any,  # noqa: ANN401 - those of `plan_scan`
    ) -> Groups:
        """Return the aggregates of a plan."""
        with storage.plan_scan(table, aggregate=aggregation, **arguments) as plan:
            assert plan.columns == aggregation.columns
            return combined(self.parts(storage, plan), aggregation)

    def test_aggregates_without_the_capability(self, storage: Storage) -> None:
        """A store without aggregates refuses a plan of them with `UnsupportedOperationError`."""
        if self.capabilities.aggregates:
            pytest.skip("the store aggregates")
        storage.admin.create(ITEMS)
        with pytest.raises(UnsupportedOperationError):
            storage.plan_scan(ITEMS.name, aggregate=Aggregation([count()]))

    def test_partial_aggregates_add_up(self, aggregating: Storage) -> None:
        """The parts of any splits add up to the aggregates of the selected rows, for any range, filter and groups."""
        aggregating.admin.create(GRID)
        rows = [{**row, "color": None if row["k2"] == 2 else row["color"]} for row in grid_rows()]
        aggregating.table("grid").upsert_many(rows)
        functions = [count(), count("color"), total("v"), least("k3"), greatest("v"), least("color")]
        keys: list[Range] = [_WHOLE, Range((1,), (3,)), Range.prefix((2, 1)), Range((3,), (1,))]
        conditions: list[Filter | None] = [
            None,
            col("v") == 2,
            col("color") == "red",
            (col("v") > 1) | (col("k1") == 0),
        ]
        groups: list[Sequence[str]] = [[], ["color"], ["k1", "color"], ["v"]]
        for range_, where, group_by, splits in product(keys, conditions, groups, (1, 3)):
            aggregation = Aggregation(functions, group_by)
            selected = [dict(row) for row in aggregating.table("grid").scan(range_, where=where)]
            wanted = modelled(selected, aggregation, {})
            if not group_by and not selected:
                wanted = {(): [0, 0, None, None, None, None]}
            found = self.found(aggregating, "grid", aggregation, range=range_, where=where, splits=splits)
            assert found == wanted, (range_, where, group_by)

    def test_rows_are_counted(self, aggregating: Storage) -> None:
        """`count` without a field counts rows: of the whole table, of a filter and of a key."""
        aggregating.admin.create(ITEMS)
        aggregation = Aggregation([count()])
        for rows in (0, 100):
            aggregating.table("items").upsert_many(item(number, n=number % 4) for number in range(rows))
            for where, wanted in ((None, rows), (col("n") == 1, rows // 4), (col("id") == 7, int(rows > 7))):
                assert self.found(aggregating, "items", aggregation, where=where, splits=3) == {(): [wanted]}

    def test_aggregates_of_no_rows(self, aggregating: Storage) -> None:
        """If no row is selected, each split has a row of zeros and nulls without groups, and no row with groups."""
        aggregating.admin.create(ITEMS)
        functions = [count(), count("tag"), total("n"), least("tag"), greatest("id")]
        for rows in range(2):
            for where in (col("n") == 7, col("id").isin([]), col("tag") == "none"):
                with aggregating.plan_scan("items", where=where, aggregate=Aggregation(functions), splits=3) as plan:
                    for split in plan.splits:
                        (part,) = [row for one in aggregating.read_split(split) for row in one.to_pylist()]
                        assert list(part.values()) == [0, 0, None, None, None]
                assert self.found(aggregating, "items", Aggregation(functions, ["tag"]), where=where) == {}
            if not rows:
                aggregating.table("items").upsert(item(1, n=1))

    def test_groups_alone_are_the_distinct_values(self, aggregating: Storage) -> None:
        """Without functions the parts have the distinct values of the groups."""
        aggregating.admin.create(GRID)
        aggregating.table("grid").upsert_many(grid_rows())
        wanted = {(row["k1"], row["color"]) for row in grid_rows()}
        assert set(self.found(aggregating, "grid", Aggregation(group_by=["k1", "color"]), splits=2)) == wanted

    @pytest.mark.parametrize("kind", FieldType)
    def test_aggregates_of_every_type(self, aggregating: Storage, kind: FieldType) -> None:
        """Counts take every type, extremes and groups all but floats, sums only exact numbers."""
        aggregating.admin.create(TYPES)
        name, table = kind.value, aggregating.table("types")
        values = [*EXTREMES[kind], None, EXTREMES[kind][0]]
        functions = [count(name)]
        group_by = []
        if kind not in _UNORDERED:
            functions += [least(name), greatest(name)]
            group_by = [name]
            if kind.integer_bits or kind is FieldType.DECIMAL:
                functions.append(total(name))
        for rows in ([], [None], values):
            table.delete_all(Range.all())
            table.upsert_many({"id": number, name: value} for number, value in enumerate(rows))
            stored = [dict(row) for row in table.scan()]
            for aggregation in (Aggregation(functions), Aggregation([*functions, count()], group_by)):
                wanted = modelled(stored, aggregation, {})
                if not aggregation.group_by and not stored:
                    wanted = {(): [0] + [None] * (len(functions) - 1)}
                    if len(aggregation.functions) > len(functions):
                        wanted[()].append(0)
                assert self.found(aggregating, "types", aggregation, splits=2) == wanted
        aggregation = Aggregation(functions, group_by)
        with aggregating.plan_scan("types", aggregate=aggregation) as plan:
            schemas = [one.schema for split in plan.splits for one in aggregating.read_split(split)]
        assert schemas
        assert all(schema == aggregate_schema(TYPES, aggregation) for schema in schemas)
        extremes = [pa.field(str(one), schemas[0].field(name).type) for one in functions[1:3]] if group_by else []
        sums = [pa.field(str(one), pa.decimal128(38, 10 if kind is FieldType.DECIMAL else 0)) for one in functions[3:]]
        counts = [pa.field(str(count(name)), pa.int64(), nullable=False)]
        assert list(schemas[0])[len(group_by) :] == [*counts, *extremes, *sums]

    def test_sums_never_overflow(self, aggregating: Storage) -> None:
        """Sums are exact beyond 64 bits, and beyond 38 digits, where they come in several parts."""
        aggregating.admin.create(TYPES)
        large, most = 2**63 - 1, EXTREMES[FieldType.DECIMAL][-1]
        rows = [{"id": number, "long": large, "int": 2**31 - 1, "decimal": most} for number in range(11)]
        aggregating.table("types").upsert_many(rows)
        functions = [total("long"), total("int"), total("decimal"), count(), greatest("int")]
        assert isinstance(most, Decimal)
        wanted = [Decimal(11 * large), Decimal(11 * (2**31 - 1)), _EXACT.multiply(most, Decimal(11)), 11, 2**31 - 1]
        for aggregation in (Aggregation(functions), Aggregation(functions, ["int"])):
            assert list(self.found(aggregating, "types", aggregation).values()) == [wanted]

    def test_sums_of_expressions_are_exact(self, aggregating: Storage) -> None:
        """Sums, differences and products of numbers and constants have all digits; with a null they are null."""
        aggregating.admin.create(SALES)
        rows: list[Record] = [
            {
                "id": number - 500,
                "shop": f"s{number % 3}",
                "pieces": None if number % 7 == 0 else number * 1_000_000,
                "price": Decimal(number * number - 7) / 4,
                "discount": Decimal(number % 100 - 50) / 100,
                "huge": Decimal(10**30 + number),
            }
            for number in range(1_000)
        ]
        aggregating.table("sales").upsert_many(rows)
        net = col("price") * (1 - col("discount"))
        values: dict[Any, Any] = {
            net: lambda row: row["price"] * (1 - row["discount"]),
            net * (col("discount") + Decimal("-0.005")): lambda row: (
                row["price"] * (1 - row["discount"]) * (row["discount"] - Decimal("0.005"))
            ),
            col("pieces") * col("pieces") * col("id"): lambda row: row["pieces"] and row["pieces"] ** 2 * row["id"],
            col("huge") - col("id"): lambda row: _EXACT.subtract(row["huge"], Decimal(row["id"])),
        }
        aggregation = Aggregation([*map(total, values), *map(count, values)], ["shop"])
        model = modelled(rows, aggregation, {str(one): value for one, value in values.items()})
        assert self.found(aggregating, "sales", aggregation, splits=3) == model
        selected = [row for row in rows if row["price"] < 100]
        found = self.found(aggregating, "sales", aggregation, where=col("price") < Decimal(100))
        assert found == modelled(selected, aggregation, {str(one): value for one, value in values.items()})

    def test_an_expression_beyond_38_digits_is_an_error(self, aggregating: Storage) -> None:
        """An expression's type may allow more than 38 digits; a value that has them is `InvalidFieldError`."""
        aggregating.admin.create(SALES)
        table = aggregating.table("sales")
        table.upsert_many({"id": number, "huge": Decimal(10**20), "pieces": None} for number in range(1, 4))
        aggregation = Aggregation([total(col("huge") * col("huge") * Decimal("0.0001")), count()])
        with pytest.raises(InvalidFieldError):
            self.found(aggregating, "sales", aggregation)
        table.update_all(Range.all(), {"huge": Decimal(10**15)})
        assert self.found(aggregating, "sales", aggregation) == {(): [Decimal(3 * 10**26), 3]}

    def test_many_groups(self, aggregating: Storage) -> None:
        """Groups are right however many there are: few, as many as rows, or many in any order."""
        aggregating.admin.create(ITEMS)
        rows = [item(number, n=number * 7919 % 5_000, tag=f"t{number % 3}") for number in range(_MANY)]
        job = aggregating.begin_write("items", mode=WriteMode.INSERT, job_id=self.fresh_id())
        aggregating.commit_write(job, [aggregating.stage(job, 0, 0, [batch(rows)])])
        for group_by in ("id", "n", "tag"):
            aggregation = Aggregation([count(), total("id"), greatest("id")], [group_by])
            found = self.found(aggregating, "items", aggregation, splits=2)
            assert found == modelled(rows, aggregation, {})

    def test_aggregates_see_the_plans_snapshot(self, aggregating: Storage) -> None:
        """Aggregates are of the rows that a plan of rows has: of one snapshot, its own or a shared one."""
        aggregating.admin.create(ITEMS)
        table = aggregating.table("items")
        table.upsert_many(item(number, n=1) for number in range(100))
        aggregation = Aggregation([count(), total("n")])
        with aggregating.plan_scan("items", aggregate=aggregation, splits=2) as plan:
            table.update_all(Range.all(), {"n": 5})
            assert combined(self.parts(aggregating, plan), aggregation) == {(): [100, Decimal(100)]}
        if not self.capabilities.shared_snapshots:
            return
        with aggregating.share_snapshot() as shared, shared.plan_scan("items", aggregate=aggregation) as plan:
            table.delete_all(Range.below((50,)))
            with shared.plan_scan("items", where=col("id") < 50, aggregate=aggregation) as other:
                assert combined(self.parts(aggregating, plan), aggregation) == {(): [100, Decimal(500)]}
                assert combined(self.parts(aggregating, other), aggregation) == {(): [50, Decimal(250)]}

    def test_aggregates_of_a_table_without_a_key(self, aggregating: Storage) -> None:
        """A table without a key is aggregated as any other; equal rows count as often as they occur."""
        self.require("table_types")
        bag = TableSpecification("bag", [Field.string("name"), Field.int("n")], options={"write-mode": "append-only"})
        aggregating.admin.create(bag)
        aggregating.table("bag").insert_many({"name": f"n{number % 2}", "n": 3} for number in range(9))
        aggregation = Aggregation([count(), total("n")], ["name"])
        wanted = {("n0",): [5, Decimal(15)], ("n1",): [4, Decimal(12)]}
        assert self.found(aggregating, "bag", aggregation, splits=2) == wanted

    def test_aggregates_are_read_by_url(self, aggregating: Storage, storage_url: str) -> None:
        """The splits are read by `read_split`, too, as in a process that has no connection."""
        self.require("multi_process")
        aggregating.admin.create(ITEMS)
        aggregating.table("items").upsert_many(item(number, n=2) for number in range(10))
        aggregation = Aggregation([count(), total("n")], ["tag"])
        with aggregating.plan_scan("items", aggregate=aggregation) as plan:
            parts = [row for split in plan.splits for one in read_split(storage_url, split) for row in one.to_pylist()]
            assert combined(parts, aggregation) == combined(self.parts(aggregating, plan), aggregation)

    def test_an_aggregate_that_does_not_fit_is_refused(self, aggregating: Storage) -> None:
        """Fields that are unknown or of an unfit type are `InvalidFieldError`, as are columns next to an aggregate."""
        aggregating.admin.create(ITEMS)
        wrong: list[dict[str, Any]] = [
            {"aggregate": Aggregation([count("unknown")])},
            {"aggregate": Aggregation([count()], ["unknown"])},
            {"aggregate": Aggregation([total("tag")])},
            {"aggregate": Aggregation([total("cost")])},
            {"aggregate": Aggregation([least("cost")])},
            {"aggregate": Aggregation([count()], ["cost"])},
            {"aggregate": Aggregation()},
            {"aggregate": "count(*)"},
            {"aggregate": Aggregation([count()]), "columns": ["id"]},
        ]
        for arguments in wrong:
            with pytest.raises(InvalidFieldError):
                aggregating.plan_scan("items", **arguments)
