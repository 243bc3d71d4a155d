"""Table specifications: a table's name, fields, primary key and indexes, checked when built."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from ._error_texts import not_a_field, shown
from ._errors import InvalidFieldError, InvalidSpecificationError
from ._field_rules import FieldRule, checked_rules
from ._fields import Field, FieldType
from ._imports import needing
from ._option_parsing import parse_options
from ._table_options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa

MAX_KEY_FIELDS = 16
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}\Z")
_NAME_RULE = "a name is a letter followed by at most 47 letters, digits or underscores (ASCII)"


class MeaninglessOptions(dict[str, str]):
    """Options that a table got before options meant anything: they are kept, whatever their names."""


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class TableSpecification:
    """A table's schema; immutable, picklable, and equal by content.

    Parameters
    ----------
    name : str
        The table's name, `[A-Za-z][A-Za-z0-9_]{0,47}`. It keeps its case, and no two tables may differ by case alone.
    fields : iterable of Field
        At least one; no two names may differ by case alone. A tuple in the order given.
    primary_key : iterable of str, optional
        1 to 16 distinct key-able fields, in key order. None for a table without a key, whose options then name its
        `write-mode`.
    indexes : iterable of str, optional
        Distinct key-able fields outside the key, each indexed on its own. The order counts for equality.
    options : mapping of str to str, optional
        Table options; read-only. docs/table-types.md lists them; names that begin with `user.` mean nothing.
    rules : iterable of Derived, Renamed and Retired, optional
        The rules that always hold between fields, whichever program writes. Their fields are fields of the table.

    Attributes
    ----------
    table_options : TableOptions
        The meaning of the options.

    Raises
    ------
    InvalidSpecificationError
        If an argument breaks these rules; the message names the problem and the allowed values.
    """

    name: str
    fields: tuple[Field, ...]
    primary_key: tuple[str, ...]
    indexes: tuple[str, ...]
    options: Mapping[str, str] = dataclasses.field(hash=False)
    rules: tuple[FieldRule, ...]
    table_options: TableOptions = dataclasses.field(init=False, compare=False)
    _by_name: dict[str, Field] = dataclasses.field(init=False, compare=False)
    _meaningless: bool = dataclasses.field(init=False, compare=False)

    # Not generated: it takes any iterables, and keeps tuples.
    def __init__(
        self,
        name: str,
        fields: Iterable[Field],
        primary_key: Iterable[str] = (),
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        rules: Iterable[FieldRule] = (),
    ) -> None:
        name = _checked_name(name, "table")
        checked = _checked_fields(name, fields)
        by_name = {field.name: field for field in checked}
        key = _checked_key_fields(name, by_name, primary_key, "primary_key")
        checked_options = _checked_options(name, {} if options is None else options)
        if len(key) > MAX_KEY_FIELDS or not (key or "write-mode" in checked_options):
            problem = f"the primary key has {len(key)} fields; allowed are 1 to {MAX_KEY_FIELDS}"
            _invalid(name, f"{problem}, and none with the option write-mode, append-only, change-log or log")
        indexed = _checked_key_fields(name, by_name, indexes, "indexes")
        for index in indexed:
            if index in key:
                _invalid(name, f"index {index!r} is a field of the primary key; only other fields can be indexed")
        meaningless = isinstance(options, MeaninglessOptions)
        meaning = TableOptions() if meaningless else parse_options(name, by_name, key, checked_options)
        if meaning.log and indexed:
            _invalid(name, f"index {indexed[0]!r}: a log keeps no rows to be found by an index")
        kept = checked_rules(name, by_name, key, rules, merges=meaning.merges)
        attributes = (name, checked, key, indexed, checked_options, kept, meaning, by_name, meaningless)
        for one, value in zip(dataclasses.fields(self), attributes, strict=True):
            object.__setattr__(self, one.name, value)

    @classmethod
    def from_arrow(
        cls,
        name: str,
        schema: pa.Schema | object,
        primary_key: Iterable[str] = (),
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        *,
        rename: Mapping[str, str] | None = None,
    ) -> TableSpecification:
        """Return the specification of a table for the columns of Arrow data, by their names and types.

        docs/data-frames.md has the rules: the field of each Arrow type, and the names of fields for columns whose names
        a field must not have.

        Parameters
        ----------
        name : str
            The table's name.
        schema : pyarrow.Schema
            The schema, or an object that has or exports one: a pyarrow.Table, a frame of pandas or Polars, a scan.
        primary_key, indexes, options : optional
            As in the constructor; keys and indexes name fields. Without a key the table gets the option `write-mode`
            `append-only`, unless the options have one.
        rename : mapping of str to str, optional
            The names of fields for some columns.

        Raises
        ------
        InvalidSpecificationError
            As the constructor does, and for columns of types that no field takes.
        """
        with needing("Arrow schemas need", "arrow"):
            from ._arrow_data import schema_of
            from ._arrow_fields import fields_of_schema
        # A string is not a list of names: the constructor refuses it.
        key = primary_key if isinstance(primary_key, str) else tuple(primary_key)
        indexed = indexes if isinstance(indexes, str) else tuple(indexes)
        try:
            fields, problems = fields_of_schema(schema_of(name, schema), (*key, *indexed), rename)
        except InvalidFieldError as error:
            raise InvalidSpecificationError(f"table {name!r}: column {error.field!r} {error.reason}") from None
        except ValueError as error:
            raise InvalidSpecificationError(f"table {name!r}: {error}") from None
        if problems:
            raise InvalidSpecificationError(f"table {name!r}: {'; '.join(problems)}")
        kept = dict(options or {})
        if not key:
            kept.setdefault("write-mode", "append-only")
        return cls(name, fields, key, indexed, kept)

    def evolve(self, **changes: Any) -> TableSpecification:  # noqa: ANN401 - the constructor's parameters
        """Return the specification with other values of the named parameters, checked again.

        Raises
        ------
        InvalidSpecificationError
            As the constructor does.
        """
        return TableSpecification(**{**self._arguments(), **changes})

    @property
    def keyless(self) -> bool:
        """Whether the table has no primary key."""
        return not self.primary_key

    @property
    def has_type(self) -> bool:
        """Whether the options mean anything: a merge engine, a change feed, or no primary key."""
        return self.keyless or self.table_options != TableOptions()

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of all fields, in the order given."""
        return tuple(self._by_name)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields outside the primary key, in the order given."""
        return tuple(field for field in self.fields if field.name not in self.primary_key)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of the primary key, in key order."""
        return tuple(self._by_name[name] for name in self.primary_key)

    def field(self, name: str) -> Field:
        """Return the field of this name.

        Raises
        ------
        KeyError
            If the table has no such field.
        """
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the table has a field of this name."""
        try:
            return name in self._by_name
        except TypeError:  # an unhashable object is not a name
            return False

    def __repr__(self) -> str:
        name, *others = self._arguments().items()
        shown_parts = [f"{key}={value!r}" for key, value in others if value or key != "rules"]
        return f"TableSpecification({name[1]!r}, {', '.join(shown_parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        return TableSpecification, tuple(self._arguments().values())

    def _arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, as lists and dictionaries."""
        kept = MeaninglessOptions if self._meaningless else dict
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.init}
        return {
            name: kept(value) if isinstance(value, Mapping) else value if isinstance(value, str) else list(value)
            for name, value in values.items()
        }


