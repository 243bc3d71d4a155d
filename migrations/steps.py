"""The steps of operations: what each makes before rows are filled, after that, in contract, and when it is reverted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

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
    WidenField,
)
from .schema_calls import Report, SchemaCalls

__all__ = ["check_reversible", "contract", "expand", "filled_fields", "finish", "revert"]


def expand(calls: SchemaCalls, operation: Operation, report: Report, deferred: set[tuple[str, str]]) -> None:
    """Make what new code needs; old code goes on beside it. Indexes of `deferred` fields come after the fill."""
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


def filled_fields(operations: Operations) -> set[tuple[str, str]]:
    """Return the fields, with their tables, that a revision fills by a rule: their indexes wait for that."""
    fields: set[tuple[str, str]] = set()
    for operation in operations.up:
        match operation:
            case AddField(table, field, derive) if derive is not None:
                fields.add((table, field.name))
            case RenameField(table, _, new):
                fields.add((table, new))
    return fields


def finish(calls: SchemaCalls, operations: Operations, report_of: Callable[[int], Report]) -> None:
    """After the rows were verified: let rules be ready, and build the indexes that waited."""
    filled = filled_fields(operations)
    for table, field in sorted(filled):
        calls.set_ready(table, [field])
    for position, operation in enumerate(operations.up):
        match operation:
            case AddIndex(table, name) if (table, name) in filled:
                calls.add_index(table, name, report_of(position))
            case RenameField(table, old, new) if old in calls.require(table).indexes:
                calls.add_index(table, new, report_of(position))


def contract(calls: SchemaCalls, operation: Operation, at: dt.datetime) -> dt.datetime | None:
    """Take away what only old code needs; return until when a retired table is kept, if it still is."""
    match operation:
        case DropRule(table, field):
            calls.drop_rule(table, field)
        case RenameField(table, old, new):
            calls.end_name(table, old, new)
        case DropIndex(table, field):
            calls.drop_index(table, field, for_good=True)
        case DropField(table, field):
            calls.drop_field(table, field, for_good=True)
        case DropTable(table, keep_days):
            since = calls.retire(table, at)
            if since is not None:
                until = since + dt.timedelta(days=keep_days)
                if at < until:
                    return until
                calls.drop(table)
    return None


def check_reversible(number: int, operations: Operations) -> None:
    """Check that the script says how to revert what the library cannot.

    Raises
    ------
    IrreversibleError
        If it does not.
    """
    for operation in operations.up:
        if isinstance(operation, Rewrite | Run) and not operations.reversible:
            raise IrreversibleError(
                f"revision {number} cannot be reverted: '{operation}' has no inverse but what the script's function "
                "down(op) says, and it has none"
            )


def revert(calls: SchemaCalls, operation: Operation) -> None:
    """Take away what `expand` made; a wider number stays, which old code accepts."""
    match operation:
        case CreateTable(specification):
            calls.drop(specification.name)
        case AddField(table, field):
            calls.drop_field(table, field.name, for_good=False)
        case AddIndex(table, name):
            calls.drop_index(table, name, for_good=False)
        case RenameField(table, _, new):
            calls.drop_rule(table, new)
            calls.drop_field(table, new, for_good=False)
