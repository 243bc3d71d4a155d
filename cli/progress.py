"""The progress bar of the commands that take long, if standard error is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

__all__ = ["Advance", "progress"]

Advance: TypeAlias = Callable[[float | None, int], None]
"""Takes the fraction done, 0 to 1 or None if unknown, and the number of rows, or of another unit."""


@contextlib.contextmanager
def progress(description: str, unit: str = "rows") -> Iterator[Advance]:
    """Show a progress bar while the block runs, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda fraction, number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[number]:,}} {unit}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=None, number=0)

        def advance(fraction: float | None, number: int) -> None:
            if fraction is None:
                bar.update(task, number=number)
            else:
                bar.update(task, total=1.0, completed=fraction, number=number)

        yield advance
