"""Translates a class's annotations: the type of each field, and how its values are kept."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, dataclass_transform

import msgspec

from structable.datasets.errors import RecordTypeError
from structable.spi import Field, FieldType
from structable.spi.authors import named_class, own_class


class _TypeMark(enum.Enum):
    BYTE = "Byte"
    SHORT = "Short"
    INT = "Int"
    SINGLE = "Single"
    LOCAL = "Local"
    JSON = "Json"

    def __repr__(self) -> str:
        return self.value


Byte = _TypeMark.BYTE
"""`Annotated[int, Byte]`: a field of 8 bits; also on an enumeration of integers."""
Short = _TypeMark.SHORT
"""`Annotated[int, Short]`: a field of 16 bits."""
Int = _TypeMark.INT
"""`Annotated[int, Int]`: a field of 32 bits."""
Single = _TypeMark.SINGLE
"""`Annotated[float, Single]`: a field of 32 bits."""
Local = _TypeMark.LOCAL
"""`Annotated[datetime, Local]`: a timestamp without a zone."""
Json = _TypeMark.JSON
"""`Annotated[X, Json]`: a JSON document of any type X that msgspec can code."""


@dataclasses.dataclass(frozen=True, slots=True)
class Digits:
    """`Annotated[Decimal, Digits(10, 2)]`: a decimal field.

    Parameters
    ----------
    precision, scale : int
        At most 38 digits, and how many of them follow the point.
    """

    precision: int
    scale: int


class _RecordMeta(msgspec.StructMeta):
    """Makes each subclass frozen and keyword-only: msgspec does not inherit these options."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object], **config: Any) -> type:  # noqa: ANN401
        wanted = {"frozen": True, "kw_only": True}
        for option, value in wanted.items():
            if config.get(option, value) != value:
                raise RecordTypeError(
                    f"{name}: records are frozen and keyword-only; {option}={config[option]!r} is not"
                )
        made: type = super().__new__(cls, name, bases, namespace, **{**config, **wanted})
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, metaclass=_RecordMeta):
    """The base of record classes: immutable values with named, typed fields, given by keyword.

    A field with a default may be left out, and a null in the table reads as the default. Equal by content; picklable.
    """


