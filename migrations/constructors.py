"""Constructors of a script's arguments, so that it imports nothing: fields, tables, functions of fields."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping

from structable.spi import Cast, Field, FieldType, JsonField, Lower, TableSpecification

__all__ = ["Constructors"]


class Constructors:
    """Makes fields (`op.long("n")`), tables (`op.table("runs", fields, ["app"])`) and functions (`op.lower()`)."""

    def table(
        self,
        name: str,
        fields: Iterable[Field],
        primary_key: Iterable[str] = (),
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> TableSpecification:
        """Return a table's specification."""
        return TableSpecification(name, fields, primary_key, indexes, options)

    def decimal(self, name: str, precision: builtins.int, scale: builtins.int) -> Field:
        """Return a field of type decimal."""
        return Field.decimal(name, precision, scale)

    boolean: Callable[[str], Field] = staticmethod(Field.boolean)
    byte: Callable[[str], Field] = staticmethod(Field.byte)
    short: Callable[[str], Field] = staticmethod(Field.short)
    int: Callable[[str], Field] = staticmethod(Field.int)
    long: Callable[[str], Field] = staticmethod(Field.long)
    float: Callable[[str], Field] = staticmethod(Field.float)
    double: Callable[[str], Field] = staticmethod(Field.double)
    string: Callable[[str], Field] = staticmethod(Field.string)
    bytes: Callable[[str], Field] = staticmethod(Field.bytes)
    date: Callable[[str], Field] = staticmethod(Field.date)
    timestamp: Callable[[str], Field] = staticmethod(Field.timestamp)
    timestamp_ntz: Callable[[str], Field] = staticmethod(Field.timestamp_ntz)

    def json_field(
        self,
        path: tuple[str | builtins.int, ...],
        type: FieldType | str,  # noqa: A002
        *,
        strict: bool = False,
    ) -> JsonField:
        """Return the function that takes a value out of a JSON document: a type by its name, such as "long"."""
        return JsonField(path, type, strict=strict)

    def cast(self, type: FieldType | str) -> Cast:  # noqa: A002
        """Return the function that makes a number wider, or its decimal text."""
        return Cast(type)

    def lower(self) -> Lower:
        """Return the function that makes a string lower case."""
        return Lower()
