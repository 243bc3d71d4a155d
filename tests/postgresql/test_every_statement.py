"""The connection is lost at each statement of an operation in turn: its report is the truth, and it can be repeated."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    CommitOutcomeUnknownError,
    Field,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    UpdateMessage,
    WriteJob,
    connect,
)
from structable.spi.arrow import arrow_schema

from .support.proxy import Cut, Message, Proxy

TABLE = TableSpecification("t", [Field.int("k"), Field.int("n"), Field.string("s")], ["k"], ["s"])
CHANGED = TableSpecification(
    "t", [Field.int("k"), Field.long("n"), Field.string("s"), Field.int("m")], ["k"], ["s", "n"]
)
OTHER = TableSpecification("u", TABLE.fields, ["k"])
NEW = pa.RecordBatch.from_pylist([{"k": number, "n": 1, "s": "new"} for number in range(5, 15)], arrow_schema(TABLE))


@dataclass(slots=True)
class Run:
    """One run of an operation, with a storage through the proxy and one past it."""

    storage: Storage
    direct: Storage
    number: int
    _job: tuple[WriteJob, StagedWrite] | None = field(default=None, init=False)

    def rows(self) -> list[int]:
        """Return the keys of the table."""
        return [int(str(row["k"])) for row in self.direct.table("t").scan()]

    def job(self, mode: str) -> tuple[WriteJob, StagedWrite]:
        """Return the run's job, staged."""
        if self._job is None:
            job = self.direct.begin_write("t", mode=mode, job_id=f"{mode} {self.number}")
            self._job = job, self.direct.stage(job, 0, 0, [NEW])
        return self._job


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that happens wholly or not at all."""

    prepare: Callable[[Run], object]  # undisturbed
    act: Callable[[Run], object]  # repeated if it was not done
    done: Callable[[Run], bool]  # asserts that it was not done in part


def one_of(found: object, before: object, after: object) -> bool:
    assert found in (before, after)
    return found == after


def transact(run: Run) -> None:
    with run.storage.transaction() as tx:
        table = tx.table("t")
        table.upsert_many({"k": number, "n": 1, "s": "new"} for number in range(5, 15))
        table.increment((0,), "n")
        assert table.count() == 15


def copy(run: Run) -> None:
    with run.storage.transaction() as tx:
        tx.table("t").upsert_many({"k": number, "n": 1, "s": "new"} for number in range(5, 305))


def commit(mode: str) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        job, staged = run.job(mode)
        run.storage.commit_write(job, [staged])

    return act


def write(run: Run) -> None:
    job = run.storage.begin_write("t", mode="upsert", job_id=f"write {run.number}")
    run.storage.commit_write(job, [run.storage.stage(job, 0, 0, [NEW])])


def begin_batch(storage: Storage, run: Run) -> WriteJob:
    return storage.begin_write("t", mode="insert", stream=f"stream {run.number}", batch=7)


def write_batch(run: Run) -> None:
    job = begin_batch(run.storage, run)
    run.storage.commit_write(job, [run.storage.stage(job, 0, 0, [NEW])])


def batch_is_written(run: Run) -> bool:
    written = one_of(run.rows(), OLD, BOTH)
    assert begin_batch(run.direct, run).committed is written
    return written


def patch(run: Run) -> None:
    job = run.storage.begin_write("t", mode="patch", job_id=f"patch {run.number}", on_missing="skip")
    numbers = list(range(15))
    arms = ["present"] * 5 + ["absent"] * 10
    columns: dict[str, pa.Array[Any]] = {
        "k": pa.array(numbers, pa.int32()),
        "n": pa.array([9] * 15, pa.int32()),
        "_arm": pa.array(arms),
    }
    run.storage.commit_write(job, [run.storage.stage(job, 0, 0, [pa.record_batch(columns)])])


def update(run: Run) -> None:
    rows = [UpdateMessage({"k": number, "n": 9}, {"s": "new"}) for number in range(15)]
    assert run.storage.table("t").update_many([*rows, {"k": 99}]) == [(99,)]


def rows_are_nine(run: Run) -> bool:
    after = one_of(run.rows(), OLD, BOTH)
    assert {row["n"] == 9 for row in run.direct.table("t").scan()} == {after}
    return after


def read(run: Run) -> None:
    with run.storage.plan_scan("t") as plan:
        assert sum(batch.num_rows for split in plan.splits for batch in run.storage.read_split(split)) == 5
    with run.storage.transaction(read_only=True) as tx:
        assert len(list(tx.table("t").scan())) == 5


def nothing(_run: Run) -> None:
    pass


OLD, BOTH, ONLY_NEW = list(range(5)), list(range(15)), list(range(5, 15))
OPERATIONS = {
    "transaction": Operation(nothing, transact, lambda run: one_of(run.rows(), OLD, BOTH)),
    "copy": Operation(nothing, copy, lambda run: one_of(run.rows(), OLD, list(range(305)))),
    "upsert job": Operation(lambda run: run.job("upsert"), commit("upsert"), lambda run: one_of(run.rows(), OLD, BOTH)),
    "overwrite job": Operation(
        lambda run: run.job("overwrite"), commit("overwrite"), lambda run: one_of(run.rows(), OLD, ONLY_NEW)
    ),
    "whole job": Operation(nothing, write, lambda run: one_of(run.rows(), OLD, BOTH)),
    "batch": Operation(nothing, write_batch, batch_is_written),
    "patch job": Operation(nothing, patch, rows_are_nine),
    "update_many": Operation(nothing, update, rows_are_nine),
    "read": Operation(nothing, read, lambda run: False),
    "create": Operation(
        nothing,
        lambda run: run.storage.admin.create(OTHER),
        lambda run: one_of(run.direct.admin.list(), ["t"], ["t", "u"]),
    ),
    "drop": Operation(
        nothing, lambda run: run.storage.admin.drop("t"), lambda run: one_of(run.direct.admin.list(), ["t"], [])
    ),
    "change": Operation(
        nothing,
        lambda run: run.storage.admin.create_or_update(CHANGED),
        lambda run: one_of(run.direct.admin.get_specification("t"), TABLE, CHANGED),
    ),
    "drop_index": Operation(
        nothing,
        lambda run: run.storage.admin.drop_index("t", "s"),
        lambda run: one_of(run.direct.admin.get_specification("t").indexes, ("s",), ()),
    ),
}


EVERY = os.environ.get("STRUCTABLE_TEST_EVERY_STATEMENT") == "1"
STEPS = {Cut.BEFORE: (0, 1 if EVERY else 3), Cut.AFTER: (0 if EVERY else 1, 1 if EVERY else 3)}
"""Which statements: from the first number, at a distance of the second."""


def at_statement(number: int) -> Callable[[Message], bool]:
    """Return the condition of the `number`th statement, from 0."""
    counted = itertools.count()
    return lambda message: bool(message.text) and next(counted) == number


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", OPERATIONS)
def test_connection_lost_at_each_statement(postgresql_url: str, proxy: Proxy, name: str, cut: Cut) -> None:
    """An operation that returns was done, one that raises was not; cleaning up decides nothing."""
    operation = OPERATIONS[name]
    with connect(postgresql_url) as direct, connect(proxy.url(postgresql_url)) as storage:
        for number in itertools.count(*STEPS[cut]):
            for table in direct.admin.list():
                direct.admin.drop(table)
            direct.admin.create(TABLE)
            direct.table("t").upsert_many({"k": key, "n": 0, "s": "old"} for key in range(5))
            run = Run(storage, direct, number)
            operation.prepare(run)
            trap = proxy.trap(at_statement(number), cut)
            try:
                operation.act(run)
            except StorageUnavailableError:
                assert not operation.done(run), number
                operation.act(run)
            except CommitOutcomeUnknownError:
                pytest.fail(f"the server could have been asked at statement {number}")
            assert name == "read" or operation.done(run), number
            if not trap.sprung:
                break
        assert number > 3
