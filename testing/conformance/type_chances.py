"""Random choices for tables with types: their options, values that stay in range, and changes for one function."""

from __future__ import annotations

import random
from decimal import Decimal

from structable.spi import Field, FieldType, RowKind, TableSpecification, Value

from .merge_model import functions_of
from .samples import EXTREMES, TYPES, Record

_NUMBERS = [kind for kind in FieldType if kind.integer_bits] + [FieldType.FLOAT, FieldType.DOUBLE]
FUNCTIONS: dict[str, list[FieldType]] = {
    "sum": [*_NUMBERS, FieldType.DECIMAL],
    "product": _NUMBERS,
    "count": [FieldType.INT, FieldType.LONG],
    "listagg": [FieldType.STRING],
    "bool_and": [FieldType.BOOLEAN],
    "bool_or": [FieldType.BOOLEAN],
    "min": list(FieldType),
    "max": list(FieldType),
    "last_value": list(FieldType),
    "last_non_null_value": list(FieldType),
    "first_value": list(FieldType),
    "first_non_null_value": list(FieldType),
}
"""The types that each aggregate function fits."""

_IN_GROUPS = ("sum", "count", "product", "min", "max", "bool_and", "bool_or")
_FIXED = [kind for kind in FieldType if kind.width]
_NARROW = (FieldType.BYTE, FieldType.SHORT)
_SMALL: dict[str, list[int]] = {"sum": [-2, -1, 0, 1, 3], "count": [-1, 0, 1, 2], "product": [-1, 1, 1, 0]}


def small_pool(spec: TableSpecification, field: Field) -> list[Value] | None:
    """Return values for which the field's function gives no inexact or too large result; None if all values do."""
    function = functions_of(spec).get(field.name)
    if function == "listagg":
        return ["", "a", "b", "a,b", "c"]
    if function not in _SMALL:
        return None
    numbers = _SMALL[function]
    if field.type is FieldType.DECIMAL:
        return [Decimal(number) / 4 for number in numbers]
    if field.type in (FieldType.FLOAT, FieldType.DOUBLE):
        return [number / 4 if function == "sum" else float(number) for number in numbers]
    return list(numbers)


def indexable(spec: TableSpecification) -> list[str]:
    """Return the fields outside the key that can have an index, however many values are merged."""
    functions = functions_of(spec)
    return [one.name for one in spec.value_fields if one.type.keyable and functions.get(one.name) != "listagg"]


def random_kind(chance: random.Random) -> RowKind:
    """Return a kind, mostly one that adds."""
    kinds: list[RowKind] = [*RowKind, RowKind.INSERT, RowKind.UPDATE_AFTER]
    return chance.choice(kinds)


