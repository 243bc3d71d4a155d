"""Prints revisions for people, and shows the progress bar of a fill if standard error is a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence

from structable.migrations.history import History
from structable.migrations.plans import PlannedRevision
from structable.migrations.states import State
from structable.migrations.status import RevisionStatus, status_of
from structable.spi import Storage, StructableError

_EVERY = 0.5


def status_lines(statuses: Sequence[RevisionStatus]) -> Iterator[str]:
    """Yield a line for each revision, and one for the error that stopped it."""
    width = max((len(one.name) for one in statuses), default=0)
    for one in statuses:
        yield f"{one.number:04} {one.name:<{width}}  {one.progress:<12} {'   '.join(_details(one))}".rstrip()
        if one.state is State.PAUSED and one.error:
            yield from (f"     {line}" for line in one.error.splitlines())


def _details(one: RevisionStatus) -> Iterator[str]:
    if one.finished is not None and one.state in (State.READY, State.DONE):
        yield f"{one.finished:%Y-%m-%d}"
        if one.state is State.READY or one.contracts:
            yield "contracted" if one.state is State.DONE else "ready"
    rows = list(_rows(one))
    if rows:
        yield ", ".join(rows)
    if one.runner is not None and one.state.moving:
        yield f"runner {one.runner}"


def _rows(one: RevisionStatus) -> Iterator[str]:
    if one.resumes is State.FILLING:
        yield f"{one.seen:,} of {one.total:,} rows" if one.total else f"{one.seen:,} rows"
        if one.rate:
            yield f"{one.rate:,.0f} a second"
        if one.seen:
            yield f"{100 * one.conflicts / (one.seen + one.conflicts):.1f} % conflicts"
        if one.remaining is not None and one.state is State.FILLING:
            yield f"about {_duration(one.remaining)}"
    elif one.seen:
        yield f"{one.changed:,} of {one.seen:,} rows changed"
    if one.indexed is not None:
        yield f"index of {one.indexed:,} rows so far"
    if one.failed:
        yield f"{one.failed:,} have no value that fits"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_lines(plan: Iterable[PlannedRevision]) -> Iterator[str]:
    """Yield lines that describe what `up` would do."""
    empty = True
    for revision in plan:
        empty = False
        yield f"{revision.number:04} {revision.name}: {revision.title}".rstrip(": ")
        for one in revision.operations:
            rows = "" if one.rows is None else f"about {one.rows:,} rows"
            notes = "; ".join(note for note in (rows, one.locks, one.warning and f"warning: {one.warning}") if note)
            yield f"  {one.text}" + (f" ({notes})" if notes else "")
        for text in revision.contract:
            yield f"  contract: {text}"
    if empty:
        yield "nothing to do"


@contextlib.contextmanager
def fill_bar(storage: Storage, *, shown: bool) -> Iterator[None]:
    """Show the progress of the current revision while the block runs."""
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
    except StructableError:  # the next look may succeed; a lasting error ends the work itself
        return None
