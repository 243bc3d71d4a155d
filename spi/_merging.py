"""`Merger`: the effect of a merge engine on a row. The one definition: SQL and operands are tested against it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ._aggregation import combine_function, negated, undoes
from ._changes import RowKind
from ._errors import InvalidFieldError, UnsupportedOperationError
from ._specification import TableSpecification
from ._table_options import AggregateFunction, MergeEngine, SequenceGroup
from ._values import Value


class IgnoredType(enum.Enum):
    """The type of `IGNORED`."""

    IGNORED = "ignored"


IGNORED: Final = IgnoredType.IGNORED
"""The result of a merge that the engine ignores: nothing is written."""
Values: TypeAlias = tuple[Value, ...]
"""The values of all fields outside the key, in the order of the merger's columns."""
Merged: TypeAlias = Values | IgnoredType | None
_COUNT, _FIRST, _LAST = AggregateFunction.COUNT, AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE


class Merger:
    """The merge engine of one table; immutable, safe to share between threads.

    Parameters
    ----------
    spec : TableSpecification
        The table, which has a primary key.
    columns : sequence of str, optional
        All fields outside the key, in the order in which rows are given and returned; the specification's order, if not
        given.
    """

    def __init__(self, spec: TableSpecification, columns: Sequence[str] | None = None) -> None:
        options = spec.table_options
        self.columns = tuple(columns or (field.name for field in spec.value_fields))
        self._spec = spec
        self._options = options
        self._fields = [spec.field(name) for name in self.columns]
        self._nothing: Values = (None,) * len(self.columns)
        self._functions = options.functions
        self._combine = {
            name: combine_function(spec.name, spec.field(name), one) for name, one in options.functions.items()
        }
        grouped = {name for group in options.groups for name in (*group.fields, *group.members)}
        self._ungrouped = tuple(name for name in self.columns if name not in grouped)
        self._places = {name: place for place, name in enumerate(self.columns)}
        self._aggregates = {
            name: (self._places[name], one.function, self._combine[name]) for name, one in self._functions.items()
        }
        self._counts = [self._places[name] for name, one in self._functions.items() if one.function is _COUNT]
        self._in_order = [self._combine[name] for name in self.columns if name in self._combine]
        self.blind = options.blind(self._fields)
        """Whether operands of one row may be applied in any order; a table with an index is never blind."""

    def refuse(self, kind: RowKind, given: Mapping[str, Value]) -> None:
        """Raise if the table refuses a change, whatever row it has stored.

        Raises
        ------
        UnsupportedOperationError
            For a retract that the engine does not know.
        InvalidFieldError
            For a retract under `soft-delete.field` that names none of the fields of `sequence.field`.
        """
        if not kind.retracts or self.drops(kind):
            return
        options = self._options
        match options.merge_engine:
            case MergeEngine.DEDUPLICATE:
                if options.soft_delete and options.sequence and _all_null(given, options.sequence):
                    names = ", ".join(options.sequence)
                    reason = f"a retract of a table with soft-delete.field must name its sequence: {names}"
                    raise InvalidFieldError(self._spec.name, options.sequence[0], reason)
            case MergeEngine.FIRST_ROW:
                raise self._refusal(kind, "one created with ignore-delete drops it")
            case MergeEngine.PARTIAL_UPDATE:
                if options.remove_on_delete:
                    return
                if not options.groups:
                    raise self._refusal(kind, "one created with ignore-delete or remove-record-on-delete does")
                for group in options.groups:
                    if not _all_null(given, group.fields):
                        self._refuse_members(kind, given, group.members)
            case MergeEngine.AGGREGATION:
                if not (options.remove_on_delete and kind is RowKind.DELETE):
                    self._refuse_members(kind, given, self.columns)

    def _refuse_members(self, kind: RowKind, given: Mapping[str, Value], names: Sequence[str]) -> None:
        """Raise for a value that its function cannot retract."""
        for name in names:
            one = self._functions.get(name)
            if one is None or given.get(name) is None or one.ignore_retract or undoes(one.function):
                continue
            raise UnsupportedOperationError(
                f"table {self._spec.name!r}: field {name!r} is aggregated by {one.function}, which cannot retract "
                f"({kind}) a value; leave it null (a table created with fields.{name}.ignore-retract would ignore it)"
            )

    def apply(self, old: Values | None, kind: RowKind, given: Mapping[str, Value]) -> Merged:
        """Return the row of a key after a change.

        Parameters
        ----------
        old : tuple or None
            The values of the row; None if there is no row.
        kind : RowKind
            +I and +U add, -U and -D retract.
        given : mapping of str to Value
            Checked values of the fields that the change names, with or without the key.

        Returns
        -------
        tuple, None or IGNORED
            The new values; None if there is no row any more, or still none; IGNORED if the engine ignores the change.

        Raises
        ------
        InvalidFieldError
            If a result does not fit its field, or as `refuse` does.
        UnsupportedOperationError
            As `refuse` does.
        """
        if kind.retracts:
            if self.drops(kind):
                return IGNORED
            self.refuse(kind, given)
        match self._options.merge_engine:
            case MergeEngine.DEDUPLICATE:
                return self._deduplicated(old, kind, given)
            case MergeEngine.FIRST_ROW:
                return IGNORED if old is not None else self.changed(None, given)
            case MergeEngine.PARTIAL_UPDATE:
                if kind.retracts and self._options.remove_on_delete:
                    return None
                return self._partly_updated(old, kind, given)
            case MergeEngine.AGGREGATION:
                if kind is RowKind.DELETE and self._options.remove_on_delete:
                    return None
                return self._aggregated(old, kind, given)

    def operand(self, kind: RowKind, given: Mapping[str, Value]) -> Values | None:
        """Return a change of a blind table as an operand of `absorb`, null where nothing is given.

        None if it cannot be one, and the row must be read: it deletes the row, or a negated value does not fit.

        Raises
        ------
        UnsupportedOperationError
            As `refuse` does.
        """
        if not kind.retracts:
            values = [*map(given.get, self.columns)]
            for place in self._counts:
                if values[place] is not None:
                    values[place] = 1
            return tuple(values)
        self.refuse(kind, given)
        if kind is RowKind.DELETE and self._options.remove_on_delete:
            return None
        operand = tuple([self._operand(name, kind, given.get(name)) for name in self.columns])
        for field, value in zip(self._fields, operand, strict=True):
            if value is not None and field.type.integer_bits and value == 1 << (field.type.integer_bits - 1):
                return None
        return operand

    def absorb(self, old: Values | None, operand: Values) -> Values:
        """Return the row of a blind table after an operand; the same as `apply` of its change.

        Raises
        ------
        InvalidFieldError
            If a result does not fit its field.
        """
        before = self._nothing if old is None else old
        return tuple([combine(*pair) for combine, *pair in zip(self._in_order, before, operand, strict=True)])

    def _operand(self, name: str, kind: RowKind, value: Value) -> Value:
        """Return the value that a change gives to a field's function."""
        one = self._functions[name]
        if value is None or (kind.retracts and one.ignore_retract):
            return None
        if one.function is _COUNT:
            return -1 if kind.retracts else 1
        return negated(value) if kind.retracts else value

    def drops(self, kind: RowKind) -> bool:
        """Return whether the table ignores changes of a kind, whatever they hold."""
        options = self._options
        if options.remove_on_delete and options.merge_engine is MergeEngine.PARTIAL_UPDATE:
            return kind is RowKind.UPDATE_BEFORE
        return kind.retracts and options.ignore_delete

    def _refusal(self, kind: RowKind, remedy: str) -> UnsupportedOperationError:
        engine = self._options.merge_engine
        return UnsupportedOperationError(
            f"table {self._spec.name!r} with merge-engine {engine} takes no retract ({kind}); {remedy}"
        )

    def changed(self, old: Values | None, changes: Mapping[str, Value]) -> Values:
        """Return the values of a row, or of a new one, after changes of named fields; key fields are ignored."""
        values = list(self._nothing if old is None else old)
        for name, value in changes.items():
            if (place := self._places.get(name)) is not None:
                values[place] = value
        return tuple(values)

    def _deduplicated(self, old: Values | None, kind: RowKind, given: Mapping[str, Value]) -> Merged:
        options = self._options
        softly = options.soft_delete
        if options.sequence and not (kind.retracts and softly is None and _all_null(given, options.sequence)):
            if old is not None and _is_older(given, old, options.sequence, self._places):
                return IGNORED
            old = None  # a merge takes the whole row
        if kind.retracts and softly is None:
            return None
        if softly is not None and (kind.retracts or softly not in given):
            given = {**given, softly: kind.retracts}
        return self.changed(old, given)

    def _partly_updated(self, old: Values | None, kind: RowKind, given: Mapping[str, Value]) -> Merged:
        changes: dict[str, Value] = {}
        if not kind.retracts:
            changes = {name: given[name] for name in self._ungrouped if given.get(name) is not None}
        touched = [group for group in self._options.groups if not _all_null(given, group.fields)]
        if kind.retracts and not touched:
            return IGNORED
        for group in touched:
            changes |= self._group_changes(old, kind, given, group)
        return self.changed(old, changes)

    def _group_changes(
        self, old: Values | None, kind: RowKind, given: Mapping[str, Value], group: SequenceGroup
    ) -> dict[str, Value]:
        late = old is not None and _is_older(given, old, group.fields, self._places)
        changes = {} if late else {name: given.get(name) for name in group.fields}
        for name in group.members:
            if name in self._functions:
                before = None if old is None else old[self._places[name]]
                changes[name] = self._combine[name](before, self._operand(name, kind, given.get(name)))
            elif not late:
                changes[name] = None if kind.retracts else given.get(name)
        return changes

    def _aggregated(self, old: Values | None, kind: RowKind, given: Mapping[str, Value]) -> Values:
        values = list(self._nothing if old is None else old)
        retracts, aggregates = kind.retracts, self._aggregates
        for name, value in given.items():
            found = aggregates.get(name)
            if found is None:
                continue  # a key field
            place, function, combine = found
            if not retracts and (function is _LAST or (function is _FIRST and old is None)):
                values[place] = value  # null too
            else:
                operand = self._operand(name, kind, value) if retracts or function is _COUNT else value
                values[place] = combine(values[place], operand)
        return tuple(values)


def _is_older(given: Mapping[str, Value], old: Values, names: Sequence[str], places: Mapping[str, int]) -> bool:
    """Return whether the given sequence values are lower than a row's, compared field by field, with null lowest."""
    for name in names:
        new, stored = given.get(name), old[places[name]]
        if new != stored:
            return new is None or (stored is not None and new < stored)  # type: ignore[operator]  # of one type
    return False


def _all_null(given: Mapping[str, Value], names: Sequence[str]) -> bool:
    return all(given.get(name) is None for name in names)
