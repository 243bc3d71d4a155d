"""The random choices of the state machine: tables, rows, ranges, conditions and writes that often collide.

Hypothesis chooses the steps and a seed for each; what a step does follows from its seed. Drawing every value by
Hypothesis would find smaller examples, and in the same time far fewer of them.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from structable.spi import (
    Field,
    FieldType,
    InvalidSpecificationError,
    Range,
    StructuredTable,
    TableSpecification,
    Value,
)

from .conditions import (
    OPERATORS,
    AllOf,
    AnyOf,
    BeginsWith,
    Between,
    Compare,
    CompareFields,
    Condition,
    Negation,
    Null,
    OneOf,
)
from .model import ModelTransaction, kept
from .samples import EXTREMES, Record
from .type_chances import random_kind, small_pool

_KEYABLE = [kind for kind in FieldType if kind.keyable]

_POOLS: dict[FieldType, list[Value]] = {
    **EXTREMES,
    FieldType.FLOAT: [*EXTREMES[FieldType.FLOAT], 0.1, -0.0, 3],
    FieldType.DOUBLE: [*EXTREMES[FieldType.DOUBLE], -0.0, 3],
    FieldType.DECIMAL: [*EXTREMES[FieldType.DECIMAL], 3],
    FieldType.STRING: ["", "a", "aa", "ab", "a\x01", "a%", "b", "\u00e9", "\U0010ffff"],
    FieldType.BYTES: [b"", b"\x00", b"\x00\xff", b"a", b"a\x00", b"\xff", b"\xff\xff"],
    FieldType.TIMESTAMP: [
        *EXTREMES[FieldType.TIMESTAMP],
        dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ],
}
_INTEGERS = [FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG]
_NARROWER = {
    **{kind: _INTEGERS[: place + 1] for place, kind in enumerate(_INTEGERS)},
    FieldType.DOUBLE: [FieldType.FLOAT, FieldType.DOUBLE],
}
_IN_KEYS = {1: 5, 2: 3, 3: 2}
"""Number of values of each key field, by the number of key fields: small, so that writes collide."""


@dataclass(frozen=True)
class ModelWrite:
    """One write, for the model and for the table; `keys` are the rows that it names, whether or not it writes them."""

    text: str  # for people
    on_model: Callable[[ModelTransaction], object]
    on_table: Callable[[StructuredTable], object]
    keys: Iterable[tuple[Value, ...]] = ()


def random_specification(chance: random.Random, name: str) -> TableSpecification:
    """Return a table of one to three key fields and one to five others of any types, some of them indexed."""
    fields = [Field(f"k{number}", chance.choice(_KEYABLE)) for number in range(chance.randint(1, 3))]
    others = [Field.long("n")]
    for number in range(chance.randint(0, 4)):
        kind = chance.choice(list(FieldType))
        others.append(Field(f"v{number}", kind, *((38, 10) if kind is FieldType.DECIMAL else ())))
    indexes = [field.name for field in others if field.type.keyable and chance.random() < 0.5]
    order = [*fields, *others]
    chance.shuffle(order)
    return TableSpecification(name, order, [field.name for field in fields], indexes)


def older_specification(chance: random.Random, spec: TableSpecification) -> TableSpecification:
    """Return a table as an earlier release might know it: with fewer fields and indexes, and narrower numbers."""
    fields = [
        Field(one.name, chance.choice(_NARROWER.get(one.type, [one.type])), one.precision, one.scale)
        if one.name not in spec.primary_key
        else one
        for one in spec.fields
        if one.name in spec.primary_key or chance.random() < 0.7
    ]
    lacking = set(spec.field_names) - {one.name for one in fields}
    options = {
        name: value
        for name, value in spec.options.items()
        if name.endswith("group") or lacking.isdisjoint(name.split("."))
    }
    indexes = [name for name in spec.indexes if name not in lacking and chance.random() < 0.7]
    try:
        return TableSpecification(spec.name, fields, spec.primary_key, indexes, options)
    except InvalidSpecificationError:  # the options need a field, or the wider number
        return spec.evolve(indexes=indexes)


def random_value(chance: random.Random, spec: TableSpecification, field: Field) -> Value:
    """Return a value of a field, not null."""
    if field.name in spec.primary_key:
        return chance.choice(_POOLS[field.type][-_IN_KEYS[len(spec.primary_key)] :])
    return chance.choice(small_pool(spec, field) or _POOLS[field.type])


def random_key(chance: random.Random, spec: TableSpecification) -> tuple[Value, ...]:
    """Return a whole key."""
    return tuple(random_value(chance, spec, field) for field in spec.key_fields)


def random_changes(chance: random.Random, spec: TableSpecification) -> Record:
    """Return values, or null, for some of the fields outside the key, perhaps for none."""
    return {
        field.name: None if chance.random() < 0.2 else random_value(chance, spec, field)
        for field in spec.value_fields
        if chance.random() < 0.6
    }


def random_row(chance: random.Random, spec: TableSpecification) -> Record:
    """Return a row with a key and some of the other fields."""
    return {**dict(zip(spec.primary_key, random_key(chance, spec), strict=True)), **random_changes(chance, spec)}


def random_range(chance: random.Random, spec: TableSpecification) -> Range:
    """Return a range whose bounds are prefixes of any length, or often all rows."""
    if chance.random() < 0.4:
        return Range.all()
    bounds: list[tuple[Value, ...] | None] = []
    for _ in range(2):
        fields = spec.key_fields[: chance.randint(0, len(spec.key_fields))]
        bounds.append(tuple(kept(spec, field.name, random_value(chance, spec, field)) for field in fields) or None)
    return Range(bounds[0], bounds[1], chance.random() < 0.5, chance.random() < 0.5)


def random_condition(chance: random.Random, spec: TableSpecification, depth: int = 2) -> Condition:
    """Return a condition on any fields, up to a few levels deep."""
    shape = chance.random()
    if depth and shape < 0.4:
        one = random_condition(chance, spec, depth - 1)
        if shape < 0.15:
            return Negation(one)
        return (AllOf if shape < 0.28 else AnyOf)(one, random_condition(chance, spec, depth - 1))
    field = chance.choice(spec.fields)

    def value() -> Value:
        return kept(spec, field.name, random_value(chance, spec, field))

    if field.type in (FieldType.STRING, FieldType.BYTES) and chance.random() < 0.2:
        return BeginsWith(field.name, value())
    match chance.randrange(8):
        case 0:
            return Between(field.name, value(), value())
        case 1:
            return OneOf(field.name, tuple(value() for _ in range(chance.randint(0, 3))))
        case 2:
            return Null(field.name, chance.random() < 0.5)
        case 3:
            other = chance.choice([one for one in spec.fields if one.type is field.type])
            return CompareFields(field.name, chance.choice(list(OPERATORS)), other.name)
    return Compare(field.name, chance.choice(list(OPERATORS)), value())


def random_write(chance: random.Random, model: ModelTransaction, *, typed: bool) -> ModelWrite:
    """Return a write of any kind, close to existing rows; `typed` says whether the store knows kinds of rows."""
    return chance.choice(_TYPED_WRITES if typed else _WRITES)(chance, model)


def _of_a_row(name: str, chance: random.Random, model: ModelTransaction) -> ModelWrite:
    row = random_row(chance, model.spec)
    return ModelWrite(
        f"{name}({row})",
        lambda one: getattr(one, name)(row),
        lambda table: getattr(table, name)(row),
        [model.key_of(row)],
    )


def _upsert_many(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    rows = [random_row(chance, model.spec) for _ in range(chance.randint(0, 6))]
    return ModelWrite(
        f"upsert_many({rows})", lambda one: one.upsert_many(rows), lambda table: table.upsert_many(iter(rows))
    )


def _insert_many(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    rows = [random_row(chance, model.spec) for _ in range(chance.randint(0, 2))]
    keys = [model.key_of(row) for row in rows]
    return ModelWrite(
        f"insert_many({rows})", lambda one: one.insert_many(rows), lambda table: table.insert_many(iter(rows)), keys
    )


def _apply_changes(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    changes = [(random_kind(chance), random_row(chance, model.spec)) for _ in range(chance.randint(0, 4))]
    keys = [model.key_of(row) for _, row in changes]
    return ModelWrite(
        f"apply_changes({changes})",
        lambda one: one.apply_changes(changes),
        lambda table: table.apply_changes(iter(changes)),
        keys,
    )


def _update(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    row = random_row(chance, model.spec)
    default = None if chance.random() < 0.5 else random_changes(chance, model.spec)
    return ModelWrite(
        f"update({row}, {default})",
        lambda one: one.update(row, default),
        lambda table: table.update(row, default),
        [model.key_of(row)],
    )


def _delete(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    key = random_key(chance, model.spec)
    return ModelWrite(
        f"delete({key})",
        lambda one: one.delete(one.kept_key(key)),
        lambda table: table.delete(key),
        [model.kept_key(key)],
    )


def _compare_and_swap(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    spec = model.spec
    key, field = random_key(chance, spec), chance.choice(spec.value_fields)
    current = model.rows.get(model.kept_key(key), {}).get(field.name)
    expected = chance.choice([current, current, None, random_value(chance, spec, field)])
    value = chance.choice([None, random_value(chance, spec, field)])
    return ModelWrite(
        f"compare_and_swap({key}, {field.name!r}, {expected!r}, {value!r})",
        lambda one: one.compare_and_swap(one.kept_key(key), field.name, expected, value),
        lambda table: table.compare_and_swap(key, field.name, expected, value),
        [model.kept_key(key)],
    )


def _increment_of(chance: random.Random, model: ModelTransaction) -> tuple[tuple[Value, ...], str, int] | None:
    """Return a key, a field and an amount; None where an overflow is near, which may show up at the commit only."""
    key, amount = random_key(chance, model.spec), chance.choice([1, -1, 3])
    for rows in (model.rows, model.model.rows):
        if abs(rows.get(model.kept_key(key), {}).get("n") or 0) > 2**62:
            return None
    return key, "n", amount


def _increment(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    found = _increment_of(chance, model)
    if found is None:
        return _delete(chance, model)
    key, _, amount = found
    return ModelWrite(
        f"increment({key}, 'n', {amount})",
        lambda one: one.increment(one.kept_key(key), "n", amount),
        lambda table: table.increment(key, "n", amount),
        [model.kept_key(key)],
    )


def _delete_many(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    keys = [random_key(chance, model.spec) for _ in range(chance.randint(0, 4))]

    def on_model(one: ModelTransaction) -> None:
        for key in keys:
            one.delete(one.kept_key(key))

    kept_keys = [model.kept_key(key) for key in keys]
    return ModelWrite(f"delete_many({keys})", on_model, lambda table: table.delete_many(iter(keys)), kept_keys)


def _increment_many(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    singles = [_increment_of(chance, model) for _ in range(chance.randint(0, 4))]
    given = [one for one in singles if one is not None]

    def on_model(one: ModelTransaction) -> None:
        for key, name, amount in given:
            one.increment(one.kept_key(key), name, amount)

    return ModelWrite(
        f"increment_many({given})",
        on_model,
        lambda table: table.increment_many(iter(given)),
        [model.kept_key(key) for key, _, _ in given],
    )


def _delete_all(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    range_ = random_range(chance, model.spec)
    where = random_condition(chance, model.spec) if chance.random() < 0.8 else None
    given = where.filter() if where else None
    return ModelWrite(
        f"delete_all({range_}, {given})",
        lambda one: one.delete_all(range_, where),
        lambda table: table.delete_all(range_, given),
    )


def _update_all(chance: random.Random, model: ModelTransaction) -> ModelWrite:
    range_ = random_range(chance, model.spec)
    where = random_condition(chance, model.spec) if chance.random() < 0.8 else None
    changes = random_changes(chance, model.spec) or {"n": 7}
    given = where.filter() if where else None
    return ModelWrite(
        f"update_all({range_}, {changes}, {given})",
        lambda one: one.update_all(range_, changes, where),
        lambda table: table.update_all(range_, changes, given),
    )


_WRITES: list[Callable[[random.Random, ModelTransaction], ModelWrite]] = [
    partial(_of_a_row, "upsert"),
    partial(_of_a_row, "upsert"),
    partial(_of_a_row, "replace"),
    partial(_of_a_row, "insert"),
    _upsert_many,
    _update,
    _delete,
    _compare_and_swap,
    _increment,
    _increment,
    _increment_many,
    _delete_many,
    _delete_all,
    _update_all,
]

_TYPED_WRITES = [*_WRITES, _apply_changes, _apply_changes, _apply_changes, _insert_many]
