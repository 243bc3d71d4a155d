"""Functions generated for each record class: from a record to its row, and from a row to its record."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from structable.datasets.errors import RecordShapeError, RecordTypeError, SchemaMissingError
from structable.spi import InvalidFieldError, Row, Value
from structable.spi.authors import shown

from .annotations import Coding, Record, RecordField
from .documents import Document

R = TypeVar("R", bound=Record)

_MISFITS = (KeyError, ValueError, TypeError, RecursionError)
"""The errors that a reader raises for a value that does not fit."""
_MOST_KEYWORDS = 14
"""The maximum number of keyword arguments of a call: CPython passes more in a dict, which takes 1.0 us, not 0.25."""


class Codec:
    """Converts values between a record class and the rows of a table.

    Parameters
    ----------
    table : str
        The table's name, for messages.
    record_type : type
        The record class.
    fields : mapping
        Its fields by name.
    key : tuple of str
        The key fields.
    """

    def __init__(
        self, table: str, record_type: type[Record], fields: Mapping[str, RecordField], key: tuple[str, ...]
    ) -> None:
        self.table = table
        self.record_type = record_type
        self.fields = fields
        self.key = key
        self.documents = {
            name: self._document(name, one) for name, one in fields.items() if one.coding is Coding.DOCUMENT
        }
        self.coded_key = any(fields[name].coding is not Coding.PLAIN for name in key)
        self.encode: Callable[[object], dict[str, Value]] = self._encoder()
        """Returns the row of a record.

        Raises
        ------
        RecordTypeError
            If it is not an instance of the class.
        InvalidFieldError, DocumentError
            If a value does not fit its field in a way that the store does not check.
        """

    def _document(self, name: str, one: RecordField) -> Document:
        try:
            return Document(self.table, name, one.type)
        except TypeError as error:
            raise RecordTypeError(f"{self.record_type.__name__}.{name} cannot be a document: {error}") from error

    def encode_key(self, key: tuple[object, ...]) -> tuple[Value, ...]:
        """Return the stored form of a key, a tuple in key order."""
        if not isinstance(key, tuple):
            raise InvalidFieldError(self.table, "key", f"{key!r} is not a tuple in key order")
        if self.coded_key and len(key) == len(self.key):
            return tuple(map(_stored, key))
        return key  # type: ignore[return-value] # the store checks it

    def encode_value(self, name: str, value: object) -> Value:
        """Return the stored form of a field's value from a key, a filter or a comparison."""
        one = self.fields.get(name)
        if one is None or value is None:
            return value  # type: ignore[return-value] # the store checks it
        if one.coding is Coding.DOCUMENT:
            return self.documents[name].encode(value)
        return _stored(value)

    def encode_field(self, name: str, value: object) -> Value:
        """Return the stored form of a new value of a field, which must be valid in a record.

        Raises
        ------
        InvalidFieldError, DocumentError
            If it does not fit.
        """
        one = self.fields.get(name)
        if one is None:
            raise InvalidFieldError(self.table, name, f"{self.record_type.__name__} has no such field")
        if value is None:
            self._null(name)
            return None
        return self._coder(name)(value)

    def decoder(self, row_type: type[Row], columns: tuple[str, ...], other: Callable[[Row], R]) -> Callable[[Row], R]:
        """Return the function that makes records of rows of this class; it gives any other row to `other`.

        Raises
        ------
        SchemaMissingError
            If the columns lack a field.
        """
        lacking = [f"{self.table}.{name}" for name in self.fields if name not in columns]
        if lacking:
            raise SchemaMissingError([], lacking)
        names = {name: f"v{position}" for position, name in enumerate(columns)}
        context: dict[str, Any] = {"row_type": row_type, "other": other, "explain": self._explain, "misfits": _MISFITS}
        lines = [line for name in self.fields for line in self._reading(name, names[name], context)]
        source = [
            "def decode(row):",
            "    if type(row) is not row_type: return other(row)",
            # The same as `astuple` without a call, which is 7 % of a scan.
            f"    {', '.join(names.values())}, = row._values",
            *(["    try:", *lines, "    except misfits:", "        explain(row)"] if lines else []),
            f"    return {self._construction(names, context)}",
        ]
        return _compiled(source, "decode", context)

    def _reading(self, name: str, value: str, context: dict[str, Any]) -> list[str]:
        """Return the lines that turn a row's value into a record's."""
        one = self.fields[name]
        read = []
        if one.coding is Coding.ENUMERATION:
            context[f"of_{value}"] = {member.value: member for member in one.type}
            read = [f"{value} = of_{value}[{value}]"]
        elif one.coding is not Coding.PLAIN:
            context[f"of_{value}"] = self._reader(name)
            read = [f"{value} = of_{value}({value})"]
        if name in self.key:  # never null
            return [f"        {line}" for line in read]
        if one.optional:
            return [f"        if {value} is not None: {line}" for line in read]
        if one.has_default:
            context[f"default_{value}"] = one.default
        null = f"{value} = default_{value}()" if one.has_default else "explain(row)"
        return [f"        if {value} is None: {null}", *(f"        else: {line}" for line in read)]

    def _construction(self, names: Mapping[str, str], context: dict[str, Any]) -> str:
        """Return the expression of a record of these values.

        CPython 3.11 calls a class whose metaclass is written in Python with a tuple and a dict. `replace` takes a
        quarter of the time.
        """
        given = [f"{name}={names[name]}" for name in self.fields]
        if hasattr(self.record_type, "__post_init__"):  # which must see all values
            context["record_type"] = self.record_type
            return f"record_type({', '.join(given)})"
        context["replace"] = msgspec.structs.replace
        context["blank"] = self.record_type(**dict.fromkeys(self.fields))
        made = "blank"
        for begin in range(0, len(given), _MOST_KEYWORDS):
            made = f"replace({made}, {', '.join(given[begin : begin + _MOST_KEYWORDS])})"
        return made

    def _encoder(self) -> Callable[[object], dict[str, Value]]:
        context: dict[str, Any] = {"record_type": self.record_type, "refuse": self._refuse, "null": self._null}
        lines: list[str] = []
        items: list[str] = []
        for position, (name, one) in enumerate(self.fields.items()):
            coded = one.coding is not Coding.PLAIN
            if not coded and (one.optional or name in self.key):  # the store checks that a key has no null
                items.append(f"{name!r}: record.{name}")
                continue
            value = f"v{position}"
            context[f"code_{value}"] = self._coder(name)
            coding = [f"{value} = code_{value}({value})"] if coded else []
            lines.append(f"    {value} = record.{name}")
            if one.optional:
                lines += [f"    if {value} is not None: {line}" for line in coding]
            else:
                lines += [f"    if {value} is None: null({name!r})", *(f"    {line}" for line in coding)]
            items.append(f"{name!r}: {value}")
        source = [
            "def encode(record):",
            "    if not isinstance(record, record_type): refuse(record)",
            *lines,
            f"    return {{{', '.join(items)}}}",
        ]
        return _compiled(source, "encode", context)

    def _refuse(self, record: object) -> NoReturn:
        raise RecordTypeError(f"{shown(record)} is not a {self.record_type.__name__}")

    def _null(self, name: str) -> None:
        if not self.fields[name].optional:
            raise InvalidFieldError(self.table, name, f"None is not a value of {self.record_type.__name__}.{name}")

    def _coder(self, name: str) -> Callable[[Any], Value]:
        one = self.fields[name]
        if one.coding is Coding.DOCUMENT:
            return self.documents[name].encode
        if one.coding is Coding.PLAIN:
            return lambda value: value
        wanted: Any = one.type

        def refuse(value: object) -> NoReturn:
            raise InvalidFieldError(self.table, name, f"{shown(value)} is not a {wanted.__name__}")

        if one.coding is Coding.UUID:
            return lambda value: str(value) if isinstance(value, uuid.UUID) else refuse(value)
        return lambda value: value.value if isinstance(value, wanted) else refuse(value)

    def _reader(self, name: str) -> Callable[[Any], Any]:
        one = self.fields[name]
        if one.coding is Coding.ENUMERATION:
            return {member.value: member for member in one.type}.__getitem__
        if one.coding is Coding.UUID:
            return uuid.UUID
        if one.coding is Coding.DOCUMENT:
            return self.documents[name].decode
        return lambda value: value

    def _explain(self, row: Row) -> NoReturn:
        """Raise the error of the first field that does not fit."""
        for name, one in self.fields.items():
            value = row[name]
            if value is None:
                if not one.optional and not one.has_default:
                    reason = f"it is null, and {self.record_type.__name__}.{name} has no default"
                    raise RecordShapeError(self.table, row.key, name, reason) from None
                continue
            try:
                self._reader(name)(value)
            except _MISFITS as error:
                problem = "is not a member" if isinstance(error, KeyError) else f"does not fit: {error}"
                wanted = getattr(one.type, "__name__", str(one.type))
                raise RecordShapeError(self.table, row.key, name, f"{shown(value)} {problem} ({wanted})") from None
        raise AssertionError("every field fits")


def _compiled(source: list[str], name: str, context: dict[str, Any]) -> Callable[[Any], Any]:
    exec("\n".join(source), context)  # noqa: S102 - of names that the class's fields have
    function: Callable[[Any], Any] = context[name]
    return function


def _stored(value: object) -> Value:
    """Return the stored form of a value that is no document."""
    if isinstance(value, enum.Enum):
        kept: Value = value.value
        return kept
    return str(value) if isinstance(value, uuid.UUID) else value  # type: ignore[return-value] # the store checks it
