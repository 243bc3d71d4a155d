"""Fields for columns: types from Arrow types, names from any names of columns. Imports pyarrow."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ._arrow_types import CastError, refused_type
from ._error_texts import shown
from ._fields import Field, FieldType

_LONGEST = 48
_LEGAL = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{_LONGEST - 1}}}\Z")
_OTHERS = re.compile(r"[^A-Za-z0-9]+")
_TYPES = {
    pa.int8(): FieldType.BYTE,
    pa.int16(): FieldType.SHORT,
    pa.int32(): FieldType.INT,
    pa.int64(): FieldType.LONG,
    pa.uint8(): FieldType.SHORT,
    pa.uint16(): FieldType.INT,
    pa.uint32(): FieldType.LONG,
    pa.float16(): FieldType.FLOAT,
    pa.float32(): FieldType.FLOAT,
    pa.float64(): FieldType.DOUBLE,
}
_MOST_DIGITS = 38


def field_names(columns: Sequence[str]) -> list[str]:
    """Return the names of the fields for the columns of a file or a frame, in their order.

    A valid name is kept. In any other, accents are dropped, and each run of characters other than ASCII letters and
    digits becomes an underscore, except at the ends. A name that then begins with a digit gets `column_` before it; a
    name without characters becomes `column_` with its position, from 1. Names are cut at 48 characters. A name that is
    taken, even in another case, gets `_2`, `_3` and so on; names that are kept go first.
    """
    taken: set[str] = set()
    kept: dict[int, str] = {}
    for position, column in enumerate(columns):
        if _LEGAL.match(column) and column.lower() not in taken:
            kept[position] = column
            taken.add(column.lower())
    for position, column in enumerate(columns):
        if position not in kept:
            kept[position] = _free(_made(column, position), taken)
            taken.add(kept[position].lower())
    return [kept[position] for position in range(len(columns))]


def _made(column: str, position: int) -> str:
    if _LEGAL.match(column):
        return column
    plain = "".join(one for one in unicodedata.normalize("NFKD", column) if not unicodedata.combining(one))
    name = _OTHERS.sub("_", plain).strip("_")
    if not name:
        name = f"column_{position + 1}"
    elif name[0].isdigit():
        name = f"column_{name}"
    return name[:_LONGEST].rstrip("_")


def _free(name: str, taken: Collection[str]) -> str:
    number, found = 1, name
    while found.lower() in taken:
        number += 1
        end = f"_{number}"
        found = name[: _LONGEST - len(end)] + end
    return found


def renamed(columns: Sequence[str], rename: Mapping[str, str] | None) -> list[str]:
    """Return the names of the fields for columns; `rename` has the names for some of them.

    Raises
    ------
    ValueError
        If `rename` names a column that is not there.
    """
    chosen = dict(rename or {})
    for column in chosen:
        if column not in columns:
            raise ValueError(f"rename names the column {shown(column)}, which is not there; there are {_list(columns)}")
    return field_names([chosen.get(column, column) for column in columns])


def new_names(columns: Sequence[str], rename: Mapping[str, str] | None) -> list[str]:
    """Return the names of the fields that are made for columns.

    Raises
    ------
    ValueError
        As `renamed` does, or if a column cannot have the name that `rename` gives it.
    """
    names = renamed(columns, rename)
    for column, name in (rename or {}).items():
        if not _LEGAL.match(name):
            raise ValueError(
                f"rename gives the column {shown(column)} the name {shown(name)}, which no field has: a letter is "
                f"needed, then at most {_LONGEST - 1} letters, digits or underscores"
            )
        others = [(rename or {}).get(one, one).lower() for one in columns if one != column]
        if name.lower() in others:
            raise ValueError(
                f"rename gives the column {shown(column)} the name {shown(name)}, which another column has; give that "
                "another name, too"
            )
    return names


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def field_of(name: str, kind: pa.DataType, *, keyed: bool = False) -> Field:
    """Return the field for a column of an Arrow type.

    Its type holds all values of the column's type: unsigned integers get the next wider type, and `uint64` a
    decimal(20,0). In a key or an index, where there are no decimals, `uint64` becomes a long, which holds half of them.

    Raises
    ------
    CastError
        If no field takes the type.
    """
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return field_of(name, kind.value_type, keyed=keyed)
    found = _TYPES.get(kind)
    if found is not None:
        return Field(name, found)
    if pa.types.is_uint64(kind):
        return Field.long(name) if keyed else Field.decimal(name, 20, 0)
    if pa.types.is_decimal(kind):
        return _decimal(name, kind)
    if isinstance(kind, pa.TimestampType):
        return Field.timestamp_ntz(name) if kind.tz is None else Field.timestamp(name)
    # A uuid, and a column of nulls, whose type is unknown, are readable as strings.
    for one in (FieldType.STRING, FieldType.BOOLEAN, FieldType.BYTES, FieldType.DATE):
        if not refused_type(Field(name, one), kind):
            return Field(name, one)
    raise CastError(f"is of the Arrow type {kind}, which no field takes{refused_type(Field.string(name), kind)}")


def _decimal(name: str, kind: Any) -> Field:  # noqa: ANN401 - a decimal type, which the stubs have four classes for
    scale = max(kind.scale, 0)
    precision = max(kind.precision - min(kind.scale, 0), scale)
    if precision > _MOST_DIGITS:
        raise CastError(f"is of the Arrow type {kind}; a decimal has at most {_MOST_DIGITS} digits; cast it before")
    return Field.decimal(name, precision, scale)


def fields_of_schema(
    schema: pa.Schema, keyed: Collection[str], rename: Mapping[str, str] | None = None
) -> tuple[list[Field], list[str]]:
    """Return the fields for the columns of a schema, and the problems of columns that no field takes.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns.
    keyed : collection of str
        The fields that are part of a key or an index.
    rename : mapping of str to str, optional
        Fields for some columns, by their names.
    """
    fields: list[Field] = []
    problems: list[str] = []
    names = new_names(schema.names, rename)
    for column, name, kind in zip(schema.names, names, schema.types, strict=True):
        try:
            fields.append(field_of(name, kind, keyed=name in keyed))
        except CastError as error:
            problems.append(f"column {column!r} {error}")
    return fields, problems
