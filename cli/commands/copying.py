"""The command that copies tables from one store to another, of any kind."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from structable.cli.language.arguments import URL_VARIABLE, StoreAccess, open_store
from structable.cli.language.display import Advance, progress
from structable.cli.language.errors import CommandError, UsageProblem
from structable.spi import (
    ChangelogProducer,
    CommitOutcomeUnknownError,
    Retired,
    SchemaIncompatibleError,
    Storage,
    StoreNotFoundError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
)
from structable.spi.authors import check_mode, widens

from .importing import commit, write_job
from .scans import whole_batches, whole_count
from .tables import YesToOverwrite, confirm

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Target:
    """A table to fill."""

    spec: TableSpecification
    exists: bool
    job_id: str


def copy(
    source: Annotated[
        str, typer.Argument(metavar="URL1", help=f"The store to read; - is that of {URL_VARIABLE}.", show_default=False)
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="URL2",
            help=f"The store to write, created if missing; - is that of {URL_VARIABLE}.",
            show_default=False,
        ),
    ],
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Which tables; all by default.")] = None,
    mode: Annotated[
        Literal["upsert", "insert", "replace", "overwrite"] | None,
        typer.Option(help="What happens to each row; needed for a table that has rows in URL2."),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Names the copy: repeated under the same ID within 7 days, it skips finished tables."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and report what would be copied.")
    ] = False,
    yes: YesToOverwrite = False,
) -> None:
    """Copy tables from one store to another, of any kind: specification, indexes and rows.

    Each table is read from one snapshot, a log from its earliest position on, and becomes visible in the other store as
    a whole or not at all. A table that is missing there is created. The command stops at the first table that fails;
    those before it stay copied.
    """
    source, target = _url(source, "URL1"), _url(target, "URL2")
    with open_store(source) as origin:
        names = dict.fromkeys(tables or origin.admin.list())
        specs = [copied_specification(origin.admin.get_specification(name)) for name in names]
        try:
            with open_store(target, StoreAccess.READ if dry_run else StoreAccess.CREATE) as store:
                if store.url == origin.url:
                    raise UsageProblem(f"URL1 and URL2 are the same store, {origin.url}")
                wanted = None if mode is None else WriteMode(mode)
                tasks = [planned_target(store, spec, wanted, job_id) for spec in specs]
                if wanted is WriteMode.OVERWRITE and not dry_run:
                    for task in tasks:
                        if task.exists:
                            confirm(store, task.spec.name, "overwrite", yes=yes)
                for number, task in enumerate(tasks, 1):
                    if dry_run:
                        _announce(origin, task.spec, "exists" if task.exists else "would be created")
                    else:
                        _copy(origin, store, task, wanted or WriteMode.INSERT, job_id, f"{number}/{len(tasks)}")
        except StoreNotFoundError:
            if not dry_run:
                raise
            for spec in specs:
                _announce(origin, spec, "would be created, and so would its store")


def copied_specification(spec: TableSpecification) -> TableSpecification:
    """Return the specification of a table's copy: rows are copied as they are read, so unready rules are left out."""
    return spec.evolve(rules=[rule for rule in spec.rules if not isinstance(rule, Retired) and rule.ready])


def _url(given: str, name: str) -> str:
    url = os.environ.get(URL_VARIABLE, "") if given == "-" else given
    if "://" not in url:
        if given == "-" and not url:
            raise UsageProblem(f"{name} is '-', the store of {URL_VARIABLE}, which is not set")
        raise UsageProblem(f"{name} is {given!r}, which is not a storage URL like scheme://place")
    return url


def planned_target(store: Storage, spec: TableSpecification, mode: WriteMode | None, job_id: str | None) -> Target:
    """Return the task for a table, after all checks that are possible before the first table is copied."""
    check_mode(spec, mode or WriteMode.INSERT)
    job = f"{job_id or f'structable-copy-{uuid.uuid4()}'}-{spec.name}"
    try:
        there = store.admin.get_specification(spec.name)
    except TableNotFoundError:
        _check_overwritable(spec, mode)
        return Target(spec, False, job)
    differences = []
    for field in spec.fields:
        if field.name not in there:
            differences.append(f"field '{field.name}' is missing there")
        elif there.field(field.name) != field and (
            field.name in spec.primary_key or not widens(field, there.field(field.name))
        ):
            differences.append(
                f"field '{field.name}' is {there.field(field.name).type_text} there, not {field.type_text}"
            )
    if there.primary_key != spec.primary_key:
        differences.append(f"the primary key is ({', '.join(there.primary_key)}) there")
    if differences:
        raise SchemaIncompatibleError(spec.name, differences)
    _check_overwritable(there, mode)
    # An interrupted copy leaves an empty table, which may be filled.
    if mode is None and job_id is None and whole_count(store, there):
        raise UsageProblem(
            f"table '{spec.name}' has rows in {store.url}; give --mode upsert, insert, replace or overwrite"
        )
    return Target(spec, True, job)


def _check_overwritable(spec: TableSpecification, mode: WriteMode | None) -> None:
    """Reject a table that a job of mode `overwrite` would reject only after earlier tables were copied."""
    if mode is WriteMode.OVERWRITE and spec.table_options.changelog_producer is not ChangelogProducer.NONE:
        raise UnsupportedOperationError(
            f"table {spec.name!r} has a change feed and cannot be overwritten; copy it with another --mode, after "
            "'structable delete --all' if its rows are to go"
        )


def _announce(origin: Storage, spec: TableSpecification, there: str) -> None:
    rows = whole_count(origin, spec)
    typer.echo(f"table {spec.name}: {rows:,} rows would be copied; it {there}", err=True)


def _copy(origin: Storage, store: Storage, task: Target, mode: WriteMode, job_id: str | None, count: str) -> None:
    table = task.spec.name
    if not task.exists:
        store.admin.create(task.spec)
    read = 0

    def batches(advance: Advance) -> Iterator[pa.RecordBatch]:
        nonlocal read
        with contextlib.closing(whole_batches(origin, task.spec)) as found:
            for fraction, batch in found:
                read += batch.num_rows
                yield batch
                advance(fraction, read)
        advance(1.0, read)

    with write_job(store, table, mode, task.job_id, keep=job_id is not None) as job:
        done = not job.committed
        if done:
            try:
                with progress(f"copy {table} ({count})") as advance:
                    staged = store.stage(job, 0, 0, batches(advance))
                    if staged.rows != read:
                        raise CommandError(f"table '{table}': {read:,} rows were read and {staged.rows:,} staged")
                    done = commit(store, job, [staged])
            except CommitOutcomeUnknownError as error:
                raise CommandError(f"table '{table}': {error}; check whether its rows are in {store.url}") from error
    if done:
        typer.echo(f"table {table}: {read:,} rows are copied", err=True)
    else:
        typer.echo(f"table {table}: already copied by job {task.job_id}; nothing was done", err=True)
