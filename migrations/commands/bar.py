"""The progress bar of a fill, if standard error is a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from structable.migrations.history import History
from structable.migrations.states import State
from structable.migrations.status import RevisionStatus, status_of
from structable.spi import Storage, StructableError

__all__ = ["fill_bar"]

_EVERY = 0.5


@contextlib.contextmanager
def fill_bar(storage: Storage, *, shown: bool) -> Iterator[None]:
    """Show how far the revision is that is worked on, while the block runs."""
    if not shown or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    ended = threading.Event()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None, rows=0)

        def follow() -> None:
            while not ended.wait(_EVERY):
                one = _worked_on(storage)
                if one is not None:
                    description = f"{one.number:04} {one.name} {one.state}"
                    bar.update(task, description=description, total=one.total, completed=one.seen, rows=one.seen)

        thread = threading.Thread(target=follow, name="structable migrate bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _worked_on(storage: Storage) -> RevisionStatus | None:
    try:
        moving = [row for row in History(storage).all().values() if row.state.moving or row.state is State.REVERTING]
        return status_of(History(storage), moving[0]) if moving else None
    except StructableError:  # the next look may succeed; what is wrong ends the work itself
        return None
