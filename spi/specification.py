"""Table specifications: a table's name, fields, primary key and indexes, checked when built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn

from .errors import InvalidSpecificationError
from .fields import Field, FieldType
from .showing import shown

__all__ = ["MAX_KEY_FIELDS", "TableSpecification"]

MAX_KEY_FIELDS = 16
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}\Z")
_NAME_RULE = "a name is a letter followed by at most 47 letters, digits or underscores (ASCII)"


class TableSpecification:
    """What a table looks like; immutable and equal by content.

    Parameters
    ----------
    name : str
        The table's name, `[A-Za-z][A-Za-z0-9_]{0,47}`. It keeps its case, and no two tables may differ by case alone.
    fields : iterable of Field
        At least one; no two names may differ by case alone.
    primary_key : iterable of str
        1 to 16 distinct key-able fields, in key order.
    indexes : iterable of str, optional
        Distinct key-able fields outside the key, each indexed on its own.
    options : mapping of str to str, optional
        Table options.

    Raises
    ------
    InvalidSpecificationError
        When anything breaks these rules; it names what is wrong and what is allowed.
    """

    __slots__ = ("_by_name", "_fields", "_indexes", "_name", "_options", "_primary_key")

    def __init__(
        self,
        name: str,
        fields: Iterable[Field],
        primary_key: Iterable[str],
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._name = _checked_name(name, "table")
        self._fields = _checked_fields(self._name, fields)
        self._by_name = {field.name: field for field in self._fields}
        self._primary_key = self._checked_key_fields(primary_key, "primary_key")
        if not 1 <= len(self._primary_key) <= MAX_KEY_FIELDS:
            self._invalid(f"the primary key has {len(self._primary_key)} fields; allowed are 1 to {MAX_KEY_FIELDS}")
        self._indexes = self._checked_key_fields(indexes, "indexes")
        for index in self._indexes:
            if index in self._primary_key:
                self._invalid(f"index {index!r} is a field of the primary key; only other fields can be indexed")
        self._options = self._checked_options({} if options is None else options)

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, in the order given."""
        return self._fields

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key fields, in key order."""
        return self._primary_key

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of the indexed fields."""
        return self._indexes

    @property
    def options(self) -> Mapping[str, str]:
        """Table options (read-only)."""
        return self._options

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of all fields, in the order given."""
        return tuple(self._by_name)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields outside the primary key, in the order given."""
        return tuple(field for field in self._fields if field.name not in self._primary_key)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of the primary key, in key order."""
        return tuple(self._by_name[name] for name in self._primary_key)

    def field(self, name: str) -> Field:
        """Return the field of this name.

        Raises
        ------
        KeyError
            If the table has no such field.
        """
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        """Tell whether the table has a field of this name."""
        try:
            return name in self._by_name
        except TypeError:  # it has no hash, and is no name
            return False

    def __eq__(self, other: object) -> bool:
        """Compare by content; the order of fields and of indexes counts."""
        if not isinstance(other, TableSpecification):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self._name, self._fields, self._primary_key, self._indexes))

    def __repr__(self) -> str:
        return (
            f"TableSpecification({self._name!r}, fields={list(self._fields)!r}, "
            f"primary_key={list(self._primary_key)!r}, indexes={list(self._indexes)!r}, "
            f"options={dict(self._options)!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return TableSpecification, (*self._content()[:4], dict(self._options))

    def _content(self) -> tuple[str, tuple[Field, ...], tuple[str, ...], tuple[str, ...], dict[str, str]]:
        return self._name, self._fields, self._primary_key, self._indexes, dict(self._options)

    def _checked_key_fields(self, names: Iterable[str], role: str) -> tuple[str, ...]:
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            self._invalid(f"{role} is {shown(names)}; it must be a list of field names")
        checked = tuple(names)
        for position, name in enumerate(checked):
            if not isinstance(name, str) or name not in self._by_name:
                self._invalid(
                    f"{role} names {shown(name)}, which is not a field; the fields are {', '.join(self._by_name)}"
                )
            if name in checked[:position]:
                self._invalid(f"{role} names {name!r} twice")
            kind = self._by_name[name].type
            if not kind.keyable:
                allowed = ", ".join(t.value for t in FieldType if t.keyable)
                self._invalid(
                    f"{role} names {name!r} of type {kind.value}, which cannot be ordered; allowed are {allowed}"
                )
        return tuple(map(str.__str__, checked))

    def _checked_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        if not isinstance(options, Mapping):
            self._invalid(f"options is {shown(options)}; it must map strings to strings")
        for option, value in options.items():
            if not isinstance(option, str) or not isinstance(value, str):
                self._invalid(f"option {shown(option)}: {shown(value)} must map a string to a string")
        return MappingProxyType({str.__str__(option): str.__str__(value) for option, value in options.items()})

    def _invalid(self, problem: str) -> NoReturn:
        raise InvalidSpecificationError(f"table {self._name!r}: {problem}")


def _checked_name(name: object, role: str) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSpecificationError(f"{role} name {shown(name)} is not allowed: {_NAME_RULE}")
    return str.__str__(name)  # of an enumeration the text


def _checked_fields(table: str, fields: Iterable[Field]) -> tuple[Field, ...]:
    if not isinstance(fields, Iterable):
        raise InvalidSpecificationError(f"table {table!r}: fields is {shown(fields)}; it must be a list of Field")
    checked: list[Field] = []
    seen: dict[str, str] = {}
    for field in fields:
        if not isinstance(field, Field):
            raise InvalidSpecificationError(f"table {table!r}: {shown(field)} is not a Field")
        name = _checked_name(field.name, f"table {table!r}: field")
        twin = seen.get(field.name.lower())
        if twin is not None:
            how = "is there twice" if twin == field.name else f"differs from {twin!r} by case alone"
            raise InvalidSpecificationError(f"table {table!r}: field {field.name!r} {how}")
        seen[name.lower()] = name
        _check_type(table, field)
        checked.append(field if field.name.__class__ is str else replace(field, name=name))
    if not checked:
        raise InvalidSpecificationError(f"table {table!r} has no fields; at least one is needed")
    return tuple(checked)


def _check_type(table: str, field: Field) -> None:
    if not isinstance(field.type, FieldType):
        raise InvalidSpecificationError(f"table {table!r}, field {field.name!r}: {field.type!r} is not a FieldType")
    precision, scale = field.precision, field.scale
    if field.type is not FieldType.DECIMAL:
        if precision is not None or scale is not None:
            raise InvalidSpecificationError(
                f"table {table!r}, field {field.name!r}: only decimal has precision and scale"
            )
        return
    ints = all(isinstance(number, int) and not isinstance(number, bool) for number in (precision, scale))
    if not (ints and precision is not None and scale is not None and 1 <= precision <= 38 and 0 <= scale <= precision):
        raise InvalidSpecificationError(
            f"table {table!r}, field {field.name!r}: decimal({precision!r},{scale!r}) is not allowed; "
            "the precision is 1 to 38, the scale 0 to the precision"
        )