class Coding(enum.Enum):
    """The stored form of a field's values."""

    PLAIN = enum.auto()
    ENUMERATION = enum.auto()
    UUID = enum.auto()
    DOCUMENT = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record class.

    Parameters
    ----------
    field : Field
        The table's field.
    coding : Coding
        The stored form of the values.
    type : object
        The annotation without None, and without marks.
    optional : bool
        Whether it may be None.
    has_default : bool
        Whether it may be left out; `default()` is then its value.
    default : callable
        Returns the default.
    """

    field: Field
    coding: Coding
    type: Any
    optional: bool
    has_default: bool
    default: Callable[[], object]


_PLAIN: dict[object, FieldType] = {
    bool: FieldType.BOOLEAN,
    str: FieldType.STRING,
    bytes: FieldType.BYTES,
    float: FieldType.DOUBLE,
    int: FieldType.LONG,
    own_class(dt.date): FieldType.DATE,
    own_class(dt.datetime): FieldType.TIMESTAMP,
}
_MARKED: dict[tuple[object, _TypeMark], FieldType] = {
    (int, Byte): FieldType.BYTE,
    (int, Short): FieldType.SHORT,
    (int, Int): FieldType.INT,
    (float, Single): FieldType.FLOAT,
    (own_class(dt.datetime), Local): FieldType.TIMESTAMP_NTZ,
}
_CONTAINERS = (dict, list, tuple, set, frozenset)


def fields_of(record_type: type[Record]) -> dict[str, RecordField]:
    """Return the fields of a record class by name, in the order of the class.

    Raises
    ------
    RecordTypeError
        If an annotation has no field type; the message names class and field.
    """
    if not (isinstance(record_type, type) and issubclass(record_type, Record)):
        raise RecordTypeError(f"{record_type!r} is not a subclass of Record")
    try:
        found = msgspec.structs.fields(record_type)
    except (NameError, TypeError) as error:
        raise RecordTypeError(f"{record_type.__name__}: its annotations cannot be resolved: {error}") from error
    return {one.name: _record_field(record_type, one) for one in found}


def _record_field(record_type: type, info: msgspec.structs.FieldInfo) -> RecordField:
    where = f"{record_type.__name__}.{info.name}"
    annotation, marks = _without_marks(info.type)
    annotation, optional = _without_none(where, annotation, marks)
    annotation, inner = _without_marks(annotation)
    marks |= inner
    field, coding = _field(where, info.name, annotation, marks)
    if annotation in (Any, object) and info.default is None:  # None is one of its values, and what a null reads as
        optional = True
    return RecordField(field, coding, annotation, optional, not info.required, _default(info))


def _default(info: msgspec.structs.FieldInfo) -> Callable[[], object]:
    if info.default_factory is not msgspec.NODEFAULT:
        return typing.cast("Callable[[], object]", info.default_factory)
    value = info.default
    return lambda: value


def _without_marks(annotation: Any) -> tuple[Any, frozenset[object]]:  # noqa: ANN401 - annotations have no type
    if typing.get_origin(annotation) is not Annotated:
        return annotation, frozenset()
    inner, *metadata = typing.get_args(annotation)
    marks = frozenset(one for one in metadata if isinstance(one, _TypeMark | Digits))
    others = [one for one in metadata if not isinstance(one, _TypeMark | Digits)]
    return (Annotated[(inner, *others)] if others else inner), marks


def _without_none(where: str, annotation: Any, marks: frozenset[object]) -> tuple[Any, bool]:  # noqa: ANN401
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    parts = typing.get_args(annotation)
    others = [one for one in parts if one is not type(None)]
    optional = len(others) < len(parts)
    if len(others) == 1:
        return others[0], optional
    if Json in marks:
        return typing.Union[tuple(others)], optional  # noqa: UP007 - of a computed tuple
    raise RecordTypeError(f"{where}: a union of {len(others)} types has no field type; mark a document with Json")


def _field(where: str, name: str, annotation: Any, marks: frozenset[object]) -> tuple[Field, Coding]:  # noqa: ANN401
    bare = named_class(typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation)
    if Json in marks:
        _no_other_mark(where, marks - {Json})
        return Field.string(name), Coding.DOCUMENT
    if bare is decimal.Decimal:
        return _decimal(where, name, marks), Coding.PLAIN
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return _enumeration(where, name, bare, marks)
    if marks:
        (mark, *others) = marks
        _no_other_mark(where, frozenset(others))
        kind = _MARKED.get((bare, typing.cast(_TypeMark, mark)))
        if kind is None:
            raise RecordTypeError(f"{where}: {mark!r} does not go with {_shown(bare)}")
        return Field(name, kind), Coding.PLAIN
    if isinstance(bare, typing.Hashable) and bare in _PLAIN:
        return Field(name, _PLAIN[bare]), Coding.PLAIN
    if bare is uuid.UUID:
        return Field.string(name), Coding.UUID
    if _is_document(bare):
        return Field.string(name), Coding.DOCUMENT
    raise RecordTypeError(f"{where}: {_shown(bare)} has no field type; mark a document with Annotated[..., Json]")


def _no_other_mark(where: str, marks: frozenset[object]) -> None:
    if marks:
        raise RecordTypeError(f"{where}: {', '.join(map(repr, marks))} is one mark too many")


def _decimal(where: str, name: str, marks: frozenset[object]) -> Field:
    match list(marks):
        case [Digits(precision=precision, scale=scale)]:
            return Field.decimal(name, precision, scale)
    raise RecordTypeError(f"{where}: a Decimal needs its digits: Annotated[Decimal, Digits(precision, scale)]")


def _enumeration(where: str, name: str, members: type[enum.Enum], marks: frozenset[object]) -> tuple[Field, Coding]:
    values = [member.value for member in members]
    if not values or issubclass(members, enum.Flag):
        raise RecordTypeError(f"{where}: {members.__name__} is not an enumeration of strings or integers")
    if all(isinstance(value, str) for value in values):
        _no_other_mark(where, marks)
        return Field.string(name), Coding.ENUMERATION
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        (mark, *others) = marks or {None}
        _no_other_mark(where, frozenset(others))
        kind = FieldType.LONG if mark is None else _MARKED.get((int, typing.cast(_TypeMark, mark)))
        if kind is not None:
            return Field(name, kind), Coding.ENUMERATION
    raise RecordTypeError(f"{where}: {members.__name__} is not an enumeration of strings, or of integers of its size")


def _is_document(annotation: Any) -> bool:  # noqa: ANN401
    origin = typing.get_origin(annotation) or annotation
    if not isinstance(origin, type):
        return False
    return (
        issubclass(origin, (*_CONTAINERS, msgspec.Struct))
        or dataclasses.is_dataclass(origin)
        or typing.is_typeddict(origin)
        or hasattr(origin, "__attrs_attrs__")
    )


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
