"""The schema changes that an existing table accepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from structable.spi._error_texts import not_a_field
from structable.spi._errors import InvalidFieldError, InvalidSpecificationError, SchemaIncompatibleError
from structable.spi._field_rules import FieldRule, Retired, named_fields, retired_since
from structable.spi._fields import Field, widens
from structable.spi._specification import MeaninglessOptions, TableSpecification
from structable.spi._table_options import FEED_OPTIONS, ChangelogProducer, TableOptions

NOTHING_TAKEN: Final[Mapping[str, int]] = MappingProxyType({})
TAKEN_TABLE = "table"
"""The key of a retired table among what revisions took away."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The steps from an existing table to one that has all that a specification asks for.

    Parameters
    ----------
    before, after : TableSpecification
        The current and the future table.
    added_fields, widened_fields : tuple of Field
        The fields as they will be.
    added_indexes : tuple of str
        Fields to index.
    kept_fields : tuple of Field
        Fields that the specification lacks, or has narrower; they stay as they are.
    kept_indexes : tuple of str
        Indexed fields that the specification does not index.
    changed_options : bool
        Whether the options change.
    taken : mapping of str to int
        The items that revisions took away and that the table still lacks, by `taken_field`, `taken_index` and
        `TAKEN_TABLE`.
    """

    before: TableSpecification
    after: TableSpecification
    added_fields: tuple[Field, ...]
    widened_fields: tuple[Field, ...]
    added_indexes: tuple[str, ...]
    kept_fields: tuple[Field, ...] = ()
    kept_indexes: tuple[str, ...] = ()
    changed_options: bool = False
    taken: Mapping[str, int] = dataclasses.field(default_factory=lambda: NOTHING_TAKEN)

    @property
    def empty(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.added_fields or self.widened_fields or self.added_indexes or self.changed_options)


def taken_field(name: str) -> str:
    """Return the key of a field among what revisions took away."""
    return f"field {name}"


def taken_index(name: str) -> str:
    """Return the key of an index among what revisions took away."""
    return f"index {name}"


def plan_schema_change(
    before: TableSpecification,
    wanted: TableSpecification,
    *,
    taken: Mapping[str, int] = NOTHING_TAKEN,
    revision: int | None = None,
) -> SchemaChange:
    """Compare a table with a specification of it.

    The table keeps what it has beyond the specification. If the specification has all fields and indexes, their order
    becomes its order; otherwise the new ones come last.

    Parameters
    ----------
    before, wanted : TableSpecification
        The table, and what it must have.
    taken : mapping of str to int
        The items that revisions took away; only a revision may bring them back.
    revision : int, optional
        That revision.

    Raises
    ------
    SchemaIncompatibleError
        With every difference that is not allowed.
    """
    differences = _of_rules(before, wanted, taken)
    if revision is None:
        differences += _taken_away(before, wanted, taken)
    future = {field.name: field for field in before.fields}
    widened: list[Field] = []
    kept: list[Field] = []
    for field in before.fields:
        other = wanted.field(field.name) if field.name in wanted else None
        if other == field:
            continue
        if field.name in before.primary_key:
            if other is not None:  # otherwise the difference of the keys is reported below
                what = f"field {field.name!r} is {field.type_text} and cannot become {other.type_text}"
                differences.append(f"{what} (a key field keeps its type)")
        elif other is None or widens(other, field):
            kept.append(field)
        elif widens(field, other):
            widened.append(other)
        else:
            differences.append(f"field {field.name!r} is {field.type_text} and cannot become {other.type_text}")
    added = tuple(field for field in wanted.fields if field.name not in before)
    known = {name.lower(): name for name in before.field_names}
    differences.extend(
        f"new field {field.name!r} differs from {known[field.name.lower()]!r} by case alone"
        for field in added
        if field.name.lower() in known
    )
    if before.primary_key != wanted.primary_key:
        ours, theirs = ", ".join(before.primary_key), ", ".join(wanted.primary_key)
        differences.append(f"the primary key is ({ours}) and cannot become ({theirs})")
    if _fixed(before, wanted) != _fixed(wanted, before):
        differences.append(f"the options are {dict(before.options)!r} and cannot become {dict(wanted.options)!r}")
    if differences:
        raise SchemaIncompatibleError(before.name, differences)
    future |= {field.name: field for field in (*widened, *added)}
    options = _merged_options(before, wanted)
    has_type = before.has_type or wanted.has_type  # an older program may not name the options that have a meaning
    indexes = _united(before.indexes, wanted.indexes)
    try:
        after = before.evolve(
            fields=[future[name] for name in _united(before.field_names, wanted.field_names)],
            indexes=indexes,
            options=options if has_type else MeaninglessOptions(options),
        )
    except InvalidSpecificationError as error:  # a rule does not allow a wider field
        raise SchemaIncompatibleError(before.name, [str(error)]) from None
    back = {*(taken_field(field.name) for field in added), *map(taken_index, indexes)}
    return SchemaChange(
        before,
        after,
        added,
        tuple(widened),
        tuple(name for name in wanted.indexes if name not in before.indexes),
        tuple(kept),
        tuple(name for name in before.indexes if name not in wanted.indexes),
        dict(before.options) != options,
        {what: number for what, number in taken.items() if what not in back},
    )


def _of_rules(before: TableSpecification, wanted: TableSpecification, taken: Mapping[str, int]) -> list[str]:
    since = retired_since(before.rules)
    if since is not None:
        by = f" by revision {taken[TAKEN_TABLE]}" if TAKEN_TABLE in taken else ""
        return [f"it has been retired{by} since {since.isoformat(sep=' ')}; restore it by rules without Retired"]
    if wanted.rules and set(map(_of_any_state, wanted.rules)) != set(map(_of_any_state, before.rules)):
        return [f"the rules are {[*before.rules]!r} and cannot become {[*wanted.rules]!r}; set_rules changes them"]
    return []


def _of_any_state(rule: FieldRule) -> FieldRule:
    return rule if isinstance(rule, Retired) else replace(rule, ready=True)


def _taken_away(before: TableSpecification, wanted: TableSpecification, taken: Mapping[str, int]) -> list[str]:
    fields = [name for name in wanted.field_names if name not in before and taken_field(name) in taken]
    indexes = [
        name
        for name in wanted.indexes
        if name not in fields and name not in before.indexes and taken_index(name) in taken
    ]
    return [
        *(f"revision {taken[taken_field(name)]} took the field {name!r} away" for name in fields),
        *(f"revision {taken[taken_index(name)]} took the index of {name!r} away" for name in indexes),
    ]


def with_rules(
    spec: TableSpecification, rules: tuple[FieldRule, ...], expected: tuple[FieldRule, ...] | None
) -> TableSpecification:
    """Return a table with other rules.

    Raises
    ------
    InvalidSpecificationError
        If they do not fit the table.
    SchemaIncompatibleError
        If rules are expected, and the table has others.
    """
    after = spec.evolve(rules=rules)
    if expected is not None and spec.rules not in (expected, after.rules):
        reason = f"it has {[*spec.rules]!r}, not the expected {[*expected]!r}; another call has changed them"
        raise SchemaIncompatibleError(spec.name, [reason], "does not take these rules")
    return after


def without_field(spec: TableSpecification, name: str, building: Collection[str] = ()) -> TableSpecification:
    """Return a table without a field; `building` are fields whose index is under construction.

    Raises
    ------
    InvalidFieldError
        If there is no such field.
    SchemaIncompatibleError
        If the field is of the key, is indexed, or a rule or an option names it.
    """
    if name not in spec:
        raise InvalidFieldError(spec.name, str(name), not_a_field(spec.field_names))
    reasons = []
    if name in spec.primary_key:
        reasons.append("it is part of the primary key")
    if name in spec.indexes or name in building:
        reasons.append("it has an index; drop_index removes that")
    if name in named_fields(spec.rules):
        reasons.append("a rule names it; set_rules removes that")
    if spec.keyless and not spec.table_options.append_only:
        reasons.append("rows of a table without a key are found by all their fields")
    problem = f"cannot lose the field {name!r}"
    if reasons:
        raise SchemaIncompatibleError(spec.name, reasons, problem)
    try:
        return spec.evolve(fields=[field for field in spec.fields if field.name != name])
    except InvalidSpecificationError as error:
        raise SchemaIncompatibleError(spec.name, [str(error)], problem) from None


def _united(ours: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    if set(ours) <= set(wanted):
        return wanted
    return [*ours, *(name for name in wanted if name not in ours)]


def _fixed(spec: TableSpecification, other: TableSpecification) -> TableOptions:
    """Return the options that must be equal in both: all but options of feeds, and of fields that one of them lacks."""
    default = TableOptions()
    functions = {name: one for name, one in spec.table_options.functions.items() if name in other}
    return replace(
        spec.table_options,
        functions=functions,
        changelog_producer=default.changelog_producer,
        compaction_interval=default.compaction_interval,
        time_retained=default.time_retained,
    )


def _merged_options(before: TableSpecification, wanted: TableSpecification) -> dict[str, str]:
    """Return the options of the changed table: the new ones, and old ones that need not be named to stay."""
    given = dict(wanted.options)
    unnamed = "input" if wanted.table_options.log else "none"
    current = before.options.get("changelog-producer", unnamed)
    producer = given.get("changelog-producer", current)
    interval, retained = FEED_OPTIONS
    ended = {
        interval: current == "none" or producer != ChangelogProducer.FULL_COMPACTION,
        retained: "none" in (current, producer),
    }
    kept = {name: value for name, value in before.options.items() if not ended.get(name)}
    if wanted.table_options.groups:  # both name the same groups, if perhaps with other blanks
        kept = {name: kept[name] for name in kept if name.startswith("user.") or not name.endswith(".sequence-group")}
    return {**kept, **given}


def holds_values_of(after: TableSpecification, before: TableSpecification) -> bool:
    """Return whether keys and values checked against `before` are valid for `after`, as far as it has their fields.

    Integers may be wider. A value that was checked for a FLOAT was rounded, and would differ in a DOUBLE.
    """
    if after.primary_key != before.primary_key:
        return False
    for field in after.fields:
        earlier = before.field(field.name) if field.name in before else field
        widened = earlier.type.integer_bits and widens(earlier, field)
        if field != earlier and (field.name in after.primary_key or not widened):
            return False
    return True
