"""Which schema changes an existing table accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from structable.spi.errors import SchemaIncompatibleError
from structable.spi.fields import Field, FieldType
from structable.spi.specification import MeaninglessOptions, TableSpecification
from structable.spi.table_options import FEED_OPTIONS, TableOptions

__all__ = ["SchemaChange", "holds_values_of", "plan_schema_change", "widens"]

_WIDENINGS = (
    (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG),
    (FieldType.FLOAT, FieldType.DOUBLE),
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The steps from an existing table to one that has all that a specification asks for.

    Parameters
    ----------
    before, after : TableSpecification
        The current and the future table.
    added_fields, widened_fields : tuple of Field
        Their future form.
    added_indexes : tuple of str
        Fields to index.
    kept_fields : tuple of Field
        Fields that the specification lacks, or has narrower, as they are and stay.
    kept_indexes : tuple of str
        Indexed fields that the specification does not index.
    changed_options : bool
        Whether the options become others.
    """

    before: TableSpecification
    after: TableSpecification
    added_fields: tuple[Field, ...]
    widened_fields: tuple[Field, ...]
    added_indexes: tuple[str, ...]
    kept_fields: tuple[Field, ...] = ()
    kept_indexes: tuple[str, ...] = ()
    changed_options: bool = False

    @property
    def empty(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.added_fields or self.widened_fields or self.added_indexes or self.changed_options)


def plan_schema_change(before: TableSpecification, wanted: TableSpecification) -> SchemaChange:
    """Compare a table with a specification of it.

    The table keeps what it has beyond the specification. It has the order of the specification's fields and indexes if
    these are all, otherwise its own, with the new ones at the end.

    Raises
    ------
    SchemaIncompatibleError
        With every difference that is not allowed.
    """
    differences: list[str] = []
    future = {field.name: field for field in before.fields}
    widened: list[Field] = []
    kept: list[Field] = []
    for field in before.fields:
        other = wanted.field(field.name) if field.name in wanted else None
        if other == field:
            continue
        if field.name in before.primary_key:
            if other is not None:  # else the keys differ
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
    return SchemaChange(
        before,
        before.evolve(
            fields=[future[name] for name in _united(before.field_names, wanted.field_names)],
            indexes=_united(before.indexes, wanted.indexes),
            options=options if has_type else MeaninglessOptions(options),
        ),
        added,
        tuple(widened),
        tuple(name for name in wanted.indexes if name not in before.indexes),
        tuple(kept),
        tuple(name for name in before.indexes if name not in wanted.indexes),
        dict(before.options) != options,
    )


def _united(ours: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    if set(ours) <= set(wanted):
        return wanted
    return [*ours, *(name for name in wanted if name not in ours)]


def _fixed(spec: TableSpecification, other: TableSpecification) -> TableOptions:
    """Return what must be equal in the options of both: not what concerns feeds, or fields that one of them lacks."""
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
    """Return the options of the changed table: the new ones, and of the old ones those that outlast not being named."""
    given = dict(wanted.options)
    producer = given.get("changelog-producer", before.options.get("changelog-producer", "none"))
    ends_feed = producer == "none" or producer != before.options.get("changelog-producer")
    kept = {
        name: value
        for name, value in before.options.items()
        if name not in given and not (ends_feed and name in FEED_OPTIONS)
    }
    return {**kept, **given}


def holds_values_of(after: TableSpecification, before: TableSpecification) -> bool:
    """Tell whether keys and values checked for a table `before` are right for another, as far as it has their fields.

    Integers may be wider. What was checked for a FLOAT was rounded, and is not what a DOUBLE would have.
    """
    if after.primary_key != before.primary_key:
        return False
    for field in after.fields:
        earlier = before.field(field.name) if field.name in before else field
        widened = earlier.type.integer_bits and widens(earlier, field)
        if field != earlier and (field.name in after.primary_key or not widened):
            return False
    return True


def widens(narrow: Field, wide: Field) -> bool:
    """Tell whether a number becomes another type that has all its values."""
    return any(
        narrow.type in family and wide.type in family and family.index(narrow.type) < family.index(wide.type)
        for family in _WIDENINGS
    )
