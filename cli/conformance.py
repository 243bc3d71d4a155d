"""The command that runs the conformance suite against a store."""

from __future__ import annotations

from typing import Annotated

import typer

from structable.spi import StructableError

from .arguments import Url
from .errors import CommandError, ExitCode, UsageProblem

__all__ = ["conformance"]


def conformance(
    url: Url,
    keywords: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPRESSION", help="Only the rules whose names match, as pytest's -k has it."),
    ] = None,
    stop: Annotated[bool, typer.Option("-x", help="Stop at the first failure.")] = False,
) -> None:
    """Run the conformance suite: each rule of the contract is a test, on a store of its own.

    {fresh} in the URL is replaced by a new name for each test, as in scheme:///tmp/stores/{fresh}. Remove what
    the tests leave behind under these names. The exit code is 1 if a test fails.
    """
    try:
        from structable.spi.conformance import run
    except ModuleNotFoundError as missing:
        raise CommandError(str(missing)) from missing
    arguments = [*(() if keywords is None else ("-k", keywords)), *(("-x",) if stop else ())]
    try:
        failed = run(url, arguments)
    except StructableError:
        raise
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    if failed:
        raise typer.Exit(ExitCode.FAILED)
