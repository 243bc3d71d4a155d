"""The same random change rows on all stores: rows equal to the bit, and the same errors.

`STRUCTABLE_TEST_CHANGE_ROWS` (default 150) is the number of change rows of each function or merge engine.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from structable.spi import Range, Storage, StructableError, TableSpecification
from structable.testing.conformance.chances import random_row, random_specification
from structable.testing.conformance.merge_case import Step, run_job
from structable.testing.conformance.type_chances import (
    FUNCTIONS,
    aggregated_by,
    random_change,
    random_kind,
    random_type,
)

ROWS = int(os.environ.get("STRUCTABLE_TEST_CHANGE_ROWS", "150"))
KEYS = 5
BATCH = 20
REFERENCE = "memory"

Stores = dict[str, Storage]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_merge_alike(stores: Stores, function: str) -> None:
    """Each function on each type: single changes with extremes, then calls and jobs of many changes."""
    chance = random.Random(function)
    spec = aggregated_by(function)
    program(stores, chance, spec, lambda extremes: random_change(chance, spec, KEYS, extremes=extremes))


@pytest.mark.parametrize("seed", range(12))
def test_engines_merge_alike(stores: Stores, seed: int) -> None:
    """Tables of every merge engine, with random fields and options."""
    chance = random.Random(seed)
    spec = random_type(chance, random_specification(chance, "t"))
    program(stores, chance, spec, lambda _: (random_kind(chance), random_row(chance, spec)))


def program(stores: Stores, chance: random.Random, spec: TableSpecification, change: Callable[[bool], Step]) -> None:
    """Make the same changes on all stores, and compare errors and rows after each call."""
    for storage in stores.values():
        storage.admin.create(spec)
    written = 0
    while written < ROWS:
        single = written < ROWS // 2
        steps = [change(single) for _ in range(1 if single else BATCH)]
        by_job = not single and chance.random() < 0.5
        written += len(steps)
        outcomes = {name: outcome(storage, spec, steps, by_job) for name, storage in stores.items()}
        different = {name: found for name, found in outcomes.items() if found != outcomes[REFERENCE]}
        assert different == {}, f"{spec}\n{steps} gave {outcomes[REFERENCE]}"
        if chance.random() < 0.03 or (not single and chance.random() < 0.1):
            for storage in stores.values():
                storage.table(spec.name).delete_all(Range.all())


def outcome(storage: Storage, spec: TableSpecification, steps: list[Step], by_job: bool) -> tuple[str, list[str]]:
    """Make changes, and return the error, if any, and all rows."""
    table, error = storage.table(spec.name), ""
    try:
        if by_job:
            run_job(storage, spec.name, steps)
        else:
            table.apply_changes(steps)
    except StructableError as raised:
        error = type(raised).__name__
    return error, [repr(dict(row)) for row in table.scan()]
