"""Which schema changes an existing table accepts."""

from __future__ import annotations

from dataclasses import dataclass

from structable.spi.errors import SchemaIncompatibleError
from structable.spi.fields import Field, FieldType
from structable.spi.specification import TableSpecification

__all__ = ["SchemaChange", "plan_schema_change"]

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
    """

    before: TableSpecification
    after: TableSpecification
    added_fields: tuple[Field, ...]
    widened_fields: tuple[Field, ...]
    added_indexes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether the specifications differ in nothing but the order of fields."""
        return not (self.added_fields or self.widened_fields or self.added_indexes)


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
    if dict(before.options) != dict(after.options):
        differences.append(f"the options are {dict(before.options)!r} and cannot become {dict(after.options)!r}")
    if differences:
        raise SchemaIncompatibleError(before.name, differences)
    indexes = tuple(name for name in after.indexes if name not in before.indexes)
    return SchemaChange(before, after, added, tuple(widened), indexes)


def _widens(narrow: FieldType, wide: FieldType) -> bool:
    return any(
        narrow in family and wide in family and family.index(narrow) < family.index(wide) for family in _WIDENINGS
    )
