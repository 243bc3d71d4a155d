"""The `structable` command. It depends on the contract, `structable.spi`, and on no backend."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code; docs/cli.md lists the codes."""
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
