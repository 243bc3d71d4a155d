"""Export of all tables of a store to a folder of files, and import from it into any store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from structable.cli.formats.file_options import FileForm
from structable.cli.formats.output import export_batches, open_output
from structable.cli.formats.specifications import read_specification, specification_text
from structable.cli.language.errors import UsageProblem
from structable.spi import SharedSnapshot, Storage, UnsupportedOperationError, WriteMode

from .copying import Target, copied_specification, planned_target
from .creation import undone
from .importing import FileImport
from .scans import whole_batches

_DEFAULT = "parquet"
_SPECIFICATION = ".toml"
_UNFINISHED = ".unfinished"
"""A file in the folder of an export that has not ended."""


def export_all(storage: Storage, folder: str, format_: str | None) -> None:
    """Write each table of a store to two files of a folder: its specification, and its rows, all of one snapshot.

    The rows of a log are not from the snapshot, but all rows in its feed when it is read. A failed export leaves no
    files.
    """
    form = format_ or _DEFAULT
    specs = [copied_specification(storage.admin.get_specification(name)) for name in storage.admin.list()]
    names = [(spec, f"{spec.name}.{form}", f"{spec.name}{_SPECIFICATION}") for spec in specs]
    with (
        _filled(Path(folder), [file for _, *files in names for file in files]) as made,
        _shared(storage) as snapshot,
    ):
        for spec, rows_name, spec_name in names:
            batches = whole_batches(storage, spec, snapshot)
            rows = export_batches(batches, str(made / rows_name), form, spec, spec.field_names)
            with open_output(str(made / spec_name)) as stream:
                stream.write(specification_text(spec, "toml").encode())
            typer.echo(f"{rows:,} rows of table {spec.name} are in {made / rows_name}", err=True)


@contextlib.contextmanager
def _filled(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Make a folder for files of these names, marked as unfinished until the block ends, and empty it if it fails."""
    there = folder.exists()
    if there and any(folder.iterdir()):
        raise UsageProblem(f"{folder} is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / _UNFINISHED
    mark.touch(exist_ok=False)  # fails if another export into the folder runs
    try:
        yield folder
        mark.unlink()
    except BaseException:
        for file in (*names, _UNFINISHED):
            (folder / file).unlink(missing_ok=True)
        if not there:
            with contextlib.suppress(OSError):  # others may have added files
                folder.rmdir()
        raise


@contextlib.contextmanager
def _shared(storage: Storage) -> Iterator[SharedSnapshot | None]:
    try:
        snapshot = storage.share_snapshot()
    except UnsupportedOperationError:
        yield None
        return
    with snapshot:
        yield snapshot


def import_all(
    storage: Storage,
    folder: str,
    mode: WriteMode | None,
    job_id: str | None,
    form: FileForm,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Create missing tables from a folder that `export_all` wrote, and write their rows."""
    if (Path(folder) / _UNFINISHED).exists():
        raise UsageProblem(
            f"{folder} has the file {_UNFINISHED}: the export into it was killed, and tables may be missing; "
            "export them again"
        )
    files = sorted(Path(folder).glob(f"*{_SPECIFICATION}"))
    if not files:
        raise UsageProblem(f"{folder} has no specifications of tables, which end in {_SPECIFICATION}")
    targets: list[tuple[Target, Path]] = []
    for file in files:
        rows = [one for one in sorted(file.parent.glob(f"{file.stem}.*")) if one.suffix != _SPECIFICATION]
        if len(rows) != 1:
            names = ", ".join(one.name for one in rows) or "none"
            raise UsageProblem(
                f"{file}: one file with the rows of the table must be in the same folder; there are {names}"
            )
        targets.append((planned_target(storage, read_specification(str(file)), mode, job_id), rows[0]))
    for target, file in targets:
        if dry_run and not target.exists:
            typer.echo(f"table {target.spec.name} would be created, with the rows of {file}", err=True)
            continue
        if not target.exists:
            storage.admin.create(target.spec)
        name = target.spec.name
        chosen = mode or WriteMode.INSERT
        given = target.job_id if job_id is not None else None
        with undone(storage, None if target.exists else target.spec):
            FileImport(storage, name, str(file), str(file), None, form, chosen, None, given, dry_run, yes).run()
