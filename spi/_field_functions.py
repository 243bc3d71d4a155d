"""The functions of derived fields: each computes a value of another field's, in Python, the same on every store."""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, TypeAlias

from ._error_texts import shown
from ._errors import InvalidSpecificationError
from ._fields import Field, FieldType, field_of_type, widens
from ._value_checks import check_value
from ._values import MAX_KEY_SIZE, Value, is_storable, value_size

_JSON_TYPES = frozenset(
    {FieldType.BOOLEAN, FieldType.STRING, FieldType.FLOAT, FieldType.DOUBLE, FieldType.DECIMAL}
    | {kind for kind in FieldType if kind.integer_bits}
)
_MOST_LEVELS = 200
"""The maximum depth of a document: Python's own limit depends on the caller's stack, a result must not."""
_MOST_DIGITS = 400
"""The maximum number of digits: no type holds more, and Python's own limit is a setting of the process."""
_MANY_DIGITS = re.compile(rf"[0-9]{{{_MOST_DIGITS + 1}}}")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Computed(NamedTuple):
    """The result of a function for one value.

    Parameters
    ----------
    value : Value
        As a field of the function's type keeps it.
    failed : bool
        Whether it is null because the source holds nothing that fits: such rows are counted.
    """

    value: Value
    failed: bool = False


_NULL: Final = Computed(None)
_FAILED: Final = Computed(None, failed=True)


@dataclass(frozen=True, slots=True)
class JsonField:
    """A value of a JSON document in a STRING field.

    The result is null, and has failed, if the text is not JSON, has nothing at the path or a value of another JSON
    type, or one that the type or an index cannot hold: a number out of range, a NUL or a lone surrogate, over 2,000
    bytes. `1.0` is not an integer, `1` is a DOUBLE, and of equal members the last counts. A document of over 200 levels
    counts as invalid. A null, of the field or at the path, is null and has not failed.

    Parameters
    ----------
    path : tuple of str or int
        The members and the elements (from 0) that lead to the value; at least one.
    type : FieldType or str
        BOOLEAN, an integer, FLOAT, DOUBLE, STRING, or a decimal as text: `decimal(10,2)`.
    strict : bool
        Whether a write with a document that fails is an `InvalidFieldError`.
    """

    path: tuple[str | int, ...]
    type: FieldType | str
    strict: bool = field(default=False, kw_only=True)
    _steps: tuple[tuple[object, str | int], ...] = field(init=False, repr=False, compare=False)
    _bound: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, tuple | list) or not self.path:
            raise InvalidSpecificationError(
                f"the path of a JSON field is {shown(self.path)}; it must be a tuple of names and numbers"
            )
        for step in self.path:
            named = isinstance(step, str) and is_storable(step)
            if not named and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
                raise InvalidSpecificationError(
                    f"{shown(step)} in the path of a JSON field is neither a member's name nor a number from 0"
                )
        if not isinstance(self.strict, bool):
            raise InvalidSpecificationError(f"strict is {shown(self.strict)}; it must be True or False")
        object.__setattr__(self, "path", tuple(self.path))
        object.__setattr__(self, "_steps", tuple((dict if isinstance(one, str) else list, one) for one in self.path))
        object.__setattr__(self, "type", _plain_type(self.type))
        bits = self.type.integer_bits if isinstance(self.type, FieldType) else 0
        object.__setattr__(self, "_bound", 1 << (bits - 1) if bits else 0)

    def computed(self, value: Value) -> Computed:
        """Return the value that the function computes from a document."""
        if value is None:
            return _NULL
        try:
            found = _document(value, exact=isinstance(self.type, str))
            for container, step in self._steps:
                if found.__class__ is not container:
                    return _FAILED
                found = found[step]  # type: ignore[index]  # a dict or a list
            if found is None:
                return _NULL
            bound = self._bound
            if bound:
                return Computed(found) if found.__class__ is int and -bound <= found < bound else _FAILED
            made = _field(self.type)
            result = check_value("", made, _of_type(found, made.type))
        except (ValueError, LookupError, ArithmeticError):
            return _FAILED
        return _FAILED if made.type.keyable and value_size(made, result) > MAX_KEY_SIZE else Computed(result)

    def misfit(self, source: Field, target: Field) -> str | None:
        """Return the reason why one field cannot be derived from another by this function; None if it can."""
        made = _field(self.type)
        if made.type not in _JSON_TYPES:
            allowed = ", ".join(kind.value for kind in FieldType if kind in _JSON_TYPES)
            return f"JSON has no {made.type_text}; a JSON field is one of {allowed}"
        if source.type is not FieldType.STRING:
            return f"{source.name!r} is {source.type_text}; the document of a JSON field is a string"
        return _not_kept(made, target)


