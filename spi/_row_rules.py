"""`RowRules`: applies the rules of a table's fields to rows that are written and read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from ._error_texts import shown
from ._errors import InvalidFieldError
from ._evaluation import Predicate, compile_filter, same
from ._field_functions import JsonField
from ._field_rules import Derived, Renamed, named_fields
from ._filters import And, FieldComparison, Filter, Or, conjunction
from ._operations import Effect, Verb
from ._rules.arguments import check_field
from ._specification import TableSpecification
from ._value_checks import check_value
from ._values import Value

Name = TypeVar("Name")
Values: TypeAlias = Sequence[Value]
Projector: TypeAlias = Callable[[Values], tuple[Value, ...]]
"""Computes the values of columns from the values of their stored columns."""


class RowRules:
    """The rules of the fields of one table; immutable.

    Parameters
    ----------
    spec : TableSpecification
        The table.

    Attributes
    ----------
    derived : tuple of Derived
        The derived fields, each after the field that it is computed from.
    sources : frozenset of str
        The fields that others are computed from.
    computed : frozenset of str
        The derived fields that stored rows may lack.
    aliases : mapping of str to str
        The old names of the new fields that stored rows may lack.
    twins : mapping of str to str
        The other name of each renamed field.
    named : frozenset of str
        The fields that rules name.
    """

    def __init__(self, spec: TableSpecification) -> None:
        self.spec = spec
        self.renamed = tuple(rule for rule in spec.rules if isinstance(rule, Renamed))
        self.derived = _in_order([rule for rule in spec.rules if isinstance(rule, Derived)])
        self.sources = frozenset(rule.source for rule in self.derived)
        self.computed = frozenset(rule.field for rule in self.derived if not rule.ready)
        self.aliases = {rule.new: rule.old for rule in self.renamed if not rule.ready}
        self.twins = {**{rule.old: rule.new for rule in self.renamed}, **{rule.new: rule.old for rule in self.renamed}}
        self.named = frozenset(named_fields(spec.rules))
        self._by_field = {rule.field: rule for rule in self.derived}
        self._key_sources = any(name in self.sources for name in spec.primary_key)

    @classmethod
    def of(cls, spec: TableSpecification) -> RowRules | None:
        """Return the rules of a table; None if none concerns its fields."""
        return cls(spec) if any(isinstance(rule, Derived | Renamed) for rule in spec.rules) else None

    @property
    def answer_reads(self) -> bool:
        """Whether reads compute some of the columns."""
        return bool(self.computed or self.aliases)

    def touches_source(self, name: object) -> bool:
        """Return whether a change of one field, which may make a row, changes others that are computed."""
        return self._key_sources or name in self.sources or self.twins.get(str(name)) in self.sources

    def unsupported(self, row: Mapping[str, Value]) -> bool:
        """Return whether a row names a derived field, but not the field that it is computed from."""
        return any(rule.field in row and not self._named(rule.source, row) for rule in self.derived)

    def _named(self, name: str, row: Collection[str]) -> bool:
        return name in row or self.twins.get(name, name) in row

    def require_sources(self, names: Collection[str]) -> None:
        """Raise InvalidFieldError if rows name a derived field, but not the field that it is computed from."""
        for rule in self.derived:
            if rule.field in names and not self._named(rule.source, names):
                reason = f"is derived from {rule.source!r}, which the rows do not name; name it, or leave this out"
                raise InvalidFieldError(self.spec.name, rule.field, reason)

    def expected(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values that a row must have, by the names of the stored fields."""
        for name in row:
            self.refuse_order(name)
        expected: dict[str, Value] = {}
        for name, value in row.items():
            known = self.aliases.get(name, name)
            if known in expected and not self._same(name, value, expected[known]):
                reason = f"{shown(value)} is not {shown(expected[known])}, and it is {known!r} under its new name"
                raise InvalidFieldError(self.spec.name, name, reason)
            expected[known] = value
        return expected

    def added(self, names: Iterable[str]) -> list[str]:
        """Return the fields that `completed` adds to a row with the given fields, in order."""
        known = {*names}
        added = [twin for name in [*known] if (twin := self.twins.get(name)) is not None and twin not in known]
        known.update(added)
        for rule in self.derived:
            if rule.source in known and rule.field not in known:
                known.add(rule.field)
                added.append(rule.field)
        return added

    def alone(self, verb: Verb, given: object) -> object | None:
        """Return the argument of a verb of one row with the fields that rules add; None if they need the stored row.

        Raises
        ------
        InvalidFieldError
            As `completed` does.
        """
        match verb.effect:
            case Effect.REMOVE:
                return given
            case Effect.PUT | Effect.MERGE | Effect.CHANGE if isinstance(given, Mapping):
                whole = verb.effect is Effect.PUT
                return self.completed(given, whole=whole) if whole or not self.unsupported(given) else None
        return None

    def completed(
        self, row: Mapping[str, Value], *, whole: bool = False, before: Mapping[str, Value] | None = None
    ) -> dict[str, Value]:
        """Return the fields that a write names, with all fields that rules add.

        Parameters
        ----------
        row : mapping
            The fields that it names.
        whole : bool
            Whether the fields that it does not name become null.
        before : mapping, optional
            The row before the write, for derived fields whose source the write does not name.

        Raises
        ------
        InvalidFieldError
            If a value is not the one that the rules give the field.
        """
        full = dict(row)
        for rule in self.renamed:
            if rule.old in full and rule.new in full:
                self._require_equal(rule, full[rule.old], full[rule.new])
            elif rule.old in full:
                full[rule.new] = full[rule.old]
            elif rule.new in full:
                full[rule.old] = full[rule.new]
        for derived in self.derived:
            name = derived.field
            if derived.source in full or whole:
                value = self._value(derived, full.get(derived.source))
                if name not in full:
                    if value is not None or derived.source in full:
                        full[name] = value
                    continue
            elif name not in full:
                continue
            else:
                stored = {} if before is None else before
                value = derived.function.computed(self.current(stored, derived.source)).value
            self._require(derived, full[name], value)
        return full

    def current(self, row: Mapping[str, Value], name: str) -> Value:
        """Return the value of a field in a row as it is stored."""
        name = self.aliases.get(name, name)
        if name in self.computed:
            rule = self._by_field[name]
            return rule.function.computed(self.current(row, rule.source)).value
        return row.get(name)

    def _value(self, rule: Derived, source: Value) -> Value:
        if source is None:
            return None
        checked = check_value(self.spec.name, self.spec.field(rule.source), source)
        value, failed = rule.function.computed(checked)
        if failed and isinstance(rule.function, JsonField) and rule.function.strict:
            path = ", ".join(map(repr, rule.function.path))
            reason = f"{shown(source)} has no {self.spec.field(rule.field).type_text} at ({path}), from which "
            raise InvalidFieldError(self.spec.name, rule.source, f"{reason}{rule.field!r} is derived")
        return value

    def _require(self, rule: Derived, given: Value, value: Value) -> None:
        if not self._same(rule.field, given, value):
            reason = f"{shown(given)} is not {shown(value)}, its value derived from {rule.source!r}; leave it out"
            raise InvalidFieldError(self.spec.name, rule.field, reason)

    def _require_equal(self, rule: Renamed, old: Value, new: Value) -> None:
        checked = None if old is None else check_value(self.spec.name, self.spec.field(rule.old), old)
        if not self._same(rule.new, new, checked):
            reason = f"{shown(new)} is not {shown(old)}, and it is {rule.old!r} under its new name; give one of them"
            raise InvalidFieldError(self.spec.name, rule.new, reason)

    def _same(self, name: str, given: Value, value: Value) -> bool:
        return same(None if given is None else check_value(self.spec.name, self.spec.field(name), given), value)

    def refuse_change(self, name: object) -> None:
        """Raise InvalidFieldError for a derived field, which cannot be changed by itself."""
        rule = self._by_field.get(check_field(self.spec, name).name)
        if rule is not None:
            reason = f"is derived from {rule.source!r}; change that field"
            raise InvalidFieldError(self.spec.name, rule.field, reason)

    def stored(self, columns: Iterable[str]) -> list[str]:
        """Return the stored columns from which columns are computed, each once."""
        return list(dict.fromkeys(map(self._stored, columns)))

    def _stored(self, name: str) -> str:
        name = self.aliases.get(name, name)
        return self._stored(self._by_field[name].source) if name in self.computed else name

    def projector(self, stored: Sequence[str], columns: Iterable[str]) -> Projector:
        """Return a function that computes values of columns from values of the stored columns."""
        places = {name: place for place, name in enumerate(stored)}
        parts = [self._part(name, places) for name in columns]
        return lambda values: tuple([part(values) for part in parts])

    def _part(self, name: str, places: Mapping[str, int]) -> Callable[[Values], Value]:
        name = self.aliases.get(name, name)
        if name not in self.computed:
            place = places[name]
            return lambda values: values[place]
        rule = self._by_field[name]
        source, function = self._part(rule.source, places), rule.function.computed
        return lambda values: function(source(values)).value

    def divided(self, where: Filter | None) -> tuple[Filter | None, Filter | None]:
        """Return the part of a bound filter that stored rows answer, and the part that needs computed values."""
        if where is None:
            return None, None
        parts = where.parts if isinstance(where, And) else (where,)
        stored: list[Filter] = []
        computed: list[Filter] = []
        for part in map(self._aliased, parts):
            (stored if self.computed.isdisjoint(part.fields()) else computed).append(part)
        return conjunction(stored), conjunction(computed)

    def _aliased(self, where: Filter) -> Filter:
        """Return a bound filter with the old names of fields in place of the new ones."""
        if self.aliases.keys().isdisjoint(where.fields()):
            return where
        if isinstance(where, And | Or):
            return replace(where, parts=tuple(map(self._aliased, where.parts)))
        changed = {"field": self.aliases.get(where.field, where.field)}  # type: ignore[attr-defined]  # a leaf has one
        if isinstance(where, FieldComparison):
            changed["other"] = self.aliases.get(where.other, where.other)
        return replace(where, **changed)  # type: ignore[type-var]  # filters are dataclasses

    def predicate(self, where: Filter, stored: Sequence[str]) -> Predicate:
        """Return a function that evaluates the computed part of a filter on the values of stored columns."""
        names = tuple(dict.fromkeys(where.fields()))
        holds, values_of = compile_filter(self.spec, where, names), self.projector(stored, names)
        return lambda values: holds(values_of(values))

    def stored_name(self, name: Name) -> Name | str:
        """Return the stored field of a name; any other argument is returned for the table to reject."""
        return self.aliases.get(name, name) if isinstance(name, str) else name

    def refuse_order(self, name: object, progress: str = "") -> None:
        """Raise InvalidFieldError, with the progress, if rows cannot be found or ordered by a field yet."""
        if name in self.computed:
            reason = f"is being filled{progress}, and has no order and no index until it is ready"
            raise InvalidFieldError(self.spec.name, str(name), f"{reason} (structable migrate status)")


def _in_order(rules: list[Derived]) -> tuple[Derived, ...]:
    ordered: list[Derived] = []
    left = list(rules)
    while left:
        waiting = {rule.field for rule in left}
        ordered += [rule for rule in left if rule.source not in waiting]
        left = [rule for rule in left if rule.source in waiting]
    return tuple(ordered)
