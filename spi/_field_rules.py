"""Rules of a table, which every write and read keeps: fields derived from others, renamed fields, retired tables.

They are part of the specification, so every program keeps them from the schema change on, even if it does not know
them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from ._error_texts import not_a_field, shown
from ._errors import InvalidSpecificationError
from ._field_functions import Cast, FieldFunction, JsonField, Lower, function_from_document, function_to_document
from ._fields import Field

Rule = TypeVar("Rule")


@dataclass(frozen=True, slots=True)
class Derived:
    """A field that always equals a function of another field.

    Parameters
    ----------
    field : str
        The derived field, outside the primary key.
    source : str
        The field that it is computed from.
    function : JsonField, Cast or Lower
        The function.
    ready : bool
        Whether stored rows have the value. Until then reads compute it.
    """

    field: str
    source: str
    function: FieldFunction
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Renamed:
    """Two fields of one type that are always equal.

    Parameters
    ----------
    old, new : str
        The fields, outside the primary key.
    ready : bool
        Whether stored rows have the new field. Until then everything about it is answered from the old one.
    """

    old: str
    new: str
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Retired:
    """Allows reads of a table's specification only, until `set_rules` gives the table other rules.

    Parameters
    ----------
    since : datetime
        An aware time.
    """

    since: dt.datetime

    def __post_init__(self) -> None:
        if not isinstance(self.since, dt.datetime) or self.since.utcoffset() is None:
            raise InvalidSpecificationError(f"since is {shown(self.since)}; it must be an aware datetime")
        object.__setattr__(self, "since", self.since.astimezone(dt.UTC).replace(fold=0))


FieldRule: TypeAlias = Derived | Renamed | Retired


def checked_rules(
    table: str, fields: Mapping[str, Field], key: tuple[str, ...], rules: Iterable[FieldRule], *, merges: bool
) -> tuple[FieldRule, ...]:
    """Return the rules of a table as a tuple.

    Parameters
    ----------
    table : str
        The table's name.
    fields : mapping
        Its fields.
    key : tuple of str
        Its primary key.
    rules : iterable
        The rules.
    merges : bool
        Whether its options merge rows.

    Raises
    ------
    InvalidSpecificationError
        If a rule does not fit.
    """
    if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
        raise _invalid(table, f"rules is {shown(rules)}; it must be a list of Derived, Renamed and Retired")
    given = tuple(rules)
    if not given:
        return ()
    for rule in given:
        if not isinstance(rule, Derived | Renamed | Retired):
            raise _invalid(table, f"{shown(rule)} is not a rule; rules are Derived, Renamed and Retired")
    if any(not isinstance(rule, Retired) for rule in given):
        if not key:
            raise _invalid(table, "rules of fields need a primary key")
        if merges:
            raise _invalid(table, "rules of fields cannot be combined with a merge engine or sequence.field")
    if len(_of(Retired, given)) > 1:
        raise _invalid(table, "the rules retire it twice")
    _check_renamed(table, fields, key, _of(Renamed, given))
    derived = _of(Derived, given)
    _check_derived(table, fields, key, derived, {name for one in _of(Renamed, given) for name in (one.old, one.new)})
    _check_order(table, derived)
    return given


def _check_renamed(table: str, fields: Mapping[str, Field], key: tuple[str, ...], rules: list[Renamed]) -> None:
    seen: set[str] = set()
    for rule in rules:
        names = (rule.old, rule.new)
        for name in names:
            _check_field(table, fields, name)
            if name in key:
                raise _invalid(table, f"the key field {name!r} cannot be renamed; make a new table")
            if name in seen:
                raise _invalid(table, f"{name!r} is renamed twice")
            seen.add(name)
        old, new = (fields[name] for name in names)
        if old.type_text != new.type_text:
            raise _invalid(table, f"{rule.old!r} is {old.type_text} and its new name {rule.new!r} {new.type_text}")
        _check_ready(table, rule.ready)


def _check_derived(
    table: str, fields: Mapping[str, Field], key: tuple[str, ...], rules: list[Derived], renamed: set[str]
) -> None:
    seen: set[str] = set()
    for rule in rules:
        for name in (rule.field, rule.source):
            _check_field(table, fields, name)
        if rule.field in key:
            raise _invalid(table, f"the key field {rule.field!r} cannot be derived")
        if rule.field in seen or rule.field in renamed:
            raise _invalid(table, f"{rule.field!r} is subject to two rules")
        seen.add(rule.field)
        if not isinstance(rule.function, JsonField | Cast | Lower):
            raise _invalid(table, f"{shown(rule.function)} is not a function; functions are JsonField, Cast and Lower")
        misfit = rule.function.misfit(fields[rule.source], fields[rule.field])
        if misfit is not None:
            raise _invalid(table, f"derived field {rule.field!r}: {misfit}")
        _check_ready(table, rule.ready)


def _check_order(table: str, rules: list[Derived]) -> None:
    sources = {rule.field: rule.source for rule in rules}
    for start in sources:
        name = start
        for _ in sources:
            name = sources.get(name, "")
        if name in sources:
            raise _invalid(table, f"derived field {start!r} is computed from itself")


def _check_field(table: str, fields: Mapping[str, Field], name: object) -> None:
    if not isinstance(name, str) or name not in fields:
        raise _invalid(table, f"a rule names {shown(name)}, which {not_a_field(fields)}")


def _check_ready(table: str, ready: object) -> None:
    if not isinstance(ready, bool):
        raise _invalid(table, f"ready is {shown(ready)}; it must be True or False")


def _of(kind: type[Rule], rules: Iterable[object]) -> list[Rule]:
    return [rule for rule in rules if isinstance(rule, kind)]


def _invalid(table: str, problem: str) -> InvalidSpecificationError:
    return InvalidSpecificationError(f"table {table!r}: {problem}")


def named_fields(rules: Iterable[FieldRule]) -> set[str]:
    """Return the fields that rules name."""
    names: set[str] = set()
    for rule in rules:
        match rule:
            case Derived(field, source):
                names |= {field, source}
            case Renamed(old, new):
                names |= {old, new}
    return names


def retired_since(rules: Iterable[FieldRule]) -> dt.datetime | None:
    """Return when a table with these rules was retired; None if it is not."""
    return next((rule.since for rule in rules if isinstance(rule, Retired)), None)


def rule_to_document(rule: FieldRule) -> dict[str, object]:
    """Return a rule as a JSON document: its kind, and its parameters by their names."""
    match rule:
        case Derived(field, source, function, ready):
            made = function_to_document(function)
            return {"kind": "derived", "field": field, "source": source, "function": made, "ready": ready}
        case Renamed(old, new, ready):
            return {"kind": "renamed", "old": old, "new": new, "ready": ready}
        case Retired(since):
            return {"kind": "retired", "since": since.isoformat()}


def rule_from_document(document: object) -> FieldRule:
    """Build a rule from its document.

    Raises
    ------
    InvalidSpecificationError
        If its kind is unknown, or a parameter does not fit.
    """
    parts = dict(document) if isinstance(document, Mapping) else {}
    kind = parts.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidSpecificationError(
            f"{shown(document)} is a rule of a kind that this version of structable does not know; it knows "
            f"{', '.join(_KINDS)}; use a newer one"
        )
    if kind == "derived":
        parts["function"] = function_from_document(parts.get("function"))
    try:
        if isinstance(parts.get("since"), str):
            parts["since"] = dt.datetime.fromisoformat(parts["since"])
        return _KINDS[kind](**parts)
    except (TypeError, ValueError) as error:
        raise InvalidSpecificationError(f"the rule {shown(document)}: {error}") from None


_KINDS: Final[Mapping[str, type[FieldRule]]] = {"derived": Derived, "renamed": Renamed, "retired": Retired}


def rules_digest(rules: Iterable[FieldRule]) -> str:
    """Return a digest of the rules that affect writes, empty without any; `ready` and `Retired` affect none."""
    documents = [rule_to_document(rule) for rule in rules if not isinstance(rule, Retired)]
    if not documents:
        return ""
    for document in documents:
        del document["ready"]
    texts = sorted(json.dumps(document, sort_keys=True) for document in documents)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
