"""The same random calls on all stores at once: the same rows, the same results, the same errors.

A failure names its seed: `STRUCTABLE_TEST_FUZZ_SEED=17` runs that round alone, with the calls that led to it.
`STRUCTABLE_TEST_FUZZ_SECONDS` (default 60) is how long rounds are made.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest

from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    Row,
    RowIterator,
    ScanExplanation,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    WriteMode,
    rows_to_batches,
)

from .calls import Call, random_call, random_rows, random_specification

SECONDS = float(os.environ.get("STRUCTABLE_TEST_FUZZ_SECONDS", "60"))
SEED = os.environ.get("STRUCTABLE_TEST_FUZZ_SEED")
CALLS = 120
REFERENCE = "memory"

Stores = dict[str, Storage]


def test_all_stores_do_the_same(stores: Stores) -> None:
    """Random rounds, until the time is over."""
    if SEED is not None:
        one_round(stores, int(SEED))
        return
    first = random.randrange(1 << 40)
    end = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < end or not rounds:
        one_round(stores, first + rounds)
        rounds += 1
    print(f"{rounds} rounds from seed {first}")


def one_round(stores: Stores, seed: int) -> None:
    """Make one table on every store and use it; compare every result, and all rows at the end."""
    chance = random.Random(seed)
    spec = random_specification(chance, f"t{seed}")
    history = [f"seed {seed}", repr(spec)]
    for storage in stores.values():
        storage.admin.create(spec)
    calls = 0
    while calls < CALLS:
        if chance.random() < 0.1:
            use_job(stores, spec, chance, history)
            calls += 5
        elif chance.random() < 0.5:
            call = random_call(chance, spec)
            views = {name: storage.table(spec.name) for name, storage in stores.items()}
            compare(history, str(call), {name: outcome(call, view) for name, view in views.items()})
            calls += 1
        else:
            calls += use_transaction(stores, spec, chance, history)
    compare(history, "everything", {name: everything(storage, spec) for name, storage in stores.items()})
    for storage in stores.values():
        storage.admin.drop(spec.name)


def use_transaction(stores: Stores, spec: TableSpecification, chance: random.Random, history: list[str]) -> int:
    """Make some calls in one transaction, and commit it or roll it back."""
    number = chance.randint(1, 8)
    with ExitStack() as stack:
        transactions = {name: storage.transaction() for name, storage in stores.items()}
        for transaction in transactions.values():
            stack.callback(transaction.rollback)
        history.append("begin")
        for _ in range(number):
            call = random_call(chance, spec)
            outcomes = {name: outcome(call, tx.table(spec.name)) for name, tx in transactions.items()}
            if call.method == "increment" and set(map(str, outcomes.values())) == {"None", InvalidFieldError.__name__}:
                history.append(f"{call} and rollback")  # an overflow may be refused by the call or by the commit
                return number
            compare(history, str(call), outcomes)
        if chance.random() < 0.8:
            compare(history, "commit", {name: ended(transaction.commit) for name, transaction in transactions.items()})
        else:
            history.append("rollback")
    return number


def use_job(stores: Stores, spec: TableSpecification, chance: random.Random, history: list[str]) -> None:
    """Write rows by a job of any mode."""
    mode = chance.choice([mode for mode in WriteMode if mode is not WriteMode.CHANGES])
    rows = random_rows(chance, spec, chance.randint(0, 6))
    if mode in (WriteMode.REPLACE, WriteMode.OVERWRITE, WriteMode.UPDATE):  # stores differ in the winner
        rows = list({tuple(map(repr, (row[name] for name in spec.primary_key))): row for row in rows}.values())[:1]
    columns = spec.primary_key if mode is WriteMode.DELETE else spec.field_names
    job_id = uuid.UUID(int=chance.getrandbits(128)).hex

    def work(storage: Storage) -> object:
        job = storage.begin_write(spec.name, mode=mode, job_id=job_id)
        whole = [{name: row.get(name) for name in columns} for row in rows]
        staged = storage.stage(job, 0, 0, rows_to_batches(spec, whole, columns) if whole else [])
        return bool(storage.commit_write(job, [staged])), bool(storage.commit_write(job, [staged]))

    compare(
        history,
        f"job {mode} of {rows}",
        {name: ended(partial(work, storage), many=True) for name, storage in stores.items()},
    )


def outcome(call: Call, table: StructuredTable) -> object:
    """Return the result of a call, in a comparable form."""
    return ended(lambda: plain(call.on(table)), many=call.method.endswith("_many"))


def ended(action: Callable[[], object], *, many: bool = False) -> object:
    """Return the result of an action, or the part of its error that the contract defines.

    Of several faults in one call any may be reported, such as a row that is too large and another one that is wrong.
    """
    try:
        return action()
    except FieldSizeLimitError as error:
        return (InvalidFieldError if many else type(error)).__name__
    except StructableError as error:
        return type(error).__name__
    except ValueError as error:
        return "ValueError", str(error)


def plain(result: object) -> object:
    """Return a result with the types of its values."""
    if isinstance(result, ScanExplanation):
        return None
    if isinstance(result, Row):
        return {name: (type(value).__name__, repr(value)) for name, value in result.items()}
    if isinstance(result, RowIterator | list):
        return [plain(row) for row in result]
    return result


def everything(storage: Storage, spec: TableSpecification) -> object:
    """Return all rows, by every way to read them."""
    view = storage.table(spec.name)
    rows = plain(view.scan())
    assert isinstance(rows, list)
    assert plain(view.scan(reverse=True)) == rows[::-1]
    assert view.count() == len(rows)
    ordered: dict[str, object] = {}
    for index in spec.indexes:
        ordered[index] = plain(view.scan(order_by=index))
        values = {repr(row[index]): row[index] for row in view.scan()}
        found = [len(list(view.scan_index(index, value))) for value in values.values()]
        assert sum(found) == len(rows), f"the index of {index} has {sum(found)} of {len(rows)} rows"
    with storage.plan_scan(spec.name, splits=3) as plan:
        batches = [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]
    return rows, ordered, sorted(json.dumps(row, default=repr) for row in batches)


def compare(history: list[str], call: str, outcomes: dict[str, object]) -> None:
    """Fail, with the preceding calls, unless the results of all stores are equal."""
    history.append(call)
    expected = outcomes[REFERENCE]
    different = {name: found for name, found in outcomes.items() if found != expected}
    if different:
        shown = "\n".join(f"  {name}: {found!r:.2000}" for name, found in [(REFERENCE, expected), *different.items()])
        pytest.fail("\n".join([*history[-12:], "gave", shown, history[0], history[1]]), pytrace=False)
