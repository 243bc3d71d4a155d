"""`MergeCase`: the base of the rules of merges, which are tried in every way in which a change can reach its row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from structable.spi import (
    RowKind,
    StagedWrite,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    Value,
    WriteJob,
    WriteMode,
)
from structable.spi.arrow import rows_to_batches

from .case import ConformanceCase
from .model import comparable
from .samples import Record

Step: TypeAlias = tuple[RowKind, Record]
"""A change of a row whose key is given later, or of a whole row."""


def add(**fields: Value) -> Step:
    """Return a change of kind +I."""
    return RowKind.INSERT, fields


def postimage(**fields: Value) -> Step:
    """Return a change of kind +U."""
    return RowKind.UPDATE_AFTER, fields


def preimage(**fields: Value) -> Step:
    """Return a change of kind -U."""
    return RowKind.UPDATE_BEFORE, fields


def delete(**fields: Value) -> Step:
    """Return a change of kind -D."""
    return RowKind.DELETE, fields


def runs(steps: Iterable[Step], most: int) -> Iterator[list[Step]]:
    """Yield changes that follow one another and name the same fields, in groups of limited size."""
    pending: list[Step] = []
    for step in steps:
        if pending and (step[1].keys() != pending[0][1].keys() or len(pending) == most):
            yield pending
            pending = []
        pending.append(step)
    if pending:
        yield pending


def change_batch(spec: TableSpecification, steps: Sequence[Step]) -> pa.RecordBatch:
    """Return changes that name the same fields as one batch with `_change_type`."""
    names = list(steps[0][1])
    (made,) = rows_to_batches(spec, [row for _, row in steps], names, batch_size=len(steps))
    kinds: pa.Array[Any] = pa.array([kind.change_type for kind, _ in steps])
    return pa.record_batch([*made.columns, kinds], names=[*names, "_change_type"])


def stage_changes(storage: Storage, job: WriteJob, steps: Iterable[Step], most: int = 4) -> list[StagedWrite]:
    """Stage changes, in partitions of limited size that name the same fields; the last partition first."""
    spec = storage.admin.get_specification(job.table)
    partitions = [change_batch(spec, run) for run in runs(steps, most)]
    return [storage.stage(job, number, 0, [partitions[number]]) for number in reversed(range(len(partitions)))]


def run_job(storage: Storage, table: str, steps: Iterable[Step], most: int = 4) -> None:
    """Write changes by one job in mode changes, in partitions of limited size."""
    job = storage.begin_write(table, mode=WriteMode.CHANGES, job_id=ConformanceCase.fresh_id())
    storage.commit_write(job, stage_changes(storage, job, steps, most))


def write(table: StructuredTable, step: Step) -> None:
    """Write one change: an upsert, unless it has another kind."""
    kind, row = step
    if kind is RowKind.INSERT:
        table.upsert(row)
    else:
        table.apply_changes([(kind, row)])


def by_single_calls(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Write each change by a call of its own."""
    for step in in_turn(rows):
        write(storage.table(table), step)


