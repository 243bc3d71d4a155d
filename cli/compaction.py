"""The command that rewrites a store to reclaim space."""

from __future__ import annotations

import typer

from .arguments import Access, Url, open_store
from .progress import progress

__all__ = ["compact"]

_MEBIBYTE = 1 << 20


def compact(url: Url) -> None:
    """Rewrite a store so that it takes no more space than it must, while other processes may use it.

    With the option compression in the URL of a LevelDB store, its files are written with it from now on. An interrupted
    command loses nothing; the next one begins again. Stores that reclaim space by themselves refuse.
    """
    with open_store(url, Access.WRITE) as storage:
        sizes: list[int] = []
        with progress(f"compact {storage.url}", "MiB") as advance:
            for done in storage.compact():
                sizes.append(done.bytes)
                advance(done.fraction, done.bytes // _MEBIBYTE)
        typer.echo(f"{storage.url} is compacted: {sizes[-1]:,} bytes in place of {sizes[0]:,}")
