"""`structable migrate`: take a store through the revisions of a folder, and see how far it is."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from structable.migrations.autogenerate import Differences, differences, script_of, specifications_named
from structable.migrations.errors import LiveClientsError, MigrationLockedError, RevisionError
from structable.migrations.folder import Folder
from structable.migrations.history import History
from structable.migrations.migrator import Migrator
from structable.migrations.throttle import Throttle
from structable.spi import Storage, StorageUrl, connect
from structable.spi.text import escaped_text

from .display import fill_bar, plan_lines, status_lines

app = typer.Typer(help="Change the schema of tables while services run.", no_args_is_help=True)

_MISUSE = 2
_TRY_AGAIN = 4


class Format(enum.StrEnum):
    """The form of the output."""

    TEXT = "text"
    JSON = "json"


_URL_VARIABLE = "STRUCTABLE_URL"
Url = Annotated[str, typer.Argument(envvar=_URL_VARIABLE, help="The store.", show_default=False)]
FolderPath = Annotated[Path, typer.Option("--folder", help="The folder of revisions.")]
Form = Annotated[Format, typer.Option("--format", help="The form of the output.")]
To = Annotated[int | None, typer.Option("--to", help="The last revision; the newest, if left out.", show_default=False)]
Rate = Annotated[
    float | None, typer.Option("--rows-per-second", help="The most rows to fill per second.", show_default=False)
]
Threads = Annotated[
    int, typer.Option("--threads", min=1, max=64, help="How many parts of a table are filled at a time.")
]
Conflicts = Annotated[
    int, typer.Option("--max-conflicts", min=1, help="Conflicts of a batch in a row after which the revision pauses.")
]
_TARGET = typer.Option("--target", help="The program's specifications, package:SPECIFICATIONS.", show_default=False)
Target = Annotated[str, _TARGET]
Revision = Annotated[int, typer.Argument(help="The revision's number.", show_default=False)]
_FOLDER = Path("revisions")


class _NumberedCommand(TyperCommand):
    """A command that takes a URL, which the environment may provide, and a revision's number."""

    # Any: the parser's context class is private to Typer.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        known = os.environ.get(_URL_VARIABLE)
        if known and "://" not in str(self.make_parser(ctx).parse_args(list(args))[0].get("url")):
            args = [known, *args]
        return super().parse_args(ctx, args)


@app.callback()
def migrate() -> None:
    """Change the schema of tables while services run."""


