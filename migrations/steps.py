"""The steps of operations: before rows are filled, after the fill, in contract, and in a reversal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection

from structable.spi import Derived

from .errors import IrreversibleError
from .operations import (
    AddField,
    AddIndex,
    CreateTable,
    DropField,
    DropIndex,
    DropRule,
    DropTable,
    Operation,
    Operations,
    RenameField,
    Rewrite,
    Run,
    What,
    WidenField,
)
from .schema_calls import Report, SchemaCalls

__all__ = ["adds", "check_contract", "check_reversible", "contract", "expand", "filled_fields", "finish", "revert"]


def expand(calls: SchemaCalls, operation: Operation, report: Report, deferred: set[tuple[str, str]]) -> None:
    """Create what new code needs; old code keeps running. Indexes of `deferred` fields are built after the fill."""
    match operation:
        case CreateTable(specification):
            calls.create(specification)
        case AddField(table, field, derive, source):
            calls.add_field(table, field)
            if derive is not None and source is not None:
                calls.add_rule(table, Derived(field.name, source, derive))
        case WidenField(table, field):
            calls.widen_field(table, field)
        case AddIndex(table, name) if (table, name) not in deferred:
            calls.add_index(table, name, report)
        case RenameField(table, old, new):
            calls.add_name(table, old, new)


def adds(calls: SchemaCalls, operation: Operation) -> bool:
    """Return whether `expand` would create something that the store lacks; `revert` may then remove it."""
    match operation:
        case CreateTable(specification):
            return calls.find(specification.name) is None
        case AddField(table, field):
            return field.name not in calls.require(table)
        case RenameField(table, _, new):
            return new not in calls.require(table)
        case AddIndex(table, name):
            return name not in calls.require(table).indexes
    return False


def filled_fields(operations: Operations) -> set[tuple[str, str]]:
    """Return the fields, with their tables, that a revision fills by a rule; their indexes wait for the fill."""
    fields: set[tuple[str, str]] = set()
    for operation in operations.up:
        match operation:
            case AddField(table, field, derive) if derive is not None:
                fields.add((table, field.name))
            case RenameField(table, _, new):
                fields.add((table, new))
    return fields


def finish(calls: SchemaCalls, operations: Operations, report_of: Callable[[int], Report]) -> None:
    """After the rows were verified: build the indexes that waited, then let rules be ready.

    Until its rule is ready a new name is found by the index of the old name, afterwards by its own.
    """
    filled = filled_fields(operations)
    for position, operation in enumerate(operations.up):
        match operation:
            case AddIndex(table, name) if (table, name) in filled:
                calls.add_index(table, name, report_of(position))
            case RenameField(table, old, new) if old in calls.require(table).indexes:
                calls.add_index(table, new, report_of(position))
    for table, field in sorted(filled):
        calls.set_ready(table, [field])


def check_contract(calls: SchemaCalls, operations: Operations) -> None:
    """Check, before anything is done, that the contract is possible: a contract that has begun cannot be undone.

    Raises
    ------
    SchemaIncompatibleError
        If a table needs a field that the contract drops.
    """
    for operation in operations.contracts:
        if isinstance(operation, DropField):
            calls.require_droppable(operation.table, operation.field)


def contract(calls: SchemaCalls, operation: Operation, at: dt.datetime, again: Collection[What]) -> dt.datetime | None:
    """Remove what only old code needs, except things added `again`. A table that is retired already is dropped.

    Return the time until which a retired table is kept, or None.
    """
    match operation:
        case DropField(table, field) | RenameField(table, field):
            stays = ("field", table, field) in again
            if isinstance(operation, RenameField):
                # Later revisions compute these of their own field of the old name.
                own = {what[2] for what in again if stays and what[:2] == ("rule", table)}
                calls.end_name(table, field, operation.new, own)
            if not stays:
                calls.drop_field(table, field, for_good=True)
            elif ("index", table, field) not in again:
                calls.drop_index(table, field, for_good=True)
        case DropRule(table, field) if ("rule", table, field) not in again:
            calls.drop_rule(table, field)
        case DropIndex(table, field) if ("index", table, field) not in again:
            calls.drop_index(table, field, for_good=True)
        case DropTable(table, keep_days) if ("table", table) not in again or calls.is_retired(table):
            since = calls.retire(table, at)
            if since is not None:
                until = since + dt.timedelta(days=keep_days)
                if at < until:
                    return until
                calls.drop(table)
    return None


def check_reversible(number: int, operations: Operations) -> None:
    """Check that the script has a `down` for operations that the library cannot revert.

    Raises
    ------
    IrreversibleError
        If it has none.
    """
    for operation in operations.up:
        if isinstance(operation, Rewrite | Run) and not operations.reversible:
            raise IrreversibleError(
                f"revision {number} cannot be reverted: '{operation}' has no inverse but what the script's function "
                "down(op) said when it began, and there was none; write a revision that undoes it"
            )


def revert(calls: SchemaCalls, operation: Operation, *, made: bool) -> None:
    """Remove what `expand` created. A widened number stays: old code accepts it.

    Parameters
    ----------
    made : bool
        Whether the revision created the table, field or index.
    """
    match operation:
        case CreateTable(specification) if made:
            calls.drop(specification.name)
        case AddField(table, field, derive):
            _remove(calls, table, field.name, made=made, ruled=derive is not None)
        case AddIndex(table, name) if made:
            calls.drop_index(table, name, for_good=False)
        case RenameField(table, _, new):
            _remove(calls, table, new, made=made, ruled=True)


def _remove(calls: SchemaCalls, table: str, field: str, *, made: bool, ruled: bool) -> None:
    if made:
        calls.drop_field(table, field, for_good=False)
    elif ruled:
        calls.drop_rule(table, field)
