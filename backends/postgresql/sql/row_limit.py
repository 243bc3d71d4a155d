"""The limit of 8 MiB for a row: where it is checked, and how a statement fails if its row is over it.

A row that surely fits is written without a check. Otherwise the server checks a small change when it runs, at the
commit or before a read that sees it; for a large change the call itself reads the size of the row. `refusal` turns the
server's failure into structable's error, as it does for numbers that are out of range.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence

from structable.backends.postgresql.driver.errors import NUMERIC_VALUE_OUT_OF_RANGE, StatementRefusedError
from structable.spi import Field, FieldSizeLimitError, InvalidFieldError, StructableError, TableSpecification
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, Effect

from .names import column, literal
from .types import stored_type

ABSENT = -1
"""The size of a row that does not exist."""

CHECKED_SIZE = 64 << 10
"""The maximum size of a change that the server checks."""

TOO_LARGE = "structable row of "
"""Prefix of the text that a statement casts to an integer, to fail, if a row would be too large; its size follows."""

TOO_LARGE_VALUE = "structable value of "
"""As `TOO_LARGE`, if an indexed value would be too large; the name of its field and the size follow."""

_SIZE = re.compile(f"{TOO_LARGE}([0-9]+)")
_VALUE_SIZE = re.compile(f"{TOO_LARGE_VALUE}([A-Za-z0-9_]+) ([0-9]+)")

Check = tuple[str, int, str]
"""A size as SQL, its maximum, and the text of the failure."""


class Judge(enum.Enum):
    """The part that checks the size of a row."""

    NOBODY = "it surely fits"
    SERVER = "the statement that writes it"
    CALL = "a look at the row, at the call"


def judge(others: int | None, size: int, seen: int | None) -> tuple[int | None, Judge]:
    """Return the maximum size of a row after a change of at most `size` bytes, None if unknown, and its judge.

    Parameters
    ----------
    others : int, optional
        The maximum size of the fields that the change does not name; None if they have no maximum.
    size : int
        An upper bound of the bytes of the changed fields and the key, which together are within the limit.
    seen : int, optional
        The maximum size of the row before, or `ABSENT`.
    """
    most: int | None = size
    if others != 0 and seen != ABSENT:
        if seen is None or (others is not None and others < seen):
            seen = others
        most = None if seen is None else seen + size
    if most is not None and (most <= MAX_ROW_SIZE or most == size):
        return most, Judge.NOBODY
    return most, Judge.SERVER if size <= CHECKED_SIZE else Judge.CALL


def require_size(table: str, size: int) -> None:
    """Raise FieldSizeLimitError if a row is over the limit."""
    if size > MAX_ROW_SIZE:
        raise FieldSizeLimitError(table, "row", size, MAX_ROW_SIZE)


def row_size(spec: TableSpecification, new: Mapping[str, str]) -> str:
    """Return the SQL of the size of a row, `t`, after the fields in `new` have been changed."""
    return size_of(spec, ((field, new.get(field.name, f"t.{column(field.name)}")) for field in spec.fields))


def size_of(spec: TableSpecification, values: Iterable[tuple[Field, str]]) -> str:
    """Return the SQL of the size of values in the contract."""
    return " + ".join(_size(field, value, nullable=field.name not in spec.primary_key) for field, value in values)


def _size(field: Field, value: str, *, nullable: bool) -> str:
    if not field.type.width:
        return f"coalesce(octet_length({value}), 0)"
    return f"case when {value} is null then 0 else {field.type.width} end" if nullable else str(field.type.width)


def guarded(spec: TableSpecification, changes: dict[str, str], more: Sequence[Check] = ()) -> dict[str, str]:
    """Return the changes with a guard on the first: it fails if the row is too large or `more` says so."""
    if not changes:
        return changes
    name, value = next(iter(changes.items()))
    return {
        **changes,
        name: failing([(row_size(spec, changes), MAX_ROW_SIZE, TOO_LARGE), *more], spec.field(name), value),
    }


def failing(checks: Sequence[Check], field: Field, value: str) -> str:
    """Return the SQL of a field's value; it fails, with the size in its error, if a size exceeds its maximum."""
    kind = stored_type(field).name  # also for a null
    for size, most, text in reversed(checks):
        failure = f"({literal(text)} || ({size})::text)::integer"
        value = f"case when {size} <= {most} then {value} when {failure} is null then null::{kind} end"
    return value


def refusal(
    spec: TableSpecification, effect: Effect, names: Sequence[str], error: StatementRefusedError
) -> StructableError | None:
    """Return the error of a write of some fields; None if the server rejected it for another reason."""
    if error.state == NUMERIC_VALUE_OUT_OF_RANGE and effect in (Effect.STEP, Effect.MERGE):
        values = [name for name in names if name not in spec.primary_key]
        reason = f"merged, a value does not fit its field: {error.message}"
        if effect is Effect.STEP:
            bits = " or ".join(dict.fromkeys(str(spec.field(name).type.integer_bits) for name in values))
            reason = f"incremented, the value overflows {bits} bits"
        return InvalidFieldError(spec.name, ", ".join(values), reason)
    if found := _VALUE_SIZE.search(error.message):
        size = int(found[2])
        if size > MAX_KEY_SIZE:
            return FieldSizeLimitError(spec.name, found[1], size, MAX_KEY_SIZE)
        return FieldSizeLimitError(spec.name, f"primary key with {found[1]}", size, MAX_KEY_AND_INDEX_SIZE)
    if found := _SIZE.search(error.message):
        return FieldSizeLimitError(spec.name, "row", int(found[1]), MAX_ROW_SIZE)
    return None
