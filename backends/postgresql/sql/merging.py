"""The effect of a merge engine on a row, as SQL; tested against `Merger`, which defines it.

A change is first turned into an operand, the row that it would create. The operand is then merged into the row of the
key, which the SQL calls `t`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

from structable.spi import (
    Aggregate,
    AggregateFunction,
    Field,
    FieldType,
    MergeEngine,
    RowKind,
    SequenceGroup,
    TableSpecification,
)
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, Merger

from .names import column, literal
from .row_limit import TOO_LARGE_VALUE, Check, guarded, size_of
from .types import stored_type

_SUM, _COUNT = AggregateFunction.SUM, AggregateFunction.COUNT
_FIRST, _LAST = AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE
Name = Callable[[str], str]
"""Returns the SQL of a field's value."""


class MergeEffect(enum.Enum):
    """The effect of a change of some kind."""

    ADD = "add"
    RETRACT = "retract"
    DELETE = "delete"
    NOTHING = "nothing"


def effect_of(spec: TableSpecification, merger: Merger, kind: RowKind) -> MergeEffect:
    """Return the effect of changes of a kind on rows of a table."""
    if not kind.retracts:
        return MergeEffect.ADD
    if merger.drops(kind):
        return MergeEffect.NOTHING
    options = spec.table_options
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            return MergeEffect.RETRACT if options.soft_delete else MergeEffect.DELETE
        case MergeEngine.PARTIAL_UPDATE:
            return MergeEffect.DELETE if options.remove_on_delete else MergeEffect.RETRACT
        case _:
            return MergeEffect.DELETE if options.remove_on_delete and kind is RowKind.DELETE else MergeEffect.RETRACT


def written(spec: TableSpecification, changes: dict[str, str]) -> dict[str, str]:
    """Return at least one assignment to a row, `t`: it is written even if nothing changes, to conflict as a write."""
    first = spec.primary_key[0]
    return changes or {first: f"t.{column(first)}"}


