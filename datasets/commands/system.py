"""`structable system`: make, check and count the tables of the system datasets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import typer

from structable.datasets import SchemaMissingError, SystemData
from structable.datasets.system_data import DEFAULT_PREFIX
from structable.migrations import Folder, Migrator, Revision
from structable.migrations.commands.migrate import answered
from structable.migrations.operations import CreateTable, Operation, RevisionOperations, RunFunction
from structable.spi import Storage, mask_url

from .arguments import Form, Format, Prefix, Url, connected, opened

app = typer.Typer(help="Make, check and count the system datasets of a store.", no_args_is_help=True)

REVISIONS = Path(__file__).parents[1] / "revisions"
"""The history of the tables: revisions that take a store of an earlier release to this one."""


@app.callback()
def system() -> None:
    """Make, check and count the system datasets of a store."""


@app.command()
def init(url: Url, prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Make or extend every table, and the namespaces `system` and `default`; a second time nothing changes."""
    with connected(url) as storage:
        before = set(storage.admin.list())
        SystemData.create(storage, prefix)
        made = sorted(set(storage.admin.list()) - before)
    if form is Format.JSON:
        typer.echo(json.dumps({"created": made}))
    else:
        typer.echo(f"{mask_url(url)}: {len(made)} tables created")


@app.command()
def upgrade(url: Url, prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Take the tables of an earlier release to this one, while programs of both run; a second time nothing changes.

    An upgrade that was interrupted goes on.
    """
    with answered(), connected(url, create=False) as storage:
        migrator = system_migrator(storage, prefix)
        migrator.resume()
        SystemData.create(storage, prefix)
        found = migrator.status()
    if form is Format.JSON:
        typer.echo(json.dumps([one.to_document() for one in found]))
    else:
        for one in found:
            typer.echo(f"{one.number:04} {one.name} {one.progress}")


@app.command()
def check(url: Url, prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Check that the store has every table, field and index; more of them are accepted. Exit code 1 if it lacks any."""
    tables: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    try:
        with opened(url, prefix, write=False):
            pass
    except SchemaMissingError as error:
        tables, fields = error.tables, error.fields
    if form is Format.JSON:
        typer.echo(json.dumps({"missing_tables": tables, "missing_fields": fields}))
    else:
        for table in tables:
            typer.echo(f"missing table {table}")
        for field in fields:
            typer.echo(f"missing {field}" if field.startswith("index ") else f"missing or different field {field}")
        if not tables and not fields:
            typer.echo("complete")
    if tables or fields:
        raise typer.Exit(1)


@app.command()
def counts(url: Url, prefix: Prefix = "sys_", form: Form = Format.TEXT) -> None:
    """Count the rows of each table, all in one snapshot."""
    with opened(url, prefix, write=False) as system, system.transaction(read_only=True) as s:
        found = {name: s.tx.table(name).count() for name in sorted(system.table_names)}
    if form is Format.JSON:
        typer.echo(json.dumps(found))
        return
    width = max(map(len, found))
    for name, count in found.items():
        typer.echo(f"{name:<{width}}  {count:>12,}")


class _PrefixedFolder(Folder):
    """The revisions, of tables whose names begin with another prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__(REVISIONS)
        self._prefix = prefix

    def revisions(self) -> list[Revision]:
        return [replace(one, operations=self._renamed(one.operations)) for one in super().revisions()]

    def _renamed(self, operations: RevisionOperations) -> RevisionOperations:
        up, contract, down = (
            tuple(map(self._of_prefix, part)) for part in (operations.up, operations.contract, operations.down)
        )
        return RevisionOperations(up, contract, down, operations.reversible)

    def _of_prefix(self, operation: Operation) -> Operation:
        if isinstance(operation, RunFunction):
            return operation
        name = self._prefix + operation.table.removeprefix(DEFAULT_PREFIX)
        if isinstance(operation, CreateTable):
            return CreateTable(operation.specification.evolve(name=name))
        return replace(operation, table=name)


def system_migrator(storage: Storage, prefix: str = DEFAULT_PREFIX) -> Migrator:
    """Return the migrator of the system datasets; its state has its own tables, apart from other folders' state."""
    return Migrator(storage, _PrefixedFolder(prefix), prefix=f"structable_{prefix}")
