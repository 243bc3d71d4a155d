"""Commits to a feed that change no rows: set a mark, raise the floor and delete entries up to it, restart the feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from structable.backends.base.feed_marks import Mark
from structable.backends.ordered.engine import EngineSnapshot, ReadSet, Upkeep, WriteSet
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.catalog import put_schema, schema_key
from structable.backends.ordered.schema.spaces import renew_feed
from structable.spi import TransactionConflictError

from .floors import Floor, floor_key, mark_interval, mark_key, mark_value, mark_version, recorded_floor
from .source import bound_feed


def set_mark(engine: Upkeep, binding: TableBinding, last: Mark, newest: Mark) -> None:
    """Set a mark, unless a mark or the floor is already after `last`.

    Raises
    ------
    TransactionConflictError
        If another process sets one at the same time, or the table has changed.
    """
    space = bound_feed(binding).space
    with _changing(engine, binding) as (snapshot, changes):
        floor = recorded_floor(snapshot, space)
        begin, end = mark_key(space, last.version + 1), mark_interval(space)[1]
        later = [key for key, _ in snapshot.scan(begin, end)]
        if later or (floor is not None and floor.version > last.version):
            return
        changes.writes[mark_key(space, newest.version)] = mark_value(newest)
        changes.reads = ReadSet(keys={floor_key(space)}, intervals=[(begin, end)])


def raise_floor(engine: Upkeep, binding: TableBinding, version: int, begin: int, stopped: Callable[[], bool]) -> int:
    """Raise the floor of a feed to a version, durably, then delete the entries up to it; return the floor.

    Parameters
    ----------
    engine : Upkeep
        The map.
    binding : TableBinding
        The table.
    version : int
        The new floor. A version below the present floor changes nothing, but continues an interrupted deletion.
    begin : int
        The version of the floor if none is recorded yet.
    stopped : callable
        Called between steps of the deletion; True stops it, and the next call continues.

    Raises
    ------
    TransactionConflictError
        If another process raises the floor at the same time, or the table has changed.
    """
    space = bound_feed(binding).space
    floor = _raised(engine, binding, space, version, begin)
    if floor is None:
        return begin
    if floor.swept < floor.version and engine.drop_entries(space, floor.swept, floor.version, stopped):
        with _changing(engine, binding) as (snapshot, changes):
            if recorded_floor(snapshot, space) == floor:
                changes.writes[floor_key(space)] = replace(floor, swept=floor.version).encode()
    return floor.version


def _raised(engine: Upkeep, binding: TableBinding, space: bytes, version: int, begin: int) -> Floor | None:
    """Record a higher floor; return the recorded one, None if there is none."""
    with _changing(engine, binding) as (snapshot, changes):
        floor = recorded_floor(snapshot, space)
        if version <= (begin if floor is None else floor.version):
            return floor
        time = 0
        for key, value in snapshot.scan(mark_interval(space)[0], mark_key(space, version + 1)):
            changes.writes[key] = None
            if mark_version(key) == version:
                time = int.from_bytes(value)
        raised = Floor(version, time, 0 if floor is None else floor.swept)
        changes.writes[floor_key(space)] = raised.encode()
    return raised


def restart_feed(engine: Upkeep, binding: TableBinding) -> None:
    """End the feed of a table and begin another one; the entries of the old one become garbage.

    Raises
    ------
    TransactionConflictError
        If the table has changed.
    """
    with _changing(engine, binding) as (snapshot, changes):
        put_schema(changes, renew_feed(engine, snapshot, changes, binding.schema))


@contextmanager
def _changing(engine: Upkeep, binding: TableBinding) -> Iterator[tuple[EngineSnapshot, WriteSet]]:
    """Commit the changes that the block adds; they conflict with changes of the table's schema after the binding."""
    with closing(engine.begin(False)) as snapshot:
        if snapshot.get(schema_key(binding.spec.name)) != binding.raw_schema:
            raise TransactionConflictError(f"table {binding.spec.name!r} was changed at the same time")
        changes = WriteSet(spaces={binding.schema.space})
        yield snapshot, changes
        if changes.writes:
            engine.commit(snapshot, changes)