class MergeSql:
    """The SQL of changes that have one effect and name the same fields.

    Parameters
    ----------
    spec : TableSpecification
        The table, with all indexes that its rows must fit.
    effect : MergeEffect
        The effect of the changes.
    names : sequence of str
        The fields that they name.
    """

    def __init__(self, spec: TableSpecification, effect: MergeEffect, names: Sequence[str]) -> None:
        self._spec = spec
        self._options = spec.table_options
        self._effect = effect
        self._named = [field.name for field in spec.value_fields if field.name in names]
        self.keeps_existing = self._options.merge_engine is MergeEngine.FIRST_ROW
        """Whether an existing row stays unchanged."""

    def operand(self, given: Name) -> dict[str, str]:
        """Return the fields of the operand, and the SQL of their values; the others are null."""
        options = self._options
        match options.merge_engine:
            case MergeEngine.AGGREGATION:
                found = {name: self._single(name, given(name)) for name in self._named}
                return {name: text for name, text in found.items() if text is not None}
            case MergeEngine.PARTIAL_UPDATE:
                grouped = {name for group in options.groups for name in (*group.fields, *group.members)}
                plain = {name: given(name) for name in self._named if name not in grouped}
                fields = plain if self._effect is MergeEffect.ADD else {}
                for group in options.groups:
                    fields |= self._group_operand(group, given)
                return fields
            case _:
                fields = {name: given(name) for name in self._named}
                softly = options.soft_delete
                if softly is not None and (self._effect is MergeEffect.RETRACT or softly not in fields):
                    fields[softly] = "true" if self._effect is MergeEffect.RETRACT else "false"
                return fields

    def _group_operand(self, group: SequenceGroup, given: Name) -> dict[str, str]:
        touched = self._touched(group, given)
        if touched is None:
            return {}
        fields = {name: given(name) for name in group.fields if name in self._named}
        for name in group.members:
            if name not in self._named or (name not in self._options.functions and self._effect is MergeEffect.RETRACT):
                continue
            value = self._single(name, given(name)) if name in self._options.functions else given(name)
            if value is not None:
                fields[name] = f"case when {touched} then {value} end"
        return fields

    def _single(self, name: str, given: str) -> str | None:
        """Return the operand of a field's function; None if it has no effect."""
        one, field = self._options.functions[name], self._spec.field(name)
        retracts = self._effect is MergeEffect.RETRACT
        if retracts and (one.ignore_retract or one.function not in (_SUM, _COUNT)):
            return None
        match one.function:
            case AggregateFunction.COUNT:
                return f"case when {given} is not null then {-1 if retracts else 1}::{stored_type(field).name} end"
            case AggregateFunction.SUM if retracts:
                return fitting(field, f"- {given}")
            case AggregateFunction.LISTAGG:
                return _parts(given, one) if one.distinct else f"nullif({given}, '')"
            case _:
                return given

    def _touched(self, group: SequenceGroup, value: Name) -> str | None:
        """Return the condition that a group's sequence is given; None if it never is."""
        tests = [f"{value(name)} is not null" for name in group.fields if name in self._named]
        return f"({' or '.join(tests)})" if tests else None

    def takes_effect(self, given: Name) -> str:
        """Return the condition that a change has an effect."""
        if self._effect is MergeEffect.RETRACT and self._options.merge_engine is MergeEngine.PARTIAL_UPDATE:
            tests = [self._touched(group, given) for group in self._options.groups]
            return f"({' or '.join(test for test in tests if test is not None) or 'false'})"
        return "true"

    def condition(self, new: Name) -> str:
        """Return the condition that the operand changes an existing row."""
        if self._options.sequence:
            older = self._older(self._options.sequence, new)
            if self._effect is MergeEffect.DELETE:
                nulls = " and ".join(f"{self._value(name, new)} is null" for name in self._options.sequence)
                return f"({nulls} or not {older})"
            return f"not {older}"
        return "true"

    def assignments(self, new: Name) -> dict[str, str]:
        """Return the new values of an existing row's fields; the first value fails if the row gets too large."""
        found = self._assigned(new)
        if not all(field.type.width for field in self._spec.value_fields):
            found = guarded(self._spec, found, self._list_checks(found))
        return written(self._spec, found)

    def _assigned(self, new: Name) -> dict[str, str]:
        options = self._options
        if options.merge_engine is MergeEngine.AGGREGATION:
            return {name: self._combined(name, new) for name in self._operand_names if self._changes(name)}
        if options.merge_engine is MergeEngine.PARTIAL_UPDATE:
            operand = self._operand_names
            grouped = {name for group in options.groups for name in (*group.fields, *group.members)}
            fields = {name: f"coalesce({new(name)}, t.{column(name)})" for name in operand if name not in grouped}
            for group in options.groups:
                fields |= self._group_assigned(group, new)
            return fields
        if options.sequence:  # a merge takes the whole row
            return {field.name: self._value(field.name, new) for field in self._spec.value_fields}
        return {name: new(name) for name in self._operand_names}

    @property
    def _operand_names(self) -> list[str]:
        return list(self.operand(lambda name: ""))

    def _changes(self, name: str) -> bool:
        return self._options.functions[name].function is not _FIRST

    def _group_assigned(self, group: SequenceGroup, new: Name) -> dict[str, str]:
        touched = self._touched(group, new)
        if touched is None:
            return {}
        newer = f"{touched} and not {self._older(group.fields, new)}"
        operand = self._operand_names
        fields = {}
        for name in (*group.fields, *group.members):
            if name in self._options.functions:
                if name in operand:
                    fields[name] = self._combined(name, new)
            else:
                value = new(name) if name in operand else "null"
                fields[name] = f"case when {newer} then {value} else t.{column(name)} end"
        return fields

    def _value(self, name: str, new: Name) -> str:
        return new(name) if name in self._named or name == self._options.soft_delete else "null"

    def _older(self, names: Sequence[str], new: Name) -> str:
        """Return the condition that given sequence fields are lower than the row's, null lowest."""
        cases = []
        for name in names:
            given, stored = self._value(name, new), f"t.{column(name)}"
            cases.append(
                f"when {given} is distinct from {stored} then {given} is null or coalesce({given} < {stored}, false)"
            )
        return f"(case {' '.join(cases)} else false end)"

    def _combined(self, name: str, new: Name) -> str:
        """Return the result of a field's function for its value and the operand's."""
        one, field = self._options.functions[name], self._spec.field(name)
        old, given = f"t.{column(name)}", new(name)
        match one.function:
            case AggregateFunction.SUM | AggregateFunction.COUNT:
                return f"coalesce({fitting(field, f'{old} + {given}')}, {old}, {given})"
            case AggregateFunction.PRODUCT:
                return f"coalesce({fitting(field, f'{old} * {given}')}, {old}, {given})"
            case AggregateFunction.MIN:
                return f"least({old}, {given})"  # the first of equal values
            case AggregateFunction.MAX:
                return f"greatest({old}, {given})"
            case AggregateFunction.BOOL_AND:
                return f"coalesce({old} and {given}, {old}, {given})"
            case AggregateFunction.BOOL_OR:
                return f"coalesce({old} or {given}, {old}, {given})"
            case AggregateFunction.LAST_NON_NULL_VALUE:
                return f"coalesce({given}, {old})"
            case AggregateFunction.FIRST_NON_NULL_VALUE:
                return f"coalesce({old}, {given})"
            case AggregateFunction.LISTAGG:
                parts = _parts(given, one, old) if one.distinct else given
                both = f"{old} || {literal(one.delimiter)} || {parts}"
                joined = f"case when coalesce({old}, '') = '' then {parts} else {both} end"
                return f"coalesce({joined}, {old})"
            case _:
                return given

    def _list_checks(self, changes: Mapping[str, str]) -> list[Check]:
        """Return the checks of indexed lists."""
        spec, checks = self._spec, list[Check]()
        for name, one in self._options.functions.items():
            if name in spec.indexes and name in changes and one.function is AggregateFunction.LISTAGG:
                size = size_of(spec, [(spec.field(name), changes[name])])
                key = size_of(spec, ((field, f"t.{column(field.name)}") for field in spec.key_fields))
                checks.append((size, MAX_KEY_SIZE, f"{TOO_LARGE_VALUE}{name} "))
                checks.append((f"{key} + {size}", MAX_KEY_AND_INDEX_SIZE, f"{TOO_LARGE_VALUE}{name} "))
        return checks


def fitting(field: Field, result: str) -> str:
    """Return a result that fails if it is beyond the field's range, which the column's type may exceed."""
    if field.type is FieldType.BYTE:
        return f"((({result}) * 256::smallint) / 256::smallint)"
    return f"({result})"


def _parts(given: str, one: Aggregate, known: str | None = None) -> str:
    """Return the distinct parts of a list that a known list lacks, in the order met; null if there are none."""
    delimiter = literal(one.delimiter)
    new = "" if known is None else f" and part <> all(string_to_array(coalesce({known}, ''), {delimiter}))"
    parts = f"unnest(string_to_array({given}, {delimiter})) with ordinality as parts(part, place)"
    firsts = f"select part, min(place) as place from {parts} where part <> ''{new} group by part"
    return f"(select string_agg(part, {delimiter} order by place) from ({firsts}) as firsts)"
