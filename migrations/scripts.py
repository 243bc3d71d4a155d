"""The text of a revision's script."""

from __future__ import annotations

from structable.spi import Field, FieldType, TableSpecification

from .autogenerate import Differences
from .operations import (
    AddField,
    CreateTable,
    DropTable,
    FieldOperation,
    Operation,
    RenameField,
    WidenField,
    function_text,
    name_of,
)

__all__ = ["script_of"]

_HINT = "    # op.create_table, op.add_field, op.add_index, op.rename_field, ...: docs/migrations.md lists them"


def script_of(slug: str, found: Differences) -> str:
    """Return the script that does what was found to differ."""
    title = slug.replace("_", " ").capitalize()
    lines = [f'"""{title}."""', "", "", "def up(op):"]
    lines += [
        f"    # {_call(one)}  # if it is meant: in place of its add_field and its drop_field" for one in found.renames
    ]
    lines += [f"    {_call(one)}" for one in found.up] if found else [_HINT]
    lines += [] if found.up else ["    pass"]
    if found.contract:
        lines += ["", "", "def contract(op):"]
        lines += [f"    {_call(one)}" for one in found.contract]
    return "\n".join(lines) + "\n"


def _call(operation: Operation) -> str:
    match operation:
        case CreateTable(specification):
            return f"op.create_table({_table(specification)})"
        case AddField(table, field, derive, source) if derive is not None:
            return f"op.add_field({table!r}, {_field(field)}, derive=op.{function_text(derive)}, source={source!r})"
        case AddField(table, field):
            return f"op.add_field({table!r}, {_field(field)})"
        case WidenField(table, field):
            return f"op.widen_field({table!r}, {_field(field)})"
        case FieldOperation(table, name):
            return f"op.{name_of(operation)}({table!r}, {name!r})"
        case RenameField(table, old, new):
            return f"op.rename_field({table!r}, {old!r}, {new!r})"
        case DropTable(table, keep_days):
            return f"op.drop_table({table!r}, keep_days={keep_days})"
    raise TypeError(operation)


def _table(spec: TableSpecification) -> str:
    parts = [repr(spec.name), f"[{', '.join(map(_field, spec.fields))}]", f"primary_key={list(spec.primary_key)!r}"]
    if spec.indexes:
        parts.append(f"indexes={list(spec.indexes)!r}")
    if spec.options:
        parts.append(f"options={dict(spec.options)!r}")
    return f"op.table({', '.join(parts)})"


def _field(field: Field) -> str:
    if field.type is FieldType.DECIMAL:
        return f"op.decimal({field.name!r}, {field.precision}, {field.scale})"
    return f"op.{field.type.value}({field.name!r})"
