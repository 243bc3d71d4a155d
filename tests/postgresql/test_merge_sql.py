"""SQL merges as `Merger` does: the same rows, to the bit, and the same refusals, in every kind of statement.

`STRUCTABLE_TEST_MERGED_ROWS` (default 600) is the number of random changes of each function and each engine.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator, Mapping

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    RowKind,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    connect,
)
from structable.spi.conformance.chances import random_row, random_specification
from structable.spi.conformance.merge_case import run_job
from structable.spi.conformance.type_chances import FUNCTIONS, aggregated_by, random_change, random_kind, random_type
from structable.spi.merging import IGNORED, Merger
from structable.spi.rules.rows import check_row

ROWS = int(os.environ.get("STRUCTABLE_TEST_MERGED_ROWS", "600"))
CALLS = 12
REFUSED = 10

Row = dict[str, Value]
Key = tuple[Value, ...]
Rows = dict[Key, tuple[Value, ...]]
Changes = list[tuple[RowKind, Mapping[str, Value]]]


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        yield storage


def bits(row: tuple[Value, ...]) -> tuple[object, ...]:
    """Return values of which floats that differ in any bit differ; NaN is NaN."""
    return tuple("nan" if one != one else struct.pack(">d", one) if isinstance(one, float) else one for one in row)


def by_call(storage: Storage, changes: Changes) -> None:
    storage.table("t").apply_changes(changes)


def by_transaction(storage: Storage, changes: Changes) -> None:
    with storage.transaction() as transaction:
        transaction.table("t").apply_changes(changes)


def by_single_writes(storage: Storage, changes: Changes) -> None:
    with storage.transaction() as transaction:
        for change in changes:
            transaction.table("t").apply_changes([change])


def by_job(storage: Storage, changes: Changes) -> None:
    run_job(storage, "t", [(kind, dict(row)) for kind, row in changes])


WAYS: list[Callable[[Storage, Changes], None]] = [by_call, by_transaction, by_single_writes, by_job]


def compare(storage: Storage, spec: TableSpecification, change: Callable[[], tuple[RowKind, Row]]) -> None:
    """Merge random changes in calls, by every way in turn, and compare the rows after each."""
    storage.admin.create(spec)
    merger, columns = Merger(spec), [field.name for field in spec.value_fields]
    rows: Rows = {}
    refused = 0
    for call in range(CALLS):
        way = WAYS[call % len(WAYS)]
        size = 40 if way in (by_job, by_single_writes) else max(1, 2 * ROWS // CALLS)
        accepted: Changes = []
        for _ in range(size):
            kind, row = change()
            given = check_row(spec, row)
            key = tuple(given[name] for name in spec.primary_key)
            try:
                merged = merger.apply(rows.get(key), kind, given)
            except (InvalidFieldError, UnsupportedOperationError) as error:
                refused += 1
                if refused <= REFUSED and not accepted:
                    with pytest.raises(type(error)):
                        way(storage, [(kind, row)])
                continue
            accepted.append((kind, row))
            if merged is None:
                rows.pop(key, None)
            elif merged is not IGNORED:
                rows[key] = merged
        way(storage, accepted)
        found = {row.key: tuple(row[name] for name in columns) for row in storage.table("t").scan()}
        assert found.keys() == rows.keys()
        wrong = {key: (found[key], rows[key]) for key in rows if bits(found[key]) != bits(rows[key])}
        assert wrong == {}, way.__name__


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(storage: Storage, function: str) -> None:
    """Each function on each type it fits, extremes too."""
    chance = random.Random(function)
    spec = aggregated_by(function)
    keys = max(20, ROWS // 10)
    compare(storage, spec, lambda: random_change(chance, spec, keys, extremes=True))


@pytest.mark.parametrize("distinct", [False, True])
def test_lists(storage: Storage, distinct: bool) -> None:
    """Lists of several delimiters, of values that begin, end and overlap with them."""
    chance = random.Random(distinct)
    delimiters = {"a": ",", "b": "||", "c": "'\\", "d": "aa"}
    options = {"merge-engine": "aggregation", "fields.default-aggregate-function": "listagg"}
    for name, delimiter in delimiters.items():
        options[f"fields.{name}.list-agg-delimiter"] = delimiter
        options[f"fields.{name}.distinct"] = str(distinct).lower()
    spec = TableSpecification("t", [Field.int("id"), *map(Field.string, delimiters)], ["id"], options=options)

    def change() -> tuple[RowKind, Row]:
        row: Row = {"id": chance.randrange(max(30, ROWS // 12))}
        for name in chance.sample(sorted(delimiters), 2):
            row[name] = "".join(chance.choice(["", "x", "a", "|", ",", "'\\", "aa", "||", "é"]) for _ in range(5))
        return RowKind.INSERT, row

    compare(storage, spec, change)


@pytest.mark.parametrize("seed", range(8))
def test_engines(storage: Storage, seed: int) -> None:
    """Tables of every engine, with random fields and options."""
    chance = random.Random(seed)
    plain = random_specification(chance, "t")
    spec = random_type(chance, plain)
    pool = [random_row(chance, spec) for _ in range(20)]

    def change() -> tuple[RowKind, Row]:
        row = random_row(chance, spec)
        if chance.random() < 0.7:
            row |= {name: chance.choice(pool)[name] for name in spec.primary_key}
        return random_kind(chance), row

    compare(storage, spec, change)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["byte", "short", "int", "long"])
def test_retracts_of_the_lowest_number(storage: Storage, way: Callable[[Storage, Changes], None], kind: str) -> None:
    """The negative of the lowest number does not fit its field, but a sum with it may."""
    number = TableSpecification(
        "t",
        [Field.int("id"), getattr(Field, kind)("n"), Field.string("list")],
        ["id"],
        options={
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.list.aggregate-function": "listagg",
        },
    )
    lowest = -(1 << (number.field("n").type.integer_bits - 1))
    storage.admin.create(number)
    table = storage.table("t")
    table.insert_many([{"id": 1, "n": -1}, {"id": 2, "n": 0}])
    way(storage, [(RowKind.UPDATE_BEFORE, {"id": 1, "n": lowest})])
    for key in (2, 3):
        with pytest.raises(InvalidFieldError):
            way(storage, [(RowKind.UPDATE_BEFORE, {"id": key, "n": lowest})])
    assert [(row["id"], row["n"]) for row in table.scan()] == [(1, -1 - lowest), (2, 0)]
