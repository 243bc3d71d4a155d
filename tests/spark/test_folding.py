"""The fold of a stream's updates, against a loop of `update(row, default)` and `delete` on a dict."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from structable.spark_bridge.write.folding import DEFAULT, DELETES, UpdateFolding
from structable.spark_bridge.write.grouping import KeyCounts, last_rows
from structable.spi import Field, InvalidFieldError, TableSpecification, Value
from structable.spi.arrow import arrow_schema

PROGRAMS = int(os.environ.get("STRUCTABLE_TEST_FOLDED_PROGRAMS", "2000"))
AT_ONCE = 50

SPEC = TableSpecification(
    "profiles",
    [Field.string("k"), Field.long("n"), *(Field.long(name) for name in "abcdefgh"), Field.string("text")],
    primary_key=["k", "n"],
)
KEY = SPEC.primary_key
Row = dict[str, Value]
Keys = dict[tuple[Value, ...], Row]


@dataclass
class Step:
    """A row of a micro-batch: fields, the default of its own, and whether it deletes its key."""

    changes: Row
    default: Row | None
    deletes: bool


def value(chance: random.Random) -> Value:
    return None if chance.random() < 0.3 else chance.randrange(100)


def looped(
    table: Mapping[tuple[Value, ...], Row], steps: Mapping[tuple[Value, ...], Sequence[Step]], folding: UpdateFolding
) -> tuple[Keys, set[tuple[Value, ...]]]:
    """Return the table and the missing keys after all steps, one by one."""
    rows: Keys = {key: dict(row) for key, row in table.items()}
    missing: set[tuple[Value, ...]] = set()
    for key, program in steps.items():
        for step in program:
            changes = {
                name: given for name, given in step.changes.items() if given is not None or not folding.keeps_nulls
            }
            default = step.default if folding.default is None else folding.default
            if step.deletes:
                rows.pop(key, None)
            elif key in rows:
                rows[key].update(changes)
            elif default is not None:
                rows[key] = {**dict.fromkeys(SPEC.field_names[2:]), **without_key(default), **changes}
            else:
                missing.add(key)
    return rows, missing


def without_key(row: Mapping[str, Value]) -> Row:
    return {name: given for name, given in row.items() if name not in KEY}


def patched(
    table: Mapping[tuple[Value, ...], Row], batches: list[pa.RecordBatch]
) -> tuple[Keys, list[tuple[Value, ...]]]:
    """Apply patches as the contract has them, judged on the table before."""
    rows: Keys = {key: dict(row) for key, row in table.items()}
    missing: set[tuple[Value, ...]] = set()
    arms: dict[tuple[Value, ...], list[str]] = {}
    for batch in batches:
        names = [name for name in batch.schema.names if not name.startswith("_")]
        for row in batch.to_pylist():
            key = tuple(row[name] for name in KEY)
            bits = None if row["_set"] is None else int.from_bytes(row["_set"], "little")
            given = {
                name: row[name]
                for place, name in enumerate(names)
                if name not in KEY and (bits is None or bits >> place & 1)
            }
            arm, arms[key] = row["_arm"], [*arms.get(key, []), row["_arm"]]
            if row["_required"] and key not in table:
                missing.add(key)
            if arm == "delete":
                rows.pop(key, None)
            elif arm == "present" and key in table:
                rows[key].update(given)
            elif arm == "replace" or (arm == "absent" and key not in table):
                rows[key] = {**dict.fromkeys(SPEC.field_names[2:]), **given}
    for key, of_key in arms.items():
        assert sorted(of_key) in (["present"], ["absent", "present"], ["replace"], ["delete"])
        if of_key == ["present"] and key not in table:
            missing.add(key)
    return rows, list(missing)


@pytest.mark.parametrize("number", range(max(1, PROGRAMS // AT_ONCE)))
def test_a_fold_is_a_loop_of_updates_and_deletes(number: int) -> None:
    chance = random.Random(number)
    fields = tuple(chance.sample("abcdefgh", chance.randint(1, 8)))
    in_key = chance.random() < 0.3
    per_row = chance.random() < 0.5
    default_fields = (*(KEY if in_key else ()), *chance.sample("abcdefgh", chance.randint(1, 4))) if per_row else ()
    default = {name: value(chance) for name in chance.sample("abcdefgh", 3)} if chance.random() < 0.3 else None
    folding = UpdateFolding(SPEC, fields, chance.random() < 0.5, None if per_row else default, default_fields)

    keys = sorted((f"k{one:03}", chance.randrange(2)) for one in range(AT_ONCE))
    table: Keys = {
        key: {name: value(chance) for name in "abcdefgh"} | {"text": "old"} for key in keys if chance.random() < 0.5
    }
    steps: dict[tuple[Value, ...], list[Step]] = {}
    for key in keys:
        steps[key] = []
        for _ in range(chance.choice([1, 1, 1, 2, 3, 5, 12])):
            own = dict.fromkeys(default_fields) | {
                name: key[KEY.index(name)] if name in KEY and chance.random() < 0.5 else None for name in default_fields
            }
            own |= {name: value(chance) for name in default_fields if name not in KEY}
            given = own if per_row and chance.random() < 0.5 else None
            steps[key].append(Step({name: value(chance) for name in fields}, given, chance.random() < 0.25))

    counts = KeyCounts()
    batches = list(folding.fold(cut(steps, folding, chance), counts))
    rows, conditional = patched(table, batches)
    expected, missing = looped(table, steps, folding)
    assert rows == expected
    assert counts.rows == sum(map(len, steps.values()))
    assert counts.keys == len(keys)
    assert len(conditional) + counts.missing == len(missing)
    assert set(conditional) | set(counts.first_missing) <= missing
    assert all(batch.schema == folding.schema for batch in batches)


def cut(
    steps: Mapping[tuple[Value, ...], Sequence[Step]], folding: UpdateFolding, chance: random.Random
) -> list[pa.RecordBatch]:
    """Return the rows in batches, cut anywhere; some are empty."""
    struct = pa.struct([(name, arrow_schema(SPEC).field(name).type) for name in folding.default_fields])
    schema = arrow_schema(SPEC, [*KEY, *folding.fields]).append(pa.field(DELETES, pa.bool_()))
    if folding.default_fields:
        schema = schema.append(pa.field(DEFAULT, struct))
    rows = [
        {
            **dict(zip(KEY, key, strict=True)),
            **step.changes,
            DELETES: step.deletes or (None if chance.random() < 0.5 else False),
            DEFAULT: step.default,
        }
        for key, program in steps.items()
        for step in program
    ]
    batches, start = [], 0
    while start < len(rows):
        size = chance.choice([0, 1, 2, 3, 7, 30])
        batches.append(pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema))
        start += size
    return batches


def test_a_default_for_another_key_is_refused() -> None:
    folding = UpdateFolding(SPEC, ("a",), default_fields=("k", "b"))
    struct = pa.struct([("k", pa.string()), ("b", pa.int64())])
    schema = arrow_schema(SPEC, [*KEY, "a"]).append(pa.field(DEFAULT, struct)).append(pa.field(DELETES, pa.bool_()))
    row = {"k": "x", "n": 1, "a": 1, DEFAULT: {"k": "y", "b": 1}}
    with pytest.raises(InvalidFieldError, match="the default is for 'y', the row for 'x'; leave the key out"):
        list(folding.fold([pa.RecordBatch.from_pylist([row], schema=schema)], KeyCounts()))
    deleted = pa.RecordBatch.from_pylist([{**row, DELETES: True}], schema=schema)
    assert [batch.column("_arm").to_pylist() for batch in folding.fold([deleted], KeyCounts())] == [["delete"]]


def test_a_key_that_fills_many_batches_is_one_key() -> None:
    folding, counts = UpdateFolding(SPEC, ("a",), default={"b": 7}), KeyCounts()
    schema = arrow_schema(SPEC, [*KEY, "a"])
    batches = [pa.RecordBatch.from_pylist([{"k": "x", "n": 1, "a": one}] * 3, schema=schema) for one in range(50)]
    rows = [row for batch in folding.fold(batches, counts) for row in batch.to_pylist()]
    assert [(row["_arm"], row["a"], row["b"]) for row in rows] == [("present", 49, None), ("absent", 49, 7)]
    assert (counts.rows, counts.keys, counts.missing) == (150, 1, 0)


def test_the_last_row_of_each_key_is_found_across_batches() -> None:
    chance, schema, counts = random.Random(1), arrow_schema(SPEC, [*KEY, "a"]), KeyCounts()
    rows = [
        {"k": f"k{one:03}", "n": 0, "a": again} for one in range(200) for again in range(chance.choice([1, 1, 2, 9]))
    ]
    batches = []
    start = 0
    while start < len(rows):
        size = chance.choice([0, 1, 2, 3, 7])
        batches.append(pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema))
        start += size
    found = [row for batch in last_rows(batches, KEY, counts) for row in batch.to_pylist()]
    assert found == list({row["k"]: row for row in rows}.values())
    assert (counts.rows, counts.keys) == (len(rows), 200)
