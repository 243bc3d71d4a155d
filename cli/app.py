"""The application: its commands, and the one place where every error becomes a line and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import conformance, doctor, rows, scans, tables, transfer
from .arguments import URL_VARIABLE, StoreCommand
from .errors import DEBUG_VARIABLE, CommandError, ExitCode, explain_error, one_line, without_secrets

__all__ = ["app"]


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
            # What the terminal cannot show is escaped: an error in showing data is no error of the command.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            result = super().main(given, "structable", complete_var, False, windows_expand_args, **extra)
            code = result if isinstance(result, int) else 0
            if code == ExitCode.INTERRUPTED:
                raise KeyboardInterrupt
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            code = _report(error, given)
        if not standalone_mode:
            return code
        sys.exit(code)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        # Any: the class of contexts is private to Typer.
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise CommandError("", ExitCode.READER_GONE) from error


def _report(error: BaseException, args: Sequence[str]) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        error = CommandError("", ExitCode.READER_GONE)
    message, code = _usage_error(error) if isinstance(error, typer.TyperException) else explain_error(error)
    # What is still buffered would be tried again when Python ends, and fail with a report of its own.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if code == ExitCode.READER_GONE or isinstance(error, OSError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if message:
        urls = [*(arg for arg in args if "://" in arg), os.environ.get(URL_VARIABLE, "")]
        with contextlib.suppress(OSError, ValueError):
            print(f"structable: {one_line(without_secrets(message, urls))}", file=sys.stderr, flush=True)
    return int(code)


def _usage_error(error: typer.TyperException) -> tuple[str, int]:
    message = error.format_message().rstrip(".")
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
        typer.echo(f"structable {version('structable')}")
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


app.command()(tables.backends)
for _command in (
    tables.tables,
    tables.describe,
    tables.create,
    tables.drop,
    rows.get,
    rows.put,
    rows.delete,
    scans.scan,
    scans.count,
    scans.explain,
    conformance.conformance,
    doctor.doctor,
):
    app.command(cls=StoreCommand)(_command)
app.command("import", cls=StoreCommand)(transfer.import_rows)
app.command("export", cls=StoreCommand)(transfer.export_rows)
