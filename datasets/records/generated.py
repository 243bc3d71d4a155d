"""Functions generated per record class: a record to the row that is written, a row to its record."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from structable.datasets.errors import RecordShapeError, RecordTypeError
from structable.spi import InvalidFieldError, Row, Value
from structable.spi.showing import shown

from .annotations import Coding, Record, RecordField
from .documents import Document

__all__ = ["Codec"]

R = TypeVar("R", bound=Record)


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
        self.documents = {
            name: Document(table, name, one.type) for name, one in fields.items() if one.coding is Coding.DOCUMENT
        }
        self.coded_key = any(fields[name].coding is not Coding.PLAIN for name in key)
        self.encode: Callable[[Any], dict[str, Value]] = self._encoder()

    def encode_record(self, record: object) -> dict[str, Value]:
        """Return the row of a record.

        Raises
        ------
        RecordTypeError
            If it is no instance of the class.
        InvalidFieldError, DocumentError
            If a value does not fit its field, as far as the store does not check it.
        """
        if not isinstance(record, self.record_type):
            raise RecordTypeError(f"{shown(record)} is not a {self.record_type.__name__}")
        return self.encode(record)

    def encode_value(self, name: str, value: object) -> Value:
        """Return what the table keeps for a value of a field, as keys, filters and comparisons give it."""
        one = self.fields.get(name)
        if one is None or value is None:
            return value  # type: ignore[return-value] # the store checks it
        if one.coding is Coding.DOCUMENT:
            return self.documents[name].encode(value)
        if isinstance(value, enum.Enum):
            kept: Value = value.value
            return kept
        return str(value) if isinstance(value, uuid.UUID) else value  # type: ignore[return-value] # as above

    def encode_field(self, name: str, value: object) -> Value:
        """Return what the table keeps for a new value of a field; it must be one that a record may have.

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

    def decoder(self, columns: tuple[str, ...]) -> Callable[[Row], Any]:
        """Return the function that makes records of rows with these columns, all of the record's among them."""
        names = {name: f"v{position}" for position, name in enumerate(columns)}
        context: dict[str, Any] = {"record_type": self.record_type, "explain": self._explain}
        lines: list[str] = []
        for name, one in self.fields.items():
            value = names[name]
            context[f"of_{value}"] = self._reader(name)
            coded = one.coding is not Coding.PLAIN
            if one.optional:
                lines += [f"        if {value} is not None: {value} = of_{value}({value})"] if coded else []
                continue
            if one.has_default:
                context[f"default_{value}"] = one.default
                lines.append(f"        if {value} is None: {value} = default_{value}()")
            else:
                lines.append(f"        if {value} is None: explain(row)")
            lines += [f"        else: {value} = of_{value}({value})"] if coded else []
        arguments = ", ".join(f"{name}={names[name]}" for name in self.fields)
        source = [
            "def decode(row):",
            f"    ({', '.join(names.values())},) = row.astuple()",
            "    try:",
            *(lines or ["        pass"]),
            "    except (KeyError, ValueError, TypeError, RecursionError):",
            "        explain(row)",
            f"    return record_type({arguments})",
        ]
        return _compiled(source, "decode", context)

    def _encoder(self) -> Callable[[Any], dict[str, Value]]:
        context: dict[str, Any] = {}
        lines: list[str] = []
        items: list[str] = []
        for position, (name, one) in enumerate(self.fields.items()):
            value = f"v{position}"
            lines.append(f"    {value} = record.{name}")
            coded = one.coding is not Coding.PLAIN
            context[f"code_{value}"] = self._coder(name)
            coding = f"{value} = code_{value}({value})"
            if not one.optional:
                context["null"] = self._null
                lines.append(f"    if {value} is None: null({name!r})")
                lines += [f"    {coding}"] if coded else []
            elif coded:
                lines.append(f"    if {value} is not None: {coding}")
            items.append(f"{name!r}: {value}")
        source = ["def encode(record):", *lines, f"    return {{{', '.join(items)}}}"]
        return _compiled(source, "encode", context)

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
            except (KeyError, ValueError, TypeError, RecursionError) as error:
                problem = "is no member" if isinstance(error, KeyError) else f"does not fit: {error}"
                wanted = getattr(one.type, "__name__", str(one.type))
                raise RecordShapeError(self.table, row.key, name, f"{shown(value)} {problem} ({wanted})") from None
        raise AssertionError("every field fits")


def _compiled(source: list[str], name: str, context: dict[str, Any]) -> Callable[[Any], Any]:
    exec("\n".join(source), context)  # noqa: S102 - of names that the class's fields have
    function: Callable[[Any], Any] = context[name]
    return function
