"""The steps of operations: before rows are filled, after the fill, in the contract, and in a reversal."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Mapping

from structable.spi import Derived, Row, SchemaIncompatibleError

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
    RenameField,
    RevisionOperations,
    Rewrite,
    RunFunction,
    What,
    WidenField,
    added,
)
from .schema_calls import Report, SchemaCalls

_log = logging.getLogger("structable.migrations")


def expand(calls: SchemaCalls, operation: Operation, report: Report, deferred: set[tuple[str, str]]) -> None:
    """Create what new code needs; old code keeps running. Indexes of `deferred` fields are built after the fill."""
    match operation:
        case CreateTable(specification):
            calls.create(specification)
        case AddField(table, field, derive, source):
            rule = None if derive is None or source is None else Derived(field.name, source, derive)
            calls.add_field(table, field, rule)
        case WidenField(table, field):
            calls.widen_field(table, field)
        case AddIndex(table, name) if (table, name) not in deferred:
            calls.add_index(table, name, report)
        case RenameField(table, old, new):
            calls.add_name(table, old, new)


def lacking(calls: SchemaCalls, operation: Operation) -> set[What]:
    """Return the things that the store lacks, and `expand` or `finish` creates; `revert` may then remove them."""
    match operation:
        case CreateTable() | AddIndex():
            created = added(operation)
        case AddField(table, field, derive):
            created = {(kind, table, field.name) for kind in (["field"] if derive is None else ["field", "rule"])}
        case RenameField(table, _, new):
            created = {(kind, table, new) for kind in ("field", "rule", "index")}
        case _:
            return set()
    if not isinstance(operation, CreateTable):
        calls.require(operation.table)
    return created - calls.things(operation.table)


def filled_fields(operations: RevisionOperations) -> set[tuple[str, str]]:
    """Return the fields, with their tables, that a revision fills by a rule; their indexes wait for the fill."""
    fields: set[tuple[str, str]] = set()
    for operation in operations.up:
        match operation:
            case AddField(table, field, derive) if derive is not None:
                fields.add((table, field.name))
            case RenameField(table, _, new):
                fields.add((table, new))
    return fields


def finish(calls: SchemaCalls, operations: RevisionOperations, report_of: Callable[[int], Report]) -> None:
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
        calls.set_ready(table, field)


def check_contract(calls: SchemaCalls, operations: RevisionOperations) -> None:
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
                calls.drop_field(table, field, revision=calls.revision)
            elif ("index", table, field) not in again:
                calls.drop_index(table, field, revision=calls.revision)
        case DropRule(table, field) if ("rule", table, field) not in again:
            calls.drop_rule(table, field)
        case DropIndex(table, field) if ("index", table, field) not in again:
            calls.drop_index(table, field, revision=calls.revision)
        case DropTable(table, keep_days) if ("table", table) not in again or calls.is_retired(table):
            since = calls.retire(table, at)
            if since is not None:
                until = since + dt.timedelta(days=keep_days)
                if at < until:
                    return until
                calls.drop(table)
    return None


def check_reversible(number: int, operations: RevisionOperations, tasks: Collection[Row]) -> None:
    """Check that the script has a `down` for operations that the library cannot revert, and that left their traces.

    Raises
    ------
    IrreversibleError
        If it has none.
    """
    if operations.reversible:
        return
    for position, operation in enumerate(operations.up):
        if not isinstance(operation, Rewrite | RunFunction):
            continue
        parts = [task for task in tasks if task.operation == position]
        if any(task.changed for task in parts) or (parts and all(task.done for task in parts)):
            raise IrreversibleError(
                f"revision {number} cannot be reverted: '{operation}' has no inverse, and its script had no "
                "function down(op) when it began; write a revision that undoes it"
            )


def revert(calls: SchemaCalls, made: Collection[What], taken: Mapping[What, int]) -> None:
    """Remove the things that an operation created.

    A widened number stays, and so does a field that its table needs: old code accepts both.

    Parameters
    ----------
    made : collection of What
        The things to remove.
    taken : mapping of What to int
        The earlier revisions that took things away for good: they are recorded again.
    """
    for kind, table, *names in sorted(made, reverse=True):  # a field after its rule and its index
        revision = taken.get((kind, table, *names))
        match kind, names:
            case "table", _:
                calls.drop(table)
                return
            case "rule", [name]:
                calls.drop_rule(table, name)
            case "index", [name]:
                calls.drop_index(table, name, revision=revision)
            case "field", [name]:
                try:
                    calls.require_droppable(table, name)
                except SchemaIncompatibleError as error:
                    _log.warning("%s; it stays", error)
                else:
                    calls.drop_field(table, name, revision=revision)
