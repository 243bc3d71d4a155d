"""What a large step knows without reading: changes that the small try read, and what images of the right table tell."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker, affected
from structable.spark_bridge.joins.affected import SideChanges
from structable.spark_bridge.joins.binding import bind
from structable.spark_bridge.joins.few_changes import RightImages
from structable.spark_bridge.joins.kernel import Kernel, Values
from structable.spi import CHANGE_TYPE, Change, FeedPosition, Field, Row, TableSpecification, Value, connect
from structable.spi.arrow import arrow_schema
from structable.spi.authors import RowShape

from .support.tables import FEED, ORDERS, PRODUCTS, join_of

KEYS: dict[str, list[Value]] = {"k": ["a", "b", "ä"], "m": [1, 2, -3], "w": [True, False]}


def row_of(spec: TableSpecification, columns: tuple[str, ...], values: dict[str, Any]) -> Row:
    return Row(RowShape(spec.name, columns, spec.primary_key), tuple([values[name] for name in columns]))


def specs(width: int, *, soft: bool) -> tuple[TableSpecification, TableSpecification]:
    """Return a left and a right table, whose key has so many fields."""
    kinds = [Field.string("k"), Field.int("m"), Field.boolean("w")][:width]
    options = {**FEED, "soft-delete.field": "gone"} if soft else FEED
    gone = [Field.boolean("gone")] if soft else []
    left = TableSpecification("l", [Field.long("id"), *kinds, Field.int("n"), *gone], ["id"], ["k"], options)
    right = TableSpecification(
        "r", [*kinds, Field.double("x"), Field.string("t"), *gone], [field.name for field in kinds], options=options
    )
    return left, right


def rights(chance: random.Random, kernel: Kernel, keys: list[Values]) -> Iterator[Row | None]:
    """Yield a state of the right row of each key."""
    spec, columns = kernel.bound.right, kernel.bound.right_columns
    for key in keys:
        values = dict(zip(spec.primary_key, key, strict=True))
        values |= {"x": chance.choice([0.0, -0.0, float("nan"), None]), "t": chance.choice(["u", None])}
        values["gone"] = chance.choice([None, False, True])
        yield row_of(spec, columns, values) if chance.random() < 0.8 else None


@pytest.mark.parametrize("width", [1, 2, 3])
def test_differences_are_those_of_the_kernel_row_by_row(width: int) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        left, right = specs(width, soft=chance.random() < 0.5)
        select = {"n": "left.n", "x": "right.x", "t": "right.t", "w": "left.k"}
        chosen = dict(chance.sample(sorted(select.items()), chance.randrange(5)))
        ref = TableRef("memory://", "l"), TableRef("memory://", "r")
        on = {name: name for name in right.primary_key}
        how = chance.choice(["inner", "left"])
        join = ForeignKeyJoin("j", *ref, on, how, select=chosen, result=TableRef("memory://", "o"))  # type: ignore[arg-type]
        kernel = Kernel(bind(join, left, right))
        columns = kernel.bound.left_columns
        every: list[Values] = [()]
        for name in right.primary_key:
            every = [(*key, value) for key in every for value in KEYS[name]]
        keys = chance.sample(every, chance.randrange(len(every)))
        changes = SideChanges(
            FeedPosition("0" * 16, 0),
            dict(zip(keys, rights(chance, kernel, keys), strict=True)),
            dict(zip(keys, rights(chance, kernel, keys), strict=True)),
        )
        rows = []
        for number in range(40):
            values: dict[str, Any] = {"id": number, "n": chance.choice([1, None]), "gone": chance.choice([None, True])}
            values |= {name: chance.choice([*KEYS[name], None]) for name in right.primary_key}
            rows.append(row_of(left, columns, values))
        changed = [(number,) for number in chance.sample(range(40), 10)]

        expected = []
        for row in rows:
            key = kernel.foreign_key(row)
            if row.key in changed or key not in changes.rows:
                continue
            assert key is not None
            was, now = (kernel.joined(row, side[key]) for side in (changes.before, changes.rows))
            one = kernel.difference(row.key, was, now)
            if one is not None:
                expected.append((*one.values, one.kind.change_type))

        images = RightImages.of(kernel, changed, changes)
        found: list[tuple[Value, ...]] = []
        for part in (rows[:15], rows[15:], []):
            arrays = [[row[name] for row in part] for name in columns]
            batch = pa.RecordBatch.from_arrays(
                [pa.array(array, field.type) for array, field in zip(arrays, arrow_schema(left, columns), strict=True)],
                names=list(columns),
            )
            given = images.differences(batch)
            assert given.schema.names == [*kernel.columns, CHANGE_TYPE]
            found += zip(*(column.to_pylist() for column in given.columns), strict=True)
        assert str(found) == str(expected), seed
        assert set(images.keys) <= set(keys)


def test_large_step_reads_on_where_the_small_try_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    times: Counter[str] = Counter()
    original = affected._row

    def noted(change: Change) -> Row:
        row = original(change)
        times[str(row.key[0])] += 1
        return row

    monkeypatch.setattr(affected, "_row", noted)
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        with JoinWorker(join_of(storage.url, "left"), small=5) as worker:
            worker.step()
            for number in range(9):
                storage.table("products").upsert({"sku": f"p{number}"})
                storage.table("orders").upsert({"id": str(number), "product": f"p{number}"})
            step = worker.step()
            assert (step.inserted, step.rebuilt, worker.verify()) == (9, False, 0)
    assert times == {**dict.fromkeys(times, 1), "5": 2}  # the rest of a commit is read with all of it
    assert len(times) == 18
