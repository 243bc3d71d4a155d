"""Which schema changes an existing table accepts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from structable.spi.errors import SchemaIncompatibleError
from structable.spi.fields import Field, FieldType
from structable.spi.specification import MeaninglessOptions, TableSpecification
from structable.spi.table_options import FEED_OPTIONS, TableOptions

__all__ = ["SchemaChange", "holds_values_of", "plan_schema_change"]

_WIDENINGS = (
    (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG),
    (FieldType.FLOAT, FieldType.DOUBLE),
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The steps from an existing table to the wanted one.

    Parameters
    ----------
    before, after : TableSpecification
        The current and the future table.
    added_fields, widened_fields : tuple of Field
        Their future form.
    added_indexes : tuple of str
        Fields to index.
    changed_options : bool
        Whether the options become others.
    """

    before: TableSpecification
    after: TableSpecification
    added_fields: tuple[Field, ...]
    widened_fields: tuple[Field, ...]
    added_indexes: tuple[str, ...]
    changed_options: bool = False

    @property
    def empty(self) -> bool:
        """Whether the specifications differ in nothing but the order of fields."""
        return not (self.added_fields or self.widened_fields or self.added_indexes or self.changed_options)


def plan_schema_change(before: TableSpecification, after: TableSpecification) -> SchemaChange:
    """Compare two specifications of one table.

    Raises
    ------
    SchemaIncompatibleError
        With every difference that is not allowed.
    """
    differences: list[str] = []
    widened: list[Field] = []
    for field in before.fields:
        if field.name not in after:
            differences.append(f"field {field.name!r} is missing; fields cannot be removed")
            continue
        wanted = after.field(field.name)
        if wanted == field:
            continue
        if field.name not in before.primary_key and _widens(field.type, wanted.type):
            widened.append(wanted)
        else:
            kept = " (a key field keeps its type)" if field.name in before.primary_key else ""
            differences.append(f"field {field.name!r} is {field.type_text} and cannot become {wanted.type_text}{kept}")
    added = tuple(field for field in after.fields if field.name not in before)
    known = {name.lower(): name for name in before.field_names}
    differences.extend(
        f"new field {field.name!r} differs from {known[field.name.lower()]!r} by case alone"
        for field in added
        if field.name.lower() in known
    )
    if before.primary_key != after.primary_key:
        ours, theirs = ", ".join(before.primary_key), ", ".join(after.primary_key)
        differences.append(f"the primary key is ({ours}) and cannot become ({theirs})")
    differences.extend(
        f"index {name!r} is missing; drop_index removes an index"
        for name in before.indexes
        if name not in after.indexes
    )
    if _fixed(before.table_options, before) != _fixed(after.table_options, before):
        differences.append(f"the options are {dict(before.options)!r} and cannot become {dict(after.options)!r}")
    if differences:
        raise SchemaIncompatibleError(before.name, differences)
    indexes = tuple(name for name in after.indexes if name not in before.indexes)
    options = _merged_options(before, after)
    changed = dict(before.options) != options
    has_type = before.has_type or after.has_type  # an older program may not name the options that have a meaning
    after = after.evolve(options=options if has_type else MeaninglessOptions(options))
    return SchemaChange(before, after, added, tuple(widened), indexes, changed)


def _fixed(options: TableOptions, before: TableSpecification) -> TableOptions:
    """Return what must not change in the options of a table: not what concerns feeds, or fields that are new."""
    default = TableOptions()
    functions = {name: one for name, one in options.functions.items() if name in before}
    return replace(
        options,
        functions=functions,
        changelog_producer=default.changelog_producer,
        compaction_interval=default.compaction_interval,
        time_retained=default.time_retained,
    )


def _merged_options(before: TableSpecification, after: TableSpecification) -> dict[str, str]:
    """Return the options of the changed table: the new ones, and of the old ones those that outlast not being named."""
    given = dict(after.options)
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
        widened = earlier.type.integer_bits and _widens(earlier.type, field.type)
        if field != earlier and (field.name in after.primary_key or not widened):
            return False
    return True


def _widens(narrow: FieldType, wide: FieldType) -> bool:
    return any(
        narrow in family and wide in family and family.index(narrow) < family.index(wide) for family in _WIDENINGS
    )
