"""The command that runs the conformance suite against a store."""

from __future__ import annotations

import typer

from .arguments import Url
from .errors import CommandError, ExitCode

__all__ = ["conformance"]


def conformance(url: Url) -> None:
    """Run the conformance suite against a store, which must be empty: the suite writes to it.

    Each rule of the contract is a test. The exit code is 1 if one fails.
    """
    try:
        from structable.spi.conformance import run
    except ModuleNotFoundError as missing:
        raise CommandError(
            f"the conformance suite needs {missing.name}: pip install 'structable[conformance]'"
        ) from missing
    if run(url) != 0:
        raise typer.Exit(ExitCode.FAILED)
