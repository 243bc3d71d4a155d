"""SQL writes as `Outcomes` says: the same rows, to the bit, and the same refusals, in every kind of statement.

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
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    Storage,
    StructuredTable,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    WriteMode,
    connect,
)
from structable.spi.arrow import rows_to_batches
from structable.spi.authors import Effect, Otherwise, Outcomes, Refusal, RowWrite, When, check_row
from structable.testing.conformance.case import ConformanceCase
from structable.testing.conformance.chances import random_row, random_specification
from structable.testing.conformance.merge_case import run_job
from structable.testing.conformance.type_chances import (
    FUNCTIONS,
    aggregated_by,
    random_change,
    random_kind,
    random_type,
)

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
    columns = [field.name for field in spec.value_fields]
    outcomes = Outcomes(spec, columns)
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
                merged = outcomes.outcome(rows.get(key), [RowWrite(Effect.MERGE, given, kind=kind)])
            except (InvalidFieldError, UnsupportedOperationError) as error:
                refused += 1
                if refused <= REFUSED and not accepted:
                    with pytest.raises(type(error)):
                        way(storage, [(kind, row)])
                continue
            accepted.append((kind, row))
            keep(rows, key, merged)
        way(storage, accepted)
        compare_rows(storage, columns, rows, way.__name__)


def keep(rows: Rows, key: Key, after: object) -> None:
    if isinstance(after, tuple):
        rows[key] = after
    else:
        rows.pop(key, None)


def compare_rows(storage: Storage, columns: list[str], rows: Rows, way: str) -> None:
    found = {row.key: tuple(row[name] for name in columns) for row in storage.table("t").scan()}
    assert found.keys() == rows.keys(), way
    wrong = {key: (found[key], rows[key]) for key in rows if bits(found[key]) != bits(rows[key])}
    assert wrong == {}, way


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


VERBS = {
    "upsert": (Effect.CHANGE, When.ANY),
    "replace": (Effect.PUT, When.ANY),
    "insert": (Effect.PUT, When.ABSENT),
    "update": (Effect.CHANGE, When.PRESENT),
    "increment": (Effect.STEP, When.ANY),
    "delete": (Effect.REMOVE, When.ANY),
}
REFUSALS = {Refusal.EXISTS: RecordExistsError, Refusal.MISSING: RecordNotFoundError}


def call_one(table: StructuredTable, verb: str, key: Key, row: Row) -> None:
    match verb:
        case "increment":
            table.increment(key, "n", row["n"])  # type: ignore[arg-type]  # an amount
        case "delete":
            table.delete(key)
        case _:
            getattr(table, verb)(row)


def call_many(table: StructuredTable, verb: str, given: Mapping[Key, Row]) -> object:
    match verb:
        case "increment":
            argument: object = [(key, "n", row["n"]) for key, row in given.items()]
        case "delete":
            argument = given
        case _:
            argument = given.values()
    return getattr(table, f"{verb}_many")(argument)


def run_plain_job(storage: Storage, spec: TableSpecification, verb: str, given: Mapping[Key, Row]) -> None:
    job = storage.begin_write("t", mode=WriteMode(verb), job_id=ConformanceCase.fresh_id())
    names = [*next(iter(given.values()))]
    storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(spec, given.values(), names))])


def run_call(storage: Storage, spec: TableSpecification, verb: str, way: str, given: Mapping[Key, Row]) -> object:
    match way:
        case "call":
            call_one(storage.table("t"), verb, *next(iter(given.items())))
        case "job":
            run_plain_job(storage, spec, verb, given)
        case "many":
            return call_many(storage.table("t"), verb, given)
        case _:
            with storage.transaction() as transaction:
                for key, row in given.items():
                    call_one(transaction.table("t"), verb, key, row)
    return None


@pytest.mark.parametrize("seed", range(6))
def test_verbs(storage: Storage, seed: int) -> None:
    """Random programs of all verbs on random tables without an engine: a call a row, a transaction, a call, a job."""
    chance = random.Random(seed)
    spec = random_specification(chance, "t")
    storage.admin.create(spec)
    columns = [field.name for field in spec.value_fields]
    outcomes = Outcomes(spec, columns)
    rows: Rows = {}

    def outcome_of(verb: str, given: Mapping[Key, Row], otherwise: Otherwise) -> dict[Key, object]:
        """Return the rows afterwards, or raise as the call has to."""
        after: dict[Key, object] = {}
        for key, row in given.items():
            effect, when = VERBS[verb]
            fields = {name: value for name, value in row.items() if name not in spec.primary_key}
            after[key] = outcomes.outcome(rows.get(key), [RowWrite(effect, fields, when, otherwise)])
            if isinstance(after[key], Refusal):
                raise REFUSALS[after[key]](spec.name, key)  # type: ignore[index]  # a refusal
        return after

    for number in range(ROWS // 10):
        verb, way = chance.choice(sorted(VERBS)), ("call", "transaction", "many", "job")[number % 4]
        if verb == "increment" and way == "job":
            way = "many"
        names = [*spec.primary_key, *(name for name in columns if chance.random() < 0.5)]
        if verb in ("increment", "delete"):
            names = [*spec.primary_key, *(["n"] if verb == "increment" else [])]
        given: dict[Key, Row] = {}
        for _ in range(1 if way == "call" else chance.choice([1, 2, 5, 20])):
            row = random_row(chance, spec)
            row = check_row(spec, {name: row.get(name) for name in names})
            if verb == "increment":
                row["n"] = chance.choice([-(2**62), -1, 0, 1, 2**62])
            given[tuple(row[name] for name in spec.primary_key)] = row

        skips = verb == "update" and way == "many"
        try:
            after = outcome_of(verb, given, Otherwise.SKIP if skips else Otherwise.REFUSE)
        except (InvalidFieldError, RecordExistsError, RecordNotFoundError) as error:
            with pytest.raises(type(error)):
                run_call(storage, spec, verb, way, given)
        else:
            answer = run_call(storage, spec, verb, way, given)
            assert answer == ([key for key in given if key not in rows] if skips else None), verb
            for key, row_after in after.items():
                keep(rows, key, row_after)
        compare_rows(storage, columns, rows, f"{verb} by {way}")
