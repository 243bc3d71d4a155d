"""`WritingCase`: rules of writes, which hold in every way in which rows reach a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pyarrow as pa
import pytest

from structable.spi import FieldRule, Storage, StructableError, StructuredTable, TableSpecification

from .case import ConformanceCase
from .samples import Record
from .write_jobs import batch

Refused = TypeVar("Refused", bound=StructableError)
MANY = ["calls of many", "calls of many in a transaction", "jobs"]
WAYS = ["calls", "calls of a transaction", *MANY]


class Writing:
    """Writes rows to a table in one of the ways."""

    def __init__(self, way: str, storage: Storage, spec: TableSpecification, table: StructuredTable) -> None:
        self.way = way
        self.table = table
        self.together = way in MANY
        """Whether rows are written all or none."""
        self._spec = spec
        self._storage = storage

    def __call__(self, verb: str, *rows: Record) -> None:
        """Write rows by a verb, or by a job of its mode whose partitions have one row each."""
        if self.way == "jobs":
            self._job(verb, [batch([row], spec=self._spec) for row in rows])
        elif self.together:
            getattr(self.table, f"{verb}_many")(iter(rows))
        else:
            for row in rows:
                getattr(self.table, verb)(row)

    def refuse(self, error: type[Refused], verb: str, refused: Record, other: Record) -> Refused:
        """Write a row that is refused; where rows are written together, after another row."""
        with pytest.raises(error) as refusal:
            self(verb, *([other, refused] if self.together else [refused]))
        return refusal.value

    def refuse_bad(self, error: type[Refused], verb: str, bad: Record, other: Record) -> Refused:
        """As `refuse`, for a row of wrong fields or types; a job's batch has the types of the row's values."""
        if self.way != "jobs":
            return self.refuse(error, verb, bad, other)
        with pytest.raises(error) as refusal:
            self._job(verb, [batch([other], spec=self._spec), pa.RecordBatch.from_pylist([bad])])
        return refusal.value

    def _job(self, mode: str, batches: list[pa.RecordBatch]) -> None:
        storage = self._storage
        job = storage.begin_write(self._spec.name, mode=mode, job_id=ConformanceCase.fresh_id())
        storage.commit_write(job, [storage.stage(job, place, 0, [one]) for place, one in enumerate(batches)])


class OpenWriting(Protocol):
    """Creates a table, under rules of its fields, and returns a way in which rows are written to it."""

    def __call__(self, spec: TableSpecification, *rules: FieldRule) -> Writing: ...


class WritingCase(ConformanceCase):
    """The base of rules of writes: a write has the same effect on a row in each way."""

    @pytest.fixture(params=WAYS)
    def open_writing(self, request: pytest.FixtureRequest, storage: Storage) -> Iterator[OpenWriting]:
        """Write rows by calls, by calls of many, each in both views, and by jobs."""
        with ExitStack() as stack:

            def opened(spec: TableSpecification, *rules: FieldRule) -> Writing:
                storage.admin.create(spec)
                if rules:
                    storage.admin.set_rules(spec.name, rules)
                table = storage.table(spec.name)
                if "transaction" in request.param:
                    table = stack.enter_context(storage.transaction()).table(spec.name)
                return Writing(request.param, storage, spec, table)

            yield opened
