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
from typing import Any

import pytest

from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    PatchArm,
    RecordChangedError,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    RowIterator,
    ScanExplanation,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    WriteMode,
)
from structable.spi.arrow import rows_to_batches
from structable.testing.conformance.patch_case import patch_batch
from structable.testing.conformance.write_jobs import PLAIN_MODES
from tests.variants import chosen_seed

from .calls import Call, random_call, random_rows, random_specification

SECONDS = float(os.environ.get("STRUCTABLE_TEST_FUZZ_SECONDS", "60"))
SEED = os.environ.get("STRUCTABLE_TEST_FUZZ_SEED")
CALLS = 120
REFERENCE = "memory"
_REQUIRED = 0.1

Stores = dict[str, Storage]


def test_all_stores_do_the_same(stores: Stores) -> None:
    """Random rounds, until the time is over."""
    if SEED is not None:
        one_round(stores, int(SEED))
        return
    first = chosen_seed("stores")
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
        incremented = False
        for _ in range(number):
            call = random_call(chance, spec)
            outcomes = {name: outcome(call, tx.table(spec.name)) for name, tx in transactions.items()}
            incremented = incremented or call.method == "increment"
            refusing = [name for name, one in outcomes.items() if str(one) == InvalidFieldError.__name__]
            if incremented and refusing and len(refusing) < len(outcomes):
                # An overflow is refused by the increment, by a call after it or by the commit.
                late = [name for name in transactions if name not in refusing]
                refused = {name: ended(transactions[name].commit) for name in late}
                compare(
                    history, f"{call} and commit", {**dict.fromkeys(refusing, InvalidFieldError.__name__), **refused}
                )
                return number
            compare(history, str(call), outcomes)
        if chance.random() < 0.8:
            compare(history, "commit", {name: ended(transaction.commit) for name, transaction in transactions.items()})
        else:
            history.append("rollback")
    return number


def use_job(stores: Stores, spec: TableSpecification, chance: random.Random, history: list[str]) -> None:
    """Write rows by a job of any mode, named by an id or as a batch of a stream."""
    mode = chance.choice([*PLAIN_MODES, WriteMode.PATCH, WriteMode.PATCH])
    if mode is WriteMode.PATCH:
        use_patch(stores, spec, chance, history)
        return
    rows = random_rows(chance, spec, chance.randint(0, 6))
    if mode is WriteMode.UPDATE:  # stores differ in the winner
        rows = list({tuple(map(repr, (row[name] for name in spec.primary_key))): row for row in rows}.values())[:1]
    columns = spec.primary_key if mode is WriteMode.DELETE else spec.field_names
    named = random_name(chance)

    def work(storage: Storage) -> object:
        job = storage.begin_write(spec.name, mode=mode, **named)
        whole = [{name: row.get(name) for name in columns} for row in rows]
        staged = storage.stage(job, 0, 0, rows_to_batches(spec, whole, columns) if whole else [])
        return bool(storage.commit_write(job, [staged])), bool(storage.commit_write(job, [staged]))

    compare(
        history,
        f"job {named} {mode} of {rows}",
        {name: ended(partial(work, storage), many=True) for name, storage in stores.items()},
    )


def random_name(chance: random.Random) -> dict[str, Any]:
    """Return what names a job: a new id, or a batch of one of two streams, new or not."""
    if chance.random() < 0.5:
        return {"job_id": uuid.UUID(int=chance.getrandbits(128)).hex}
    return {"stream": chance.choice(["one", "two"]), "batch": chance.randint(0, 20)}


def use_patch(stores: Stores, spec: TableSpecification, chance: random.Random, history: list[str]) -> None:
    """Write a patch of random arms, which may not fit together, in one partition or two."""
    rows = [*random_rows(chance, spec, chance.randint(0, 6)), *present_rows(stores, spec, chance)]
    arms = [(chance.choice(list(PatchArm)).value, row) for row in rows]
    chance.shuffle(arms)
    required = [{name: row[name] for name in spec.primary_key} for _, row in arms if chance.random() < _REQUIRED]
    named = {**random_name(chance), "on_missing": chance.choice(["fail", "skip", "skip"])}
    parts = [arms[::2], arms[1::2]]

    def work(storage: Storage) -> object:
        job = storage.begin_write(spec.name, mode="patch", **named)
        staged = [
            storage.stage(job, place, 0, [patch_batch(spec, part, required)] if part else [])
            for place, part in enumerate(parts)
        ]
        try:
            result = storage.commit_write(job, staged)
        except RecordNotFoundError as error:
            return error.count, [list(map(repr, key)) for key in error.keys]
        except (InvalidFieldError, RecordChangedError, RecordExistsError):
            return "refused"  # of several faults any may be reported
        return result.applied, result.missing, bool(storage.commit_write(job, staged))

    compare(
        history,
        f"patch {named} of {arms}, required {required}",
        {name: ended(partial(work, storage), many=True) for name, storage in stores.items()},
    )


def present_rows(stores: Stores, spec: TableSpecification, chance: random.Random) -> list[dict[str, Any]]:
    """Return changes of some rows that are there."""
    there = list(stores[REFERENCE].table(spec.name).scan(limit=50))
    changed = []
    for row in chance.sample(there, min(len(there), chance.randint(0, 4))):
        (fitting,) = random_rows(chance, spec, 1)
        changed.append({**fitting, **{name: row[name] for name in spec.primary_key}})
    return changed


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
