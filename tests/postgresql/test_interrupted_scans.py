"""A scan that a signal handler's exception interrupts: no row is passed over in silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from structable.spi import (
    Field,
    Renamed,
    Row,
    RowIterator,
    Storage,
    TableSpecification,
    TransactionClosedError,
    connect,
)
from structable.testing.conformance.interruptions import InterruptedByTestError, _Tracer

TABLE = TableSpecification("t", [Field.int("k"), Field.string("s"), Field.string("u")], ["k"])
ROWS = 110
"""A few more than a scan reads at once."""


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many([{"k": number} for number in range(ROWS)])
        yield storage


def interrupted(rows: RowIterator, at: int) -> tuple[list[object], bool]:
    """Return the keys that are read, before and after an interruption, and whether there was one."""
    found: list[Row] = []
    tracer = _Tracer(frozenset({"structable"}), at)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        with suppress(InterruptedByTestError):
            for row in rows:
                found.append(row)
    finally:
        sys.settrace(before)
    with suppress(TransactionClosedError):
        found.extend(rows)
    return [row["k"] for row in found], bool(tracer.where)


@pytest.mark.parametrize("computes", [False, True], ids=["stored", "computed"])
@pytest.mark.parametrize("limit", [5, None], ids=["few", "cursor"])
@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("step", [1, 13])
def test_no_row_is_passed_over(
    storage: Storage, limit: int | None, in_transaction: bool, step: int, computes: bool
) -> None:
    """Either the scan goes on with the next row, or it is over."""
    if computes:
        storage.admin.set_rules("t", [Renamed("s", "u")])
    number, was_interrupted = 1, True
    while was_interrupted and number < 100 * step:
        transaction = storage.transaction(read_only=True)
        table = (transaction if in_transaction else storage).table("t")
        with table.scan(limit=limit) as rows:
            keys, was_interrupted = interrupted(rows, number)
        assert keys == list(range(len(keys)))
        transaction.rollback()
        number += step
