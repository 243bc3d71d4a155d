"""`RuledTable`: a table in a transaction whose writes and reads keep the rules of its fields.

A write becomes one write of all fields that it concerns, so that it is done as a whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from ._changes import RowKind, UpdateMessage
from ._computed_rows import ComputedRows, ListedRows, fill_progress, with_computed
from ._errors import InvalidFieldError
from ._evaluation import same
from ._filters import Filter
from ._operations import (
    APPLY_CHANGES,
    UPDATE,
    UPDATE_MANY,
    UPSERT,
    Answer,
    Effect,
    Lookup,
    RangeWrite,
    RowWrites,
    Scan,
    When,
)
from ._row_rules import RowRules
from ._rows import Row, shared_shape
from ._rules.changes import (
    check_changes,
    check_increments,
    check_row_kinds,
    check_swap,
    incremented,
    update_with_default,
)
from ._rules.filters import bind_filter
from ._rules.rows import check_key, check_row
from ._rules.scans import ScanRequest, row_columns
from ._scans import RowIterator, ScanExplanation
from ._specification import TableSpecification
from ._table import StructuredTable
from ._transactions import Transaction
from ._values import Key, Value

Given = TypeVar("Given")
Result = TypeVar("Result")
_ALL_NULL: Mapping[str, Value] = {}


def _on_current_schema(operation: Callable[[RuledTable, Given], Result]) -> Callable[[RuledTable, Given], Result]:
    """Repeat an operation that rejected its argument, if the store finds that the table's fields have changed."""

    @wraps(operation)
    def run(table: RuledTable, given: Given) -> Result:
        try:
            return operation(table, given)
        except InvalidFieldError:
            if not table._renewed():
                raise
        return operation(table, given)

    return run


