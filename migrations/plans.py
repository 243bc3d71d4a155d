"""Plans of `up`: the operations of a revision with their locks, rows and warnings, and a rehearsal on few rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from structable.spi import (
    Derived,
    InvalidFieldError,
    Renamed,
    Row,
    Storage,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
)
from structable.spi.authors import RowRules, compile_filter, shared_shape

from .batches import changed_row, refused, update
from .errors import MigrationError
from .fills import RewriteFill, fill_of
from .folder import Revision
from .operations import AddField, AddIndex, CreateTable, Operation, RenameField, Rewrite, RunFunction, WidenField

_REHEARSED = 1_000
_BRIEF = "waits for open transactions of the table, shortly"


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """An operation that `up` would do.

    Parameters
    ----------
    text : str
        The operation.
    locks : str
        The locks that it waits for; empty for none.
    table : str or None
        The table whose rows it fills or indexes.
    rows : int or None
        The approximate number of rows; None if it is unknown, or the operation changes no rows.
    warning : str
        A warning for the operator; empty for none.
    """

    text: str
    locks: str = ""
    table: str | None = None
    rows: int | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRevision:
    """A revision that `up` would go through.

    Parameters
    ----------
    number : int
        Its number.
    name, title : str
        Its slug, and the first line of its docstring.
    operations : tuple of PlannedOperation
        The operations before it is READY.
    contract : tuple of str
        The things that a later contract removes.
    """

    number: int
    name: str
    title: str
    operations: tuple[PlannedOperation, ...]
    contract: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        return {
            "revision": self.number,
            "name": self.name,
            "title": self.title,
            "operations": [
                {
                    "operation": one.text,
                    "locks": one.locks or None,
                    "rows": one.rows,
                    "warning": one.warning or None,
                }
                for one in self.operations
            ],
            "contract": list(self.contract),
        }


def planned(storage: Storage, revision: Revision) -> PlannedRevision:
    """Return the plan of a revision for a store."""
    operations = revision.operations
    contracts = operations.contracts
    return PlannedRevision(
        revision.number,
        revision.name,
        revision.title,
        tuple(_planned(storage, one) for one in operations.up if one not in contracts or isinstance(one, RenameField)),
        tuple(map(str, contracts)),
    )


def _planned(storage: Storage, operation: Operation) -> PlannedOperation:
    text = str(operation)
    match operation:
        case CreateTable():
            return PlannedOperation(text)
        case AddField(table, derive=derive, default=default) if derive is not None or default is not None:
            return PlannedOperation(text, _BRIEF, table, _rows(storage, table), _feed_warning(storage, table))
        case AddField() | WidenField():
            return PlannedOperation(text, _BRIEF)
        case AddIndex(table):
            return PlannedOperation(text, _BRIEF, table, _rows(storage, table))
        case RenameField(table):
            return PlannedOperation(text, _BRIEF, table, _rows(storage, table), _feed_warning(storage, table))
        case Rewrite(table):
            warning = "old code must understand the rows, and the function must be idempotent"
            return PlannedOperation(text, "", table, _rows(storage, table), warning)
        case RunFunction():
            return PlannedOperation(text, "", warning="one transaction; old code must understand what it leaves")
    return PlannedOperation(text)


def _rows(storage: Storage, table: str) -> int | None:
    try:
        return storage.statistics(table).rows
    except (TableNotFoundError, UnsupportedOperationError):
        return None


def _feed_warning(storage: Storage, table: str) -> str:
    spec = _specification(storage, table)
    if spec is None or spec.table_options.changelog_producer.value == "none":
        return ""
    return "the table's change feed gets a change of each row"


def _specification(storage: Storage, table: str) -> TableSpecification | None:
    try:
        return storage.admin.get_specification(table)
    except TableNotFoundError:
        return None


def rehearse(storage: Storage, revision: Revision, folder: Path, before: Iterable[Operation]) -> list[str]:
    """Transform up to 1,000 rows for each operation that fills a table, and roll back; return lines for people.

    `before` holds the operations of earlier revisions that have not run either.
    """
    lines: list[str] = []
    earlier = list(before)
    for operation in revision.operations.up:
        try:
            line = _rehearsed(storage, operation, folder, earlier)
        except StructableError as error:
            raise MigrationError(f"revision {revision.number}, {operation}: {error}") from error
        if line:
            lines.append(f"{revision.number:04} {operation}: {line}")
        earlier.append(operation)
    return lines


def _rehearsed(storage: Storage, operation: Operation, folder: Path, earlier: list[Operation]) -> str:
    match operation:
        case AddField(table, _, derive, source) if derive is not None and source is not None:
            with storage.transaction(read_only=True) as tx:
                spec = _specification(storage, table)
                if spec is None or source not in spec:
                    return f"{source} does not exist yet"
                with tx.table(table).scan(columns=[source], limit=_REHEARSED) as rows:
                    computed = [derive.computed(row[source]) for row in rows]
            return f"{len(computed):,} rows computed, {sum(one.failed for one in computed):,} of them have no value"
        case Rewrite(table):
            fill = fill_of(operation, folder)
            assert isinstance(fill, RewriteFill)
            if not storage.admin.exists(table):
                return "the table does not exist yet"
            return _rewritten(storage, fill, earlier)
    return ""


def _rewritten(storage: Storage, fill: RewriteFill, earlier: list[Operation]) -> str:
    transaction = storage.transaction()
    try:
        table = transaction.table(fill.table)
        spec = table.specification
        future, defaults = _after(spec, earlier)
        rules, where = RowRules.of(future), fill.bind(future)
        stored = None if where is None or any(name not in spec for name in where.fields()) else where
        with table.scan(where=stored, limit=_REHEARSED) as scanned:
            found = [{**defaults, **row} for row in scanned]
        shape = shared_shape(spec.name, future.field_names, spec.primary_key)
        rows = [
            Row(shape, tuple([row.get(name) if rules is None else rules.current(row, name) for name in shape.columns]))
            for row in found
        ]
        if where is not None and stored is None:
            holds = compile_filter(future, where, shape.columns)
            rows = [row for row in rows if holds(row.astuple())]
        changed = [one for row in rows if (one := _changed(fill, row, spec.primary_key, rules)) is not None]
        later = {*future.field_names}.difference(spec.field_names)
        update(fill, table, [{name: one[name] for name in one if name not in later} for one in changed])
    finally:
        transaction.rollback()
    return f"{len(rows):,} rows, {len(changed):,} of them changed, and rolled back"


def _changed(fill: RewriteFill, row: Row, key: Sequence[str], rules: RowRules | None) -> dict[str, Value] | None:
    changes, _ = changed_row(fill, row, key)
    if changes is not None and rules is not None:
        try:
            rules.completed(changes, before=row)
        except InvalidFieldError as error:
            raise refused(fill, row.key, error) from error
    return changes


def _after(spec: TableSpecification, operations: Iterable[Operation]) -> tuple[TableSpecification, dict[str, Value]]:
    """Return a table with the fields that operations add, and their defaults."""
    defaults: dict[str, Value] = {}
    for operation in operations:
        match operation:
            case AddField(spec.name, field, derive, source, default) if field.name not in spec:
                rules = () if derive is None or source is None else (Derived(field.name, source, derive),)
                spec = spec.evolve(fields=[*spec.fields, field], rules=[*spec.rules, *rules])
                defaults[field.name] = default
            case RenameField(spec.name, old, new) if old in spec and new not in spec:
                fields = [*spec.fields, replace(spec.field(old), name=new)]
                spec = spec.evolve(fields=fields, rules=[*spec.rules, Renamed(old, new)])
    return spec, defaults