@dataclass(frozen=True, slots=True)
class Cast:
    """A number as a wider one, or an integer or a decimal as its decimal text.

    Parameters
    ----------
    type : FieldType or str
        A wider integer, DOUBLE of a FLOAT, or STRING: "-7", "1.50".
    """

    type: FieldType | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", _plain_type(self.type))

    def computed(self, value: Value) -> Computed:
        """Return the value that the function computes from another value."""
        if value is None or self.type is not FieldType.STRING:
            return Computed(value)
        return Computed(format(value, "f") if isinstance(value, decimal.Decimal) else str(value))

    def misfit(self, source: Field, target: Field) -> str | None:
        """Return the reason why one field cannot be derived from another by this function; None if it can."""
        made = _field(self.type)
        if made.type is FieldType.STRING:
            fits = source.type.integer_bits > 0 or source.type is FieldType.DECIMAL
        else:
            fits = _not_kept(source, made) is None
        if not fits:
            return (
                f"{source.name!r} is {source.type_text} and cannot be cast to {made.type_text}: integers and floats "
                "become wider ones, integers and decimals strings"
            )
        return _not_kept(made, target)


@dataclass(frozen=True, slots=True)
class Lower:
    """A STRING in lower case, by Python's `str.lower`."""

    def computed(self, value: Value) -> Computed:
        """Return a string in lower case."""
        return Computed(value.lower() if isinstance(value, str) else None)

    def misfit(self, source: Field, target: Field) -> str | None:
        """Return the reason why one field cannot be derived from another by this function; None if it can."""
        if source.type is not FieldType.STRING:
            return f"{source.name!r} is {source.type_text}; only a string has a lower case"
        return _not_kept(Field.string(source.name), target)


FieldFunction: TypeAlias = JsonField | Cast | Lower
_KINDS: Final[Mapping[str, type[FieldFunction]]] = {"json-field": JsonField, "cast": Cast, "lower": Lower}


def function_to_document(function: FieldFunction) -> dict[str, object]:
    """Return a function as a JSON document: its kind, and its parameters by their names."""
    match function:
        case JsonField(path, kind):
            strict = {"strict": True} if function.strict else {}
            return {"kind": "json-field", "path": [*path], "type": _field(kind).type_text, **strict}
        case Cast(kind):
            return {"kind": "cast", "type": _field(kind).type_text}
        case Lower():
            return {"kind": "lower"}


def function_from_document(document: object) -> FieldFunction:
    """Build a function from its document.

    Raises
    ------
    InvalidSpecificationError
        If its kind is unknown, or a parameter does not fit.
    """
    parts = dict(document) if isinstance(document, Mapping) else {}
    kind = parts.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidSpecificationError(
            f"{shown(document)} is not a function of a field; this version of structable knows {', '.join(_KINDS)}"
        )
    try:
        return _KINDS[kind](**parts)
    except TypeError as error:
        raise InvalidSpecificationError(f"the function {shown(document)} of a field: {error}") from None


@lru_cache(maxsize=64)
def _field(kind: FieldType | str) -> Field:
    return field_of_type("result", kind)


def _plain_type(kind: FieldType | str) -> FieldType | str:
    """Return a type; a decimal as its text."""
    made = field_of_type("result", kind)
    return made.type_text if made.type is FieldType.DECIMAL else made.type


def _not_kept(made: Field, target: Field) -> str | None:
    same = made.type_text == target.type_text
    return None if same or widens(made, target) else f"{target.type_text} does not hold every {made.type_text}"


class _JsonReal(str):
    """The text of a JSON number that has a point or an exponent."""

    __slots__ = ()


_NO_VALUE: Final = ()
"""An object that fits no type."""


def _document(text: Value, *, exact: bool) -> object:
    """Return a JSON document, its real numbers as texts if `exact`; raises ValueError if the text is not JSON."""
    if not isinstance(text, str):
        raise ValueError(text)
    if len(text) > _MOST_LEVELS:  # a short text has neither many levels nor many digits
        if text.count("[") + text.count("{") > _MOST_LEVELS and _levels(text) > _MOST_LEVELS:
            raise ValueError(text)
        # Python's own functions are six times as fast as ours.
        exact = exact or (len(text) > _MOST_DIGITS and _MANY_DIGITS.search(text) is not None)
    decoder = _EXACT if exact else _FAST
    if text[:1] == "{":  # nearly always; `decode` looks for white space around it, which takes as long as all else
        found, end = decoder.raw_decode(text)
        if end == len(text):
            return found
    return decoder.decode(text)


def _levels(text: str) -> int:
    level = most = 0
    for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        level += 1 if bracket in "[{" else -1
        most = max(most, level)
    return most


def _integer(digits: str) -> object:
    return int(digits) if len(digits) <= _MOST_DIGITS else _NO_VALUE


def _no_json(constant: str) -> NoReturn:
    raise ValueError(constant)


_EXACT = json.JSONDecoder(parse_int=_integer, parse_float=_JsonReal, parse_constant=_no_json)
_FAST = json.JSONDecoder(parse_constant=_no_json)


def _of_type(found: object, kind: FieldType) -> object:
    """Return a JSON value in the form that `check_value` takes for a type; it then rejects other JSON types."""
    if not isinstance(found, float | _JsonReal):
        return found
    if kind is FieldType.DECIMAL:
        return decimal.Decimal(found) if len(str(found)) <= _MOST_DIGITS else _NO_VALUE
    if not kind.floating:
        return _NO_VALUE
    number = float(found)
    return number if number - number == 0 else _NO_VALUE  # 1e999 would be infinite
