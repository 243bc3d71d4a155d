"""`app`: the commands of structable and of other packages, and the function that reports errors."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from platform import python_version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .commands import changes, copying, creation, doctor, rows, scans, tables, transfer
from .commands.examples import epilog
from .language.arguments import URL_VARIABLE, StoreCommand
from .language.errors import (
    DEBUG_VARIABLE,
    CommandError,
    Ended,
    ExitCode,
    ending_signals,
    explain_error,
    masked,
    one_line,
    outcome_unknown,
)

ENTRY_POINT_GROUP = "structable.commands"


def extension_names() -> list[str]:
    """Return the names of the commands of other packages, in order, without loading them."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def extension(name: str) -> TyperCommand | TyperGroup | None:
    """Load the command of this name; None if no package has it. An application with one command is that command.

    A command that cannot be loaded fails with the reason when it is run, so that all other commands and the help work.
    """
    entries = sorted(set(entry_points(group=ENTRY_POINT_GROUP, name=name)), key=lambda entry: entry.value)
    if not entries:
        return None
    if len(entries) > 1:
        providers = " and ".join(_provider(entry) for entry in entries)
        return _failing(name, f"the command {name!r} comes with {providers}; uninstall one of them")
    try:
        application = entries[0].load()
    except Exception as error:  # any error of the other package's import
        return _failing(name, f"the command {name!r} of {_provider(entries[0])} cannot be loaded: {error}")
    if not isinstance(application, typer.Typer):
        reason = f"the entry point {entries[0].value!r} of {_provider(entries[0])} is not a Typer application"
        return _failing(name, reason)
    group = typer.main.get_group(application)
    group.name = name
    if application.registered_callback is None and len(application.registered_commands) == 1:
        (command,) = group.commands.values()
        assert isinstance(command, TyperCommand)
        command.name = name
        return command
    return group


def _provider(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _failing(name: str, reason: str) -> TyperCommand:
    return TyperCommand(
        name,
        callback=_raising(reason),
        help=f"Not usable: {reason}.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )


def _raising(reason: str) -> Callable[[], None]:
    def fail() -> None:
        raise CommandError(reason)

    return fail


class _Program(TyperGroup):
    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: object,
    ) -> object:
        given = list(sys.argv[1:] if args is None else args)
        for stream in (sys.stdout, sys.stderr):
            # Characters that the terminal cannot show are escaped: the command has not failed if they cannot be shown.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        ended: list[Ended] = []
        try:
            with ending_signals() as ended:
                result = super().main(given, "structable", complete_var, False, windows_expand_args, **extra)
            code = result if isinstance(result, int) else 0
            if code == ExitCode.INTERRUPTED:
                raise KeyboardInterrupt
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            code = _report(error, given, ended)
        if not standalone_mode:
            return code
        sys.exit(code)

    # Any: the class of contexts is private to Typer.
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        own = super().list_commands(ctx)
        return [*own, *(name for name in extension_names() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        return super().get_command(ctx, cmd_name) or extension(cmd_name)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise CommandError("", ExitCode.READER_GONE) from error


def _report(error: BaseException, args: Sequence[str], ended: Sequence[Ended]) -> int:
    # Usage errors repeat arguments whole, among them URLs without their scheme.
    misused = isinstance(error, typer.TyperException)
    urls = [*(arg for arg in args if "://" in arg or (misused and "@" in arg)), os.environ.get(URL_VARIABLE, "")]
    if os.environ.get(DEBUG_VARIABLE):
        with contextlib.suppress(OSError, ValueError):
            print(masked("".join(traceback.format_exception(error)), urls), end="", file=sys.stderr)
    if isinstance(error, BrokenPipeError):
        error = CommandError("", ExitCode.READER_GONE)
    if ended and not outcome_unknown(error):
        error = ended[0]
    message, code = _usage_error(error) if isinstance(error, typer.TyperException) else explain_error(error)
    # At its end, Python would try to write the buffered rest, and also report that failure.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if code == ExitCode.READER_GONE or isinstance(error, OSError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if message:
        with contextlib.suppress(OSError, ValueError):
            print(f"structable: {one_line(masked(message, urls))}", file=sys.stderr, flush=True)
    return int(code)


def _usage_error(error: typer.TyperException) -> tuple[str, int]:
    message = error.format_message().rstrip(".") or "no command is given"  # and the help was printed
    if message.startswith("No such option: -") and message[17:18].isdigit():
        message += " (put -- before values that begin with a dash)"
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "structable"
    return f"{message[:1].lower()}{message[1:]}; '{command} --help' shows the usage", error.exit_code


app = typer.Typer(
    name="structable",
    cls=_Program,
    help="Structured tables over interchangeable stores: administer, read, write, move and check them.",
    epilog=f"Each command takes the store's URL first, or from the environment variable {URL_VARIABLE}.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        # The folder shows which code runs: a folder called structable next to a program may hide the installed one.
        typer.echo(f"structable {version('structable')} from {Path(__file__).parent.parent}, Python {python_version()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _add(name: str, command: Callable[..., None], cls: type[TyperCommand]) -> None:
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")  # Typer would keep their line breaks
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, cls=cls, help=text, epilog=epilog(name))(command)


_add("backends", tables.backends, TyperCommand)
for _name, _command in (
    ("tables", tables.tables),
    ("describe", tables.describe),
    ("create", tables.create),
    ("drop", tables.drop),
    ("get", rows.get),
    ("put", rows.put),
    ("delete", rows.delete),
    ("scan", scans.scan),
    ("count", scans.count),
    ("explain", scans.explain),
    ("changes", changes.changes),
    ("import", transfer.import_rows),
    ("export", transfer.export_rows),
    ("conformance", doctor.conformance),
    ("doctor", doctor.doctor),
    ("compact", tables.compact),
):
    _add(_name, _command, StoreCommand)
_add("infer", creation.infer, TyperCommand)
_add("copy", copying.copy, TyperCommand)
