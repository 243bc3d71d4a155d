"""The `structable` command. It depends on the contract, `structable.spi`, and on no backend."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code; docs/cli.md lists the codes."""
    _open_closed_streams()
    try:
        from .app import app
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("typer", "rich"):
            raise
        from structable.spi.authors import remedy

        print(f"structable: the command needs {missing.name}; {remedy('cli', missing.name)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        app()
    except KeyboardInterrupt:  # while the commands are imported, or the last line is printed
        sys.exit(130)


def _open_closed_streams() -> None:
    """Open the standard streams that are closed, before a store's file gets the descriptor of one.

    Reading and writing them fails, as on a closed one; messages on standard error are lost.
    """
    # In the order of the descriptors: the first free one is taken.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
