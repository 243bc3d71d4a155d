# ruff: noqa: ANN401  an argument may be anything, and the table of calls is one
"""Random calls of a table's operations, valid and not, that can be made on every store alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from structable.spi import Field, FieldType, Filter, Range, TableSpecification, UpdateMessage, col

from .values import Fresh, fitting, hostile

_HOSTILITY = 0.12


@dataclass(frozen=True)
class Call:
    """A call of one method of a table."""

    method: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __str__(self) -> str:
        given = [_text(one) for one in self.arguments] + [f"{name}={_text(one)}" for name, one in self.options.items()]
        return f"{self.method}({', '.join(given)})"

    def on(self, table: object) -> Any:
        arguments = [made(one) for one in self.arguments]
        return getattr(table, self.method)(*arguments, **{name: made(one) for name, one in self.options.items()})


def _text(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        text = "<an int of many digits>"
    return text if len(text) < 400 else f"{text[:400]}..."


def made(value: Any) -> Any:
    """Return an argument as one store gets it."""
    if isinstance(value, Fresh):
        return value()
    if type(value) is dict:
        return {name: made(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(made(one) for one in value)
    if type(value) is UpdateMessage:
        return UpdateMessage(made(value.update), made(value.default))
    return value


def random_specification(chance: random.Random, name: str) -> TableSpecification:
    """Return a table with a key of one to three fields, and fields of every type."""
    kinds = [kind for kind in FieldType if kind is not FieldType.DECIMAL]
    keyable = [kind for kind in kinds if kind.keyable]
    keys = [Field(f"k{place}", chance.choice(keyable)) for place in range(chance.randint(1, 3))]
    values = [
        Field(f"v{place}", kind) for place, kind in enumerate(chance.sample(kinds, chance.randint(2, len(kinds))))
    ]
    values += [Field.long("n"), Field.string("s"), Field.decimal("d", 10, 2)]
    indexes = [field.name for field in values if field.type.keyable and chance.random() < 0.4]
    return TableSpecification(name, [*keys, *values], [field.name for field in keys], indexes)


class _Maker:
    def __init__(self, chance: random.Random, spec: TableSpecification) -> None:
        self.chance = chance
        self.spec = spec

    def spiked(self, value: Any, field: Field | None = None) -> Any:
        return hostile(self.chance, field) if self.chance.random() < _HOSTILITY / 3 else value

    def value(self, field: Field) -> Any:
        chance = self.chance
        if chance.random() < _HOSTILITY / 2:
            return hostile(chance, field)
        return fitting(chance, field)

    def nullable(self, field: Field) -> Any:
        return None if self.chance.random() < 0.15 else self.value(field)

    def key(self) -> Any:
        values = tuple(self.value(field) for field in self.spec.key_fields)
        if self.chance.random() < 0.3:
            return dict(zip(self.spec.primary_key, values, strict=True))
        if self.chance.random() < _HOSTILITY / 2:
            return self.chance.choice(
                [
                    list(values),
                    values[:-1],
                    (*values, 1),
                    {"k0": 1, "x": 2},
                    frozenset(values[:1]) if _hashable(values[:1]) else values,
                ]
            )
        return self.spiked(values)

    def row(self) -> Any:
        chance, spec = self.chance, self.spec
        row = {field.name: self.value(field) for field in spec.key_fields}
        for field in spec.value_fields:
            if chance.random() < 0.5:
                row[field.name] = self.nullable(field)
        if chance.random() < _HOSTILITY / 3:
            row[chance.choice(["nothing", "", "K0"])] = 1
        if chance.random() < _HOSTILITY / 3:
            del row[chance.choice(list(row))]
        return self.spiked(MappingProxyType(row) if chance.random() < 0.1 else row)

    def rows(self, most: int = 5) -> Any:
        return self.spiked([self.row() for _ in range(self.chance.randint(0, most))])

    def updates(self) -> Any:
        return self.spiked([self.update() for _ in range(self.chance.randint(0, 5))])

    def update(self) -> Any:
        row = self.row()
        if self.chance.random() < 0.6 or not isinstance(row, Mapping):
            return row
        default = self.row() if self.chance.random() < 0.2 else self.changes()
        return UpdateMessage(row, default if isinstance(default, Mapping) else None)

    def changes(self) -> Any:
        """Return some fields outside the key."""
        chosen = self.chance.sample(self.spec.value_fields, self.chance.randint(0, len(self.spec.value_fields)))
        return self.spiked({field.name: self.nullable(field) for field in chosen})

    def name(self) -> Any:
        return self.spiked(self.chance.choice(self.spec.field_names))

    def field(self) -> Field:
        return self.chance.choice(self.spec.fields)

    def bound(self) -> Any:
        values = tuple(self.value(field) for field in self.spec.key_fields[: self.chance.randint(0, 3)])
        if self.chance.random() < 0.2:
            return dict(zip(self.spec.primary_key, values, strict=False))
        return self.spiked(values)

    def range(self) -> Any:
        chance = self.chance
        makers: list[Callable[[], Any]] = [
            Range.all,
            lambda: Range.prefix(self.bound()),
            lambda: Range.at_least(self.bound()),
            lambda: Range.below(self.bound()),
            lambda: Range(self.bound(), self.bound(), chance.random() < 0.5, chance.random() < 0.5),
            lambda: Range(None, None, self.spiked(True), False),
        ]
        return self.spiked(_Ranged.of(chance.choice(makers)()))

    def where(self, depth: int = 0) -> Any:
        chance = self.chance
        if depth == 0 and chance.random() < 0.4:
            return self.spiked(None)
        if depth < 2 and chance.random() < 0.4:
            left, right = self.where(depth + 1), self.where(depth + 1)
            if not (isinstance(left, Filter) and isinstance(right, Filter)):
                return left
            return chance.choice([left & right, left | right, ~left])
        field = self.field()
        column, value = col(field.name), self.nullable(field)
        if isinstance(value, Fresh):
            value = None
        makers: list[Callable[[], Filter]] = [
            lambda: column == value,
            lambda: column != value,
            lambda: column < value,
            lambda: column >= value,
            lambda: column.isin([value, fitting(chance, field)]),
            lambda: column.between(value, fitting(chance, field)),
            column.is_null,
            lambda: ~column.is_not_null(),
            lambda: column.startswith(value),
        ]
        return chance.choice(makers)()

    def scan_options(self) -> dict[str, Any]:
        chance = self.chance
        options: dict[str, Any] = {}
        if chance.random() < 0.5:
            options["where"] = self.where()
        if chance.random() < 0.3:
            options["columns"] = self.columns()
        if chance.random() < 0.3:
            options["order_by"] = self.name()
        if chance.random() < 0.4:
            options["reverse"] = self.spiked(chance.random() < 0.7)
        if chance.random() < 0.3:
            options["limit"] = self.spiked(chance.choice([0, 1, 3, 100, 10**30, -1, True]))
        return options

    def columns(self) -> Any:
        chance = self.chance
        names = [self.name() for _ in range(chance.randint(0, 3))]
        return self.spiked(
            chance.choice([names, tuple(names), "s", Fresh(lambda: iter(["s", "n"]), "iter(['s', 'n'])")])
        )


class _Ranged:
    """Ranges are immutable, so fresh values in them are made here."""

    @staticmethod
    def of(range_: Range) -> Range:
        return Range(made(range_.begin), made(range_.end), range_.begin_inclusive, range_.end_inclusive)


def _hashable(values: tuple[Any, ...]) -> bool:
    try:
        hash(values)
    except TypeError:
        return False
    return True


def random_call(chance: random.Random, spec: TableSpecification) -> Call:
    maker = _Maker(chance, spec)

    def option(name: str, value: Callable[[], Any]) -> dict[str, Any]:
        return {name: value()} if chance.random() < 0.3 else {}

    field = maker.field()
    kinds: list[tuple[int, Callable[[], Call]]] = [
        (8, lambda: Call("upsert", (maker.row(),), {})),
        (6, lambda: Call("upsert_many", (maker.rows(),), {})),
        (3, lambda: Call("replace", (maker.row(),), {})),
        (3, lambda: Call("replace_many", (maker.rows(),), {})),
        (3, lambda: Call("insert", (maker.row(),), {})),
        (3, lambda: Call("update", (maker.row(),), option("default", maker.row))),
        (4, lambda: Call("update_many", (maker.updates(),), option("default", maker.changes))),
        (4, lambda: Call("read", (maker.key(),), option("columns", maker.columns))),
        (
            3,
            lambda: Call(
                "multi_read", (maker.spiked([maker.key() for _ in range(3)]),), option("columns", maker.columns)
            ),
        ),
        (6, lambda: Call("scan", (maker.range(),), maker.scan_options())),
        (3, lambda: Call("multi_scan", (maker.spiked([maker.range(), maker.range()]),), maker.scan_options())),
        (4, lambda: Call("scan_index", (maker.name(), maker.nullable(field)), maker.scan_options())),
        (3, lambda: Call("count", (maker.spiked([maker.range()]),), option("where", maker.where))),
        (
            3,
            lambda: Call(
                "compare_and_swap",
                (maker.key(), maker.spiked(field.name), maker.nullable(field), maker.nullable(field)),
                {},
            ),
        ),
        (
            3,
            lambda: Call(
                "increment",
                (maker.key(), chance.choice(["n", maker.name()]), maker.spiked(chance.choice([1, -5, 2**62]))),
                {},
            ),
        ),
        (3, lambda: Call("delete", (maker.key(),), {})),
        (1, lambda: Call("delete_all", (maker.range(),), option("where", maker.where))),
        (
            1,
            lambda: Call(
                "update_all", (maker.range(), {field.name: maker.nullable(field)}), option("where", maker.where)
            ),
        ),
    ]
    [make] = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])
    return make()


def random_rows(chance: random.Random, spec: TableSpecification, count: int) -> list[dict[str, Any]]:
    """Return valid rows, some with the same key."""
    return [
        {
            field.name: fitting(chance, field)
            for field in spec.fields
            if field.name in spec.primary_key or chance.random() < 0.7
        }
        for _ in range(count)
    ]