def by_one_transaction(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Write all changes in one transaction."""
    with storage.transaction() as transaction:
        for step in in_turn(rows):
            write(transaction.table(table), step)


def by_reading_in_between(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Write in one transaction, which reads each row before its change."""
    with storage.transaction() as transaction:
        inside = transaction.table(table)
        for step in in_turn(rows):
            inside.read({"id": step[1]["id"]})
            write(inside, step)
        inside.count()


def by_one_call(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Write all changes by one call."""
    storage.table(table).apply_changes(iter([(str(kind), row) for kind, row in in_turn(rows)]))


def by_upsert_many(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Collect adds that follow one another."""
    view, pending = storage.table(table), list[Record]()
    for kind, row in in_turn(rows):
        if kind is RowKind.INSERT:
            pending.append(row)
            continue
        view.upsert_many(iter(pending))
        view.apply_changes([(kind, row)])
        pending = []
    view.upsert_many(pending)


def by_job(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Write by a job in which the changes of a row follow one another, in one partition where possible."""
    run_job(storage, table, [step for steps in rows for step in steps], most=1_000)


def by_partitions(storage: Storage, table: str, rows: Sequence[Sequence[Step]]) -> None:
    """Stage the changes of a row in different partitions."""
    run_job(storage, table, in_turn(rows), most=len(rows))


def in_turn(rows: Sequence[Sequence[Step]]) -> Iterator[Step]:
    """Yield the first change of each row, then the second of each, and so on."""
    for place in range(max(map(len, rows))):
        for steps in rows:
            if place < len(steps):
                yield steps[place]


WAYS: dict[str, Callable[[Storage, str, Sequence[Sequence[Step]]], None]] = {
    "single calls": by_single_calls,
    "one transaction": by_one_transaction,
    "reading in between": by_reading_in_between,
    "one call": by_one_call,
    "upsert_many": by_upsert_many,
    "one job": by_job,
    "partitions of a job": by_partitions,
}
"""Every way in which changes are merged: the result is the same."""


class MergeCase(ConformanceCase):
    """Rules of merges; the tables have the key `id`."""

    @pytest.fixture
    def typed(self, request: pytest.FixtureRequest) -> Storage:
        """Connect to the fresh store, which has table types."""
        self.require("table_types")
        storage: Storage = request.getfixturevalue("storage")
        return storage

    def merge(
        self, storage: Storage, spec: TableSpecification, *cases: tuple[Sequence[Step], Record | None]
    ) -> StructuredTable:
        """Merge the changes of each case into a row of its own, in every way, and compare the rows with the expected.

        Fields that an expected row does not name are null; None stands for no row. Returns the auto-commit view.
        """
        storage.admin.create(spec)
        wanted: dict[tuple[str, int], Record | None] = {}
        for place, (way, write_all) in enumerate(WAYS.items()):
            rows = []
            for number, (steps, expected) in enumerate(cases):
                key = 1000 * place + number
                rows.append([(kind, {"id": key, **row}) for kind, row in steps])
                nulls: Record = dict.fromkeys(spec.field_names)
                wanted[way, key] = None if expected is None else comparable({**nulls, "id": key, **expected})
            write_all(storage, spec.name, rows)
        found = {row["id"]: comparable(dict(row)) for row in storage.table(spec.name).scan()}
        wrong = {
            f"{way}: {cases[key % 1000][0]}": found.get(key)
            for (way, key), expected in wanted.items()
            if found.get(key) != expected
        }
        assert wrong == {}, f"expected {[expected for _, expected in cases]}"
        return storage.table(spec.name)

    def refuse(
        self,
        storage: Storage,
        spec: TableSpecification,
        before: Sequence[Step],
        refused: Sequence[Step],
        error: type[StructableError],
        *texts: str,
        staged: bool = True,
    ) -> None:
        """Check that each change is refused in every way, with these texts in the message, and that nothing is written.

        The changes `before` make the row. `staged` says whether `stage` refuses the change, or at the latest the commit
        of the job.
        """
        storage.admin.create(spec)
        table = storage.table(spec.name)
        table.apply_changes([(kind, {"id": 1, **row}) for kind, row in before])
        rows = [comparable(dict(row)) for row in table.scan()]
        for kind, fields in refused:
            step = (kind, {"id": 1, **fields})
            good = next(iter(before), add())
            steps = [(good[0], {"id": 2, **good[1]}), step, (good[0], {"id": 3, **good[1]})]
            ways: dict[str, Callable[[], object]] = {
                "alone": partial(write, table, step),
                "among others": partial(table.apply_changes, steps),
                "in a transaction": partial(self.in_transaction, storage, spec.name, step),
                "in a job": partial(self.in_job, storage, spec.name, steps, staged),
            }
            for way, refusal in ways.items():
                with pytest.raises(error) as found:
                    refusal()
                missing = [text for text in texts if text not in str(found.value)]
                assert missing == [], f"{found.value} ({way})"
                assert [comparable(dict(row)) for row in table.scan()] == rows, f"{step} {way}"

    def in_transaction(self, storage: Storage, table: str, step: Step) -> None:
        with storage.transaction() as transaction:
            write(transaction.table(table), step)

    def in_job(self, storage: Storage, table: str, steps: Sequence[Step], staged: bool) -> None:
        """Stage changes and commit them, unless `stage` refuses them, as it must if `staged`."""
        job = storage.begin_write(table, mode=WriteMode.CHANGES, job_id=self.fresh_id())
        try:
            attempts = stage_changes(storage, job, steps)
        except StructableError:
            storage.abort_write(job)
            raise
        assert not staged, "stage did not refuse the change"
        storage.commit_write(job, attempts)