class RuledTable(StructuredTable):
    """A table of a transaction, under the rules of its fields.

    Parameters
    ----------
    table : StructuredTable
        The table without the rules. Its fields may have changed since they were read, its rules not.
    rules : RowRules
        The rules.
    transaction : Transaction
        The transaction.
    """

    __slots__ = ("_computes", "_rules", "_spec", "_table", "_transaction")

    def __init__(self, table: StructuredTable, rules: RowRules, transaction: Transaction) -> None:
        self._table = table
        self._transaction = transaction
        self._keep(rules)

    def _keep(self, rules: RowRules) -> None:
        self._rules = rules
        self._spec = rules.spec
        self._computes = rules.answer_reads

    def _renewed(self) -> bool:
        """Look up whether the table has other fields now; it has the same rules, or the transaction has failed."""
        rules = RowRules.of(self._table.specification)
        if rules is None or rules.spec == self._spec:
            return False
        self._keep(rules)
        return True

    @property
    def specification(self) -> TableSpecification:
        return self._table.specification

    def _stored(self) -> StructuredTable:
        return self._table

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        return super().read(key, columns) if self._computes else self._table.read(key, columns)

    @_on_current_schema
    def _lookup(self, lookup: Lookup) -> list[Row]:
        if not self._computes:
            return self._table._lookup(lookup)
        names = self._names(lookup.columns)
        stored = self._rules.stored(names)
        found = self._table._lookup(lookup._replace(columns=stored))
        return with_computed(found, self._spec, self._rules, names)

    def _names(self, columns: Iterable[str] | None) -> tuple[str, ...]:
        """Return the columns of a read's rows."""
        spec = self._spec
        return row_columns(spec, columns) or (*spec.primary_key, *(field.name for field in spec.value_fields))

    @_on_current_schema
    def _scan(self, scan: Scan) -> RowIterator:
        if not self._computes:
            return self._table._scan(scan)
        names = self._names(scan.columns)
        request = self._request(scan)
        if request.where is None:
            inner = self._table._scan(request.stored._replace(columns=self._rules.stored(names)))
            return ComputedRows(inner, self._spec, self._rules, names)
        if scan.limit_per_range is not None:
            return ListedRows(self._first_of_ranges(scan, request, names))
        return self._matching(request.stored, request.where, names, scan.limit)

    def _matching(self, stored: Scan, where: Filter, names: tuple[str, ...], limit: int | None) -> ComputedRows:
        columns = self._rules.stored((*names, *where.fields()))
        inner = self._table._scan(stored._replace(columns=columns, limit=0 if limit == 0 else None))
        return ComputedRows(inner, self._spec, self._rules, names, where, limit)

    def _first_of_ranges(self, scan: Scan, request: _StoredScan, names: tuple[str, ...]) -> list[Row]:
        """Return the rows of a scan with `limit_per_range` whose filter is evaluated here."""
        assert request.where is not None
        order = request.stored.order_by
        wanted = names if order is None or order in names else (*names, order)
        found: dict[tuple[Value, ...], Row] = {}
        for one in scan.ranges:
            stored = request.stored._replace(ranges=(one,), limit_per_range=None)
            with self._matching(stored, request.where, wanted, scan.limit_per_range) as rows:
                found.update({row.key: row for row in rows})

        def position(row: Row) -> tuple[Any, ...]:
            value = None if order is None else row[order]
            return (False, row.key) if value is None else (True, value, row.key)

        ordered = sorted(found.values(), key=position, reverse=bool(scan.reverse))[: scan.limit]
        if wanted == names:
            return ordered
        shape = shared_shape(self._spec.name, names, self._spec.primary_key)
        return [Row(shape, tuple([row[name] for name in names])) for row in ordered]

    def _request(self, scan: Scan) -> _StoredScan:
        """Check the arguments of a scan, and divide its filter."""
        ScanRequest.checked(self._spec, scan._replace(order_by=None, indexed=None))
        rules = self._rules
        order, indexed = scan.order_by, scan.indexed
        for name in (order, None if indexed is None else indexed[0]):
            if isinstance(name, str) and name in rules.computed:
                rules.refuse_order(name, fill_progress(self._transaction, self._spec.name, name))
        stored, computed = rules.divided(bind_filter(self._spec, scan.where))
        if indexed is not None:
            indexed = (rules.stored_name(indexed[0]), indexed[1])
        stored_order = rules.stored_name(order)
        return _StoredScan(scan._replace(where=stored, order_by=stored_order, indexed=indexed), computed)

    @_on_current_schema
    def _explain(self, scan: Scan) -> ScanExplanation:
        if not self._computes:
            return self._table._explain(scan)
        request = self._request(scan)
        columns = self._rules.stored(self._names(scan.columns))
        found = self._table._explain(request.stored._replace(columns=columns))
        if request.where is None:
            return found
        note = f"{request.where} is evaluated on computed values: " + ", ".join(
            f"{name} is being filled" for name in sorted({*request.where.fields()} & self._rules.computed)
        )
        residual = str(request.where) if found.residual is None else f"{found.residual} and {request.where}"
        return replace(found, residual=residual, notes=(*found.notes, note))

    @_on_current_schema
    def _count(self, scan: Scan) -> int:
        if not self._computes:
            return self._table._count(scan)
        request = self._request(scan)
        if request.where is None:
            return self._table._count(request.stored)
        with self._matching(request.stored, request.where, self._spec.primary_key, None) as rows:
            return sum(1 for _ in rows)

    def upsert(self, row: Mapping[str, Value]) -> None:
        try:
            full = self._rules.alone(UPSERT, row)
        except InvalidFieldError:
            full = None  # the table may have changed
        if full is None:
            super().upsert(row)
        else:
            self._table.upsert(full)  # type: ignore[arg-type]  # a row

    def _admit(self, operation: str) -> None:
        self._table._admit(operation)

    @_on_current_schema
    def _write(self, writes: RowWrites) -> Answer | None:
        self._table._admit(writes.verb.name)
        if not isinstance(writes.rows, list | tuple):
            return self._table._write(writes)  # which rejects them
        match writes.verb.effect:
            case Effect.REMOVE:
                return self._table._write(writes)
            case Effect.STEP:
                return self._stepped(writes)
            case Effect.CHANGE if writes.verb.when is not When.PRESENT:
                return self._swapped(writes)
        if writes.verb is APPLY_CHANGES:
            return self._table._write(writes._replace(rows=self._changes(writes.rows)))
        if writes.verb.effect is Effect.CHANGE:
            return self._updated(writes)
        if writes.verb.effect is Effect.PUT:
            rows = [self._rules.completed(row, whole=True) if isinstance(row, Mapping) else row for row in writes.rows]
        else:
            before = self._before(writes.rows)
            rows = [self._completed(row, before) for row in writes.rows]
        return self._table._write(writes._replace(rows=tuple(rows) if isinstance(writes.rows, tuple) else rows))

    def _before(self, rows: Iterable[object]) -> _Before | None:
        """Return the rows before the writes of a call, if one of the writes is checked against its row."""
        given = [row for row in rows if isinstance(row, Mapping)]
        return _Before(self._table, self._rules, given) if any(map(self._rules.unsupported, given)) else None

    def _completed(self, row: Any, before: _Before | None) -> Any:  # noqa: ANN401 - what is no row, the table rejects
        """Return a row with the fields that its rules add."""
        if not isinstance(row, Mapping):
            return row
        if before is None:
            return self._rules.completed(row)
        stored = before.of(row)
        full = self._rules.completed(row, before=stored)
        before.note(full, stored)
        return full

    def _updated(self, writes: RowWrites) -> Answer | None:
        pairs = [update_with_default(one, writes.default) for one in writes.rows]
        if not all(isinstance(row, Mapping) and (start is None or isinstance(start, Mapping)) for row, start in pairs):
            return self._table._write(writes)  # which rejects it
        before = self._before(row for row, _ in pairs)
        messages: list[UpdateMessage] = []
        for row, start in pairs:
            default = None if start is None else self._completed_default(row, start)
            stored = None if before is None else before.of(row)
            stored = default if stored is None else stored
            full = self._rules.completed(row, before=stored)
            if before is not None and stored is not None:
                before.note(full, stored)
            messages.append(UpdateMessage(full, default))
        if writes.verb is UPDATE:
            [one] = messages
            return self._table._write(RowWrites(UPDATE, (one.update,), one.default))
        return self._table._write(RowWrites(UPDATE_MANY, messages))

    def _completed_default(self, row: Mapping[str, Value], default: Mapping[str, Value]) -> Mapping[str, Value]:
        key = {name: row[name] for name in self._spec.primary_key if name in row}
        full = self._rules.completed({**key, **default}, whole=True)
        return {name: value for name, value in full.items() if name in default or name not in key}

    def _changes(self, changes: Iterable[object]) -> list[tuple[RowKind, Any]]:
        kinds = check_row_kinds(self._spec, changes)
        before = self._before(row for kind, row in kinds if not kind.retracts)
        completed = []
        for kind, row in kinds:
            if not kind.retracts:
                row = self._completed(row, before)
            elif before is not None:
                before.remove(row)
            completed.append((kind, row))
        return completed

    def _stepped(self, writes: RowWrites) -> Answer | None:
        steps = check_increments(self._spec, list(writes.rows))
        for _, field, _ in steps:
            self._rules.refuse_change(field.name)
        if not any(self._rules.touches_source(field.name) for _, field, _ in steps):
            twins = self._rules.twins
            if not any(field.name in twins for _, field, _ in steps):
                return self._table._write(writes)
            both = [(key, name, by) for key, field, by in steps for name in _both(field.name, twins)]
            self._table.increment_many(both)
            return None
        rows: dict[tuple[Value, ...], dict[str, Value]] = {}
        stored = {row.key: row for row in self._table.multi_read([key for key, _, _ in steps])}
        for key, field, amount in steps:
            changed = rows.setdefault(key, {})
            before = stored.get(key, _ALL_NULL)
            value = changed[field.name] if field.name in changed else self._rules.current(before, field.name)
            changed[field.name] = incremented(self._spec.name, field, value, amount)
            for name in _both(field.name, self._rules.twins)[1:]:
                changed[name] = changed[field.name]
        named = [{**dict(zip(self._spec.primary_key, key, strict=True)), **changed} for key, changed in rows.items()]
        return self._write(RowWrites(UPDATE_MANY, named, _ALL_NULL))

    def _swapped(self, writes: RowWrites) -> Answer | None:
        [(given, name, expected, value)] = writes.rows
        rules = self._rules
        key = check_key(self._spec, given)
        wanted, new = check_swap(self._spec, name, expected, value)
        if not (rules.touches_source(name) or name in rules.twins or any(name == one.field for one in rules.derived)):
            return self._table._write(writes)
        found = self._table.multi_read([key])
        before: Mapping[str, Value] = found[0] if found else _ALL_NULL
        current = rules.current(before, name)
        if not (found or wanted is None) or not same(current, wanted):
            return [key]
        row = {**dict(zip(self._spec.primary_key, key, strict=True)), name: new}
        return self._write(RowWrites(UPDATE, (row,), _ALL_NULL))

    @_on_current_schema
    def _write_range(self, write: RangeWrite) -> int:
        self._table._admit(write.name)
        rules, changes = self._rules, write.changes
        stored, computed = rules.divided(bind_filter(self._spec, write.where))
        unsupported = False
        if changes is not None:
            changes = check_changes(self._spec, changes)
            unsupported = rules.unsupported(changes)
            if not unsupported:
                changes = rules.completed(changes)
        if computed is None and not unsupported:
            return self._table._write_range(write._replace(where=stored, changes=changes))
        with self.scan(write.range, where=write.where, columns=self._spec.primary_key) as rows:
            keys = [row.key for row in rows]
        if changes is None:
            self._table.delete_many(keys)
        else:
            named = self._spec.primary_key
            self.update_many([{**dict(zip(named, key, strict=True)), **changes} for key in keys])
        return len(keys)


