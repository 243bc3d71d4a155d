"""`load` implements `Storage.load`, one atomic job for all rows of some data. Imports pyarrow."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow as pa

from ._admin import TableAdmin
from ._arrow_data import reader_of
from ._bulk import CommitResult, StagedWrite, WriteJob, WriteMode
from ._errors import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    SchemaIncompatibleError,
    StructableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from ._loading import LoadedBatches
from ._runner import retry
from ._specification import TableSpecification


class _JobStorage(Protocol):
    """The methods of a storage that a load needs."""

    @property
    def admin(self) -> TableAdmin: ...

    @property
    def closed(self) -> bool: ...

    def begin_write(self, table: str, *, mode: WriteMode | str, job_id: str | None = None) -> WriteJob: ...

    def stage(self, job: WriteJob, partition: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> StagedWrite: ...

    def commit_write(self, job: WriteJob, staged: Iterable[StagedWrite]) -> CommitResult: ...

    def abort_write(self, job: WriteJob) -> None: ...


def load(
    storage: _JobStorage,
    table: str,
    data: object,
    mode: WriteMode | str | None,
    create: bool,
    primary_key: Iterable[str],
    job_id: str | None,
    nan_is_null: bool | None,
) -> CommitResult:
    """Implement `Storage.load`."""
    with reader_of(table, data, nan_is_null=nan_is_null) as reader:
        spec, undo = _table(storage, table, reader.schema, create, primary_key)
        try:
            return _loaded(storage, spec, reader, mode, job_id)
        except CommitOutcomeUnknownError:
            raise
        except BaseException:
            with contextlib.suppress(StructableError):  # the first error counts
                undo()
            raise


def _table(
    storage: _JobStorage, table: str, schema: pa.Schema, create: bool, primary_key: Iterable[str]
) -> tuple[TableSpecification, Callable[[], None]]:
    """Return the table, created if it is missing, and a function that drops it again in that case."""
    key = primary_key if isinstance(primary_key, str) else tuple(primary_key)
    try:
        return _existing(storage, table, key), lambda: None
    except TableNotFoundError:
        if not create:
            raise
    spec = TableSpecification.from_arrow(table, schema, key)
    try:
        storage.admin.create(spec)
    except TableAlreadyExistsError:  # another process was faster
        return _existing(storage, table, key), lambda: None
    return spec, lambda: storage.admin.drop(table)


def _existing(storage: _JobStorage, table: str, key: str | tuple[str, ...]) -> TableSpecification:
    spec = storage.admin.get_specification(table)
    names = (key,) if isinstance(key, str) else key
    if names and names != spec.primary_key:
        there = ", ".join(spec.primary_key) or "none"
        raise SchemaIncompatibleError(table, [f"{there}, not {', '.join(names)}"], "exists with another primary_key")
    return spec


def _loaded(
    storage: _JobStorage,
    spec: TableSpecification,
    reader: pa.RecordBatchReader,
    mode: WriteMode | str | None,
    job_id: str | None,
) -> CommitResult:
    usual = WriteMode.INSERT if spec.keyless else WriteMode.UPSERT
    chosen = usual if mode is None else mode
    name = f"load-{uuid.uuid4()}" if job_id is None else job_id
    job = storage.begin_write(spec.name, mode=chosen, job_id=name)
    if job.committed:
        return CommitResult(False)
    try:
        batches = LoadedBatches(spec, job.mode, reader)
        try:
            staged = storage.stage(job, 0, 0, batches)
        except InvalidFieldError as error:
            located = batches.located(error)
            if located is error:
                raise
            raise located from error
        return retry(storage, lambda: storage.commit_write(job, [staged]))
    except CommitOutcomeUnknownError as error:
        error.add_note(f"load the same data again with job_id={name!r}; they count once")
        raise
    except BaseException:
        if job_id is None:  # a job with the caller's id continues when it is loaded again
            with contextlib.suppress(StructableError):
                storage.abort_write(job)
        raise