def random_type(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    """Return a plain table with a merge engine of any kind, and perhaps one more field."""
    if chance.random() < 0.5:
        spec = spec.evolve(fields=[*spec.fields, Field.boolean("gone"), Field.short("s")])
    options = chance.choice([_by_sequence, _soft_delete, _partial_update, _groups, _aggregation, _blind, _first_row])
    return options(chance, spec)


def _flag(chance: random.Random, options: dict[str, str], name: str, likely: float = 0.3) -> dict[str, str]:
    return {**options, name: "true"} if chance.random() < likely else options


def _keyable(spec: TableSpecification) -> list[str]:
    return [field.name for field in spec.value_fields if field.type.keyable]


def _by_sequence(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    names = _keyable(spec)
    sequence = chance.sample(names, min(len(names), chance.randint(1, 2)))
    options = {"sequence.field": ",".join(sequence)}
    flags = [one.name for one in spec.value_fields if one.type is FieldType.BOOLEAN and one.name not in sequence]
    if flags and chance.random() < 0.4:
        return spec.evolve(options={**options, "soft-delete.field": chance.choice(flags)})
    return spec.evolve(options=_flag(chance, options, "ignore-delete", 0.2))


def _soft_delete(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    flags = [field.name for field in spec.value_fields if field.type is FieldType.BOOLEAN]
    return spec.evolve(options={"soft-delete.field": chance.choice(flags)}) if flags else _first_row(chance, spec)


def _first_row(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    return spec.evolve(options=_flag(chance, {"merge-engine": "first-row"}, "ignore-delete", 0.6))


def _partial_update(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    flag = chance.choice(["ignore-delete", "remove-record-on-delete"])
    return spec.evolve(options=_flag(chance, {"merge-engine": "partial-update"}, flag, 0.8))


def _function(chance: random.Random, field: Field, allowed: list[str]) -> str | None:
    fitting = [one for one in allowed if field.type in FUNCTIONS[one]]
    if field.type in _NARROW:
        fitting = [one for one in fitting if one != "sum"]  # it would overflow
    return chance.choice(fitting) if fitting else None


def _aggregates(chance: random.Random, fields: list[Field], allowed: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for field in fields:
        function = _function(chance, field, allowed)
        if function is not None:
            options[f"fields.{field.name}.aggregate-function"] = function
            options = _flag(chance, options, f"fields.{field.name}.ignore-retract", 0.4)
        if function == "listagg":
            options = _flag(chance, options, f"fields.{field.name}.distinct", 0.5)
    return options


def _groups(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    options = {"merge-engine": "partial-update"}
    left = list(spec.value_fields)
    chance.shuffle(left)
    for _ in range(chance.randint(1, 2)):
        sequence = [field for field in left if field.type.keyable][: chance.randint(1, 2)]
        members = [field for field in left if field not in sequence][: chance.randint(1, 3)]
        if sequence and members:
            names = ",".join(field.name for field in sequence)
            options[f"fields.{names}.sequence-group"] = ",".join(field.name for field in members)
            some = [field for field in members if chance.random() < 0.5]
            options |= _aggregates(chance, some, list(_IN_GROUPS))
            left = [field for field in left if field not in (*sequence, *members)]
    return _without_lists(spec.evolve(options=_flag(chance, options, "ignore-delete", 0.2)))


def _aggregation(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    some = [field for field in spec.value_fields if chance.random() < 0.9]
    options = {"merge-engine": "aggregation", **_aggregates(chance, some, list(FUNCTIONS))}
    flag = chance.choice(["ignore-delete", "remove-record-on-delete"])
    return _without_lists(spec.evolve(indexes=[], options=_flag(chance, options, flag)), spec.indexes)


def _without_lists(spec: TableSpecification, indexes: tuple[str, ...] | None = None) -> TableSpecification:
    wanted = spec.indexes if indexes is None else indexes
    return spec.evolve(indexes=[name for name in wanted if name in indexable(spec)])


def _blind(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    fields = [field for field in spec.fields if field.name in spec.primary_key or field.type in _FIXED]
    values = [field for field in fields if field.name not in spec.primary_key]
    blind = [one for one in _IN_GROUPS if one != "product"]
    options = {"merge-engine": "aggregation", "fields.default-aggregate-function": "max"}
    options |= _aggregates(chance, values, blind)
    return spec.evolve(fields=fields, indexes=[], options=_flag(chance, options, "remove-record-on-delete", 0.2))


def aggregated_by(function: str, name: str = "t") -> TableSpecification:
    """Return a table of a field of every type that a function fits, each named by its type."""
    fields = [Field.long("id"), *(TYPES.field(kind.value) for kind in FUNCTIONS[function])]
    options = {"merge-engine": "aggregation", "fields.default-aggregate-function": function}
    return TableSpecification(name, fields, ["id"], options=options)


def random_change(
    chance: random.Random, spec: TableSpecification, keys: int, *, extremes: bool
) -> tuple[RowKind, Record]:
    """Return a change of a row of `aggregated_by`: with extremes the result of a calculation may be out of range."""
    row: Record = {"id": chance.randrange(keys)}
    for field in chance.sample(spec.value_fields, min(len(spec.value_fields), chance.randint(1, 3))):
        small = small_pool(spec, field)
        if chance.random() < 0.15:
            row[field.name] = None
        elif small is not None and (not extremes or chance.random() < 0.8):
            row[field.name] = chance.choice(small)
        else:
            row[field.name] = chance.choice([*EXTREMES[field.type], *_MORE.get(field.type, [])])
    return random_kind(chance), row


_MORE: dict[FieldType, list[Value]] = {
    FieldType.FLOAT: [-0.0, 0.1, 1e-30, 1e30],
    FieldType.DOUBLE: [-0.0, 0.1, 1e-200, 1e200],
}