class _StoredScan(NamedTuple):
    """The scan of the stored rows, and the part of its filter that needs computed values."""

    stored: Scan
    where: Filter | None


class _Before:
    """The row before each write of a call, for writes checked against fields that they do not name."""

    def __init__(self, table: StructuredTable, rules: RowRules, rows: Iterable[Mapping[str, Value]]) -> None:
        self._spec = rules.spec
        found = table.multi_read([*map(self._key, rows)], rules.stored(rules.sources))
        self._rows: dict[tuple[Value, ...], Mapping[str, Value] | None] = {row.key: row for row in found}

    def of(self, row: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """Return the row before a write; None if there is none."""
        return self._rows.get(self._key(row))

    def note(self, row: Mapping[str, Value], before: Mapping[str, Value] | None) -> None:
        """Record the row that a write of a call leaves."""
        self._rows[self._key(row)] = {**(before or _ALL_NULL), **row}

    def remove(self, row: Mapping[str, Value]) -> None:
        """Record that a write of a call leaves no row."""
        self._rows[self._key(row)] = None

    def _key(self, row: Mapping[str, Value]) -> tuple[Value, ...]:
        checked = check_row(self._spec, row)
        return tuple([checked[name] for name in self._spec.primary_key])


def _both(name: str, twins: Mapping[str, str]) -> list[str]:
    return [name, twins[name]] if name in twins else [name]