def _invalid(table: str, problem: str) -> NoReturn:
    raise InvalidSpecificationError(f"table {table!r}: {problem}")


def _checked_key_fields(
    table: str, fields: Mapping[str, Field], names: Iterable[str], parameter: str
) -> tuple[str, ...]:
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        _invalid(table, f"{parameter} is {shown(names)}; it must be a list of field names")
    checked = tuple(names)
    for position, name in enumerate(checked):
        if not isinstance(name, str) or name not in fields:
            _invalid(table, f"{parameter} names {shown(name)}, which {not_a_field(fields)}")
        if name in checked[:position]:
            _invalid(table, f"{parameter} names {name!r} twice")
        kind = fields[name].type
        if not kind.keyable:
            allowed = ", ".join(one.value for one in FieldType if one.keyable)
            problem = f"{parameter} names {name!r} of type {kind.value}, which cannot be ordered; allowed are {allowed}"
            _invalid(table, problem)
    return tuple(map(str.__str__, checked))


def _checked_options(table: str, options: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(options, Mapping):
        _invalid(table, f"options is {shown(options)}; it must map strings to strings")
    for option, value in options.items():
        if not isinstance(option, str) or not isinstance(value, str):
            _invalid(table, f"option {shown(option)} is {shown(value)}; names and values of options must be strings")
    return MappingProxyType({str.__str__(option): str.__str__(value) for option, value in options.items()})


def _checked_name(name: object, role: str) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSpecificationError(f"{role} name {shown(name)} is not allowed: {_NAME_RULE}")
    return str.__str__(name)  # the plain text of a string enumeration


def _checked_fields(table: str, fields: Iterable[Field]) -> tuple[Field, ...]:
    if not isinstance(fields, Iterable):
        _invalid(table, f"fields is {shown(fields)}; it must be a list of Field")
    checked: list[Field] = []
    seen: dict[str, str] = {}
    for field in fields:
        if not isinstance(field, Field):
            _invalid(table, f"{shown(field)} is not a Field")
        name = _checked_name(field.name, f"table {table!r}: field")
        twin = seen.get(field.name.lower())
        if twin is not None:
            how = "appears twice" if twin == field.name else f"differs from {twin!r} by case alone"
            _invalid(table, f"field {field.name!r} {how}")
        seen[name.lower()] = name
        _check_type(table, field)
        checked.append(field if field.name.__class__ is str else dataclasses.replace(field, name=name))
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