@app.command()
def init(folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Make the folder of revisions."""
    made = Folder(folder).init()
    _print(form, {"folder": str(folder), "made": made}, f"folder {folder} is {'made' if made else 'there already'}")


@app.command()
def new(
    slug: Annotated[str, typer.Argument(help="What the revision does, as in add_region.", show_default=False)],
    url: Annotated[
        str | None, typer.Argument(envvar=_URL_VARIABLE, help="The store, with --auto.", show_default=False)
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Write what differs from the program's specifications.")] = False,
    target: Annotated[str | None, _TARGET] = None,
    folder: FolderPath = _FOLDER,
    form: Form = Format.TEXT,
) -> None:
    """Write the next revision's script; with --auto and no difference none is written."""
    with answered():
        revisions = Folder(folder)
        if not auto:
            written: Path | None = revisions.write(slug, script_of(slug, Differences()))
        elif url is None or target is None:
            raise typer.BadParameter("--auto needs the store's URL and --target")
        else:
            with _connected(url, create=False, read_only=True) as storage:
                found = _found(storage, target, revisions)
            written = revisions.write(slug, script_of(slug, found)) if found else None
    todo = "read it before it is run" if auto else "its operations are for you to write"
    text = "nothing differs" if written is None else f"{written} is written; {todo}"
    _print(form, {"file": None if written is None else str(written)}, text)


@app.command()
def check(url: Url, target: Target, folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Compare the store with the program's specifications; exit code 1 if a revision is missing."""
    with answered(), _connected(url, create=False, read_only=True) as storage:
        found = _found(storage, target, Folder(folder))
    lines = [*map(str, found.up), *(f"contract: {one}" for one in found.contract)]
    _print(form, {"differences": lines}, "\n".join(lines) if lines else "nothing differs")
    if found:
        raise typer.Exit(1)


@app.command()
def plan(url: Url, to: To = None, folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Show what `up` would do: operations, locks, rows, warnings. It changes nothing."""
    with answered(), _connected(url, create=False, read_only=True) as storage:
        found = Migrator(storage, folder).plan(to)
    _print(form, [one.to_document() for one in found], "\n".join(plan_lines(found)))


@app.command()
def up(
    url: Url,
    to: To = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, transform up to 1,000 rows of each table, and roll back.")
    ] = False,
    rows_per_second: Rate = None,
    threads: Threads = 2,
    max_conflicts: Conflicts = 100,
    folder: FolderPath = _FOLDER,
    form: Form = Format.TEXT,
) -> None:
    """Take the store to a revision, a new store too. Ctrl-C pauses it."""
    throttle = _throttle(rows_per_second, threads, max_conflicts)
    with answered(), _connected(url, create=not dry_run) as storage:
        migrator = Migrator(storage, folder)
        if dry_run:
            planned, lines = migrator.plan(to), migrator.rehearse(to)
            document = {"plan": [one.to_document() for one in planned], "rehearsed": lines}
            _print(form, document, "\n".join([*plan_lines(planned), *lines]))
            return
        with fill_bar(storage, shown=form is Format.TEXT):
            migrator.up(to, throttle=throttle)
        _print_status(migrator, form)


@app.command()
def resume(
    url: Url,
    rows_per_second: Rate = None,
    threads: Threads = 2,
    max_conflicts: Conflicts = 100,
    folder: FolderPath = _FOLDER,
    form: Form = Format.TEXT,
) -> None:
    """Resume a paused revision."""
    throttle = _throttle(rows_per_second, threads, max_conflicts)
    with answered(), _connected(url, create=False) as storage:
        migrator = Migrator(storage, folder)
        with fill_bar(storage, shown=form is Format.TEXT):
            migrator.resume(throttle=throttle)
        _print_status(migrator, form)


@app.command()
def pause(url: Url, folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Let the runner stop after its batches, wherever it is."""
    with answered(), _connected(url, create=False) as storage:
        paused = Migrator(storage, folder).pause()
    text = (
        "no revision is running"
        if paused is None
        else f"revision {paused} is paused; 'structable migrate resume' continues it"
    )
    _print(form, {"paused": paused}, text)


@app.command(cls=_NumberedCommand)
def contract(
    url: Url,
    revision: Revision,
    force: Annotated[bool, typer.Option("--force", help="Do not check whether older programs still run.")] = False,
    folder: FolderPath = _FOLDER,
    form: Form = Format.TEXT,
) -> None:
    """Take away what only older code needs; refused while announced programs of older revisions live."""
    with answered(), _connected(url, create=False) as storage:
        migrator = Migrator(storage, folder)
        migrator.folder.revisions()  # the status below needs them
        kept = migrator.contract(revision, force)
        if kept is not None:
            typer.echo(f"{kept}; contract again then", err=True)
        _print_status(migrator, form)


@app.command(cls=_NumberedCommand)
def down(
    url: Url,
    to: Annotated[int, typer.Argument(help="The last revision that stays; 0 for none.", show_default=False)],
    folder: FolderPath = _FOLDER,
    form: Form = Format.TEXT,
) -> None:
    """Undo the revisions after one that were not contracted: everything they added is deleted, with its values."""
    with answered(), _connected(url, create=False) as storage:
        migrator = Migrator(storage, folder)
        migrator.folder.revisions()  # the status below needs them
        migrator.down(to)
        _print_status(migrator, form)


@app.command()
def status(url: Url, folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Show how far each revision is."""
    with answered(), _connected(url, create=False, read_only=True) as storage:
        _print_status(Migrator(storage, folder), form)


@app.command(cls=_NumberedCommand)
def stamp(url: Url, revision: Revision, folder: FolderPath = _FOLDER, form: Form = Format.TEXT) -> None:
    """Record that a new store, whose tables its program has made, has all up to a revision."""
    with answered(), _connected(url, create=False) as storage:
        migrator = Migrator(storage, folder)
        migrator.stamp(revision)
        _print_status(migrator, form)


def _found(storage: Storage, target: str, folder: Folder) -> Differences:
    specifications = specifications_named(target, folder.path)
    return differences(storage, specifications, folder, History(storage).all())


def _throttle(rows_per_second: float | None, threads: int, max_conflicts: int) -> Throttle:
    if rows_per_second is not None and not rows_per_second > 0:
        raise typer.BadParameter(f"--rows-per-second is {rows_per_second}; it must be above 0")
    return Throttle(rows_per_second, threads, max_conflicts)


def _connected(url: str, **options: object) -> Storage:
    try:
        for name in StorageUrl.parse(url).parameters:
            options.pop(name, None)
        return connect(url, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Give errors of scripts, and transient errors, their exit codes."""
    try:
        yield
    except RevisionError as error:
        _fail(error, _MISUSE)
    except (MigrationLockedError, LiveClientsError) as error:
        _fail(error, _TRY_AGAIN)


def _fail(error: Exception, code: int) -> None:
    typer.echo(f"structable: {escaped_text(' '.join(str(error).split()))}", err=True)
    raise typer.Exit(code) from error


def _print_status(migrator: Migrator, form: Format) -> None:
    found = migrator.status()
    _print(form, [one.to_document() for one in found], "\n".join(status_lines(found)) or "no revisions")


def _print(form: Format, document: object, text: str) -> None:
    shown = "\n".join(map(escaped_text, text.split("\n")))
    typer.echo(json.dumps(document) if form is Format.JSON else shown)
