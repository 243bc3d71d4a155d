"""Source of generated functions: codecs are compiled for one table, so that a row costs no loop over its columns."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import DataCorruptionError, FieldType, Row

from .scalars import EPOCH, EPOCH_NTZ

Slot: TypeAlias = tuple[str, str | None]
"""A `struct` format and the variable of its value; None for bytes that are skipped."""

DECODE_FAILURES = (struct.error, ValueError, ArithmeticError, LookupError)
"""The errors that decoding of malformed bytes may raise; callers convert them to `DataCorruptionError`."""


class NewerLayoutError(DataCorruptionError):
    """The schema does not know the row's layout. Outside a snapshot, the schema may merely be out of date."""


def corrupt(table: str, what: str, raw: bytes, reason: object) -> DataCorruptionError:
    """Return the error for bytes that cannot be decoded; `what` names the expected content."""
    shown = raw.hex() if len(raw) <= 64 else f"{raw[:64].hex()}... ({len(raw):,} bytes)"
    return DataCorruptionError(f"table {table!r} holds a {what} that cannot be decoded, {shown}: {reason}")


class GeneratedSource:
    """One function under construction: lines of source, and the constants that they refer to by name.

    Names of fields enter the source as string literals only; values of users never do. `add_values` returns rows of
    `row_type`, a `RowShape.row_type`, or else tuples; `before` is the source of a tuple of leading values.
    """

    def __init__(self, row_type: type[Row] | None = None, before: str = "") -> None:
        self._lines: list[str] = []
        self._row_type = row_type
        self._before = before
        self.constants: dict[str, Any] = {
            "date": FIELD_TYPES[FieldType.DATE].python,
            "datetime": FIELD_TYPES[FieldType.TIMESTAMP].python,
            "timedelta": dt.timedelta,
            "UTC": dt.UTC,
            "EPOCH": EPOCH,
            "EPOCH_NTZ": EPOCH_NTZ,
            "Decimal": Decimal,
            "FAILURES": DECODE_FAILURES,
        }

    def add(self, indent: int, line: str) -> None:
        self._lines.append(f"{'    ' * indent}{line}")

    def add_values(self, indent: int, values: Sequence[str]) -> None:
        """Append lines that return the values of these expressions."""
        result = f"({', '.join(values)},)" if values else "()"
        if self._before:
            result = f"{self._before} + {result}"
        if self._row_type is None:
            self.add(indent, f"return {result}")
            return
        self.add(indent, f"row = {self.constant('new', object.__new__)}({self.constant('Row', self._row_type)})")
        self.add(indent, f"row._values = {result}")
        self.add(indent, "return row")

    def add_unpack(self, indent: int, order: str, slots: Iterable[Slot], raw: str, *, exact: bool) -> None:
        """Append the line that unpacks adjacent slots into their variables, if they have any; `order` is "<" or ">".

        If `exact`, the bytes must end with the last slot; the line raises struct.error for others. If not, a comma and
        the offset of the first slot may follow in `raw`, the source of the bytes.
        """
        text, targets = order, []
        for code, name in slots:
            if name is None:
                text += f"{struct.calcsize(order + code)}x"
            else:
                text += code
                targets.append(name)
        if targets:
            layout = struct.Struct(text)
            unpack = self.constant("unpack", layout.unpack if exact else layout.unpack_from)
            self.add(indent, f"{', '.join(targets)}, = {unpack}({raw})")

    def packed(self, order: str, slots: Sequence[Slot]) -> str:
        """Return the source that packs slots, which must all have variables, to bytes."""
        pack = self.constant("pack", struct.Struct(order + "".join(code for code, _ in slots)).pack)
        return f"{pack}({', '.join(str(name) for _, name in slots)})"

    def constant(self, stem: str, value: object) -> str:
        """Keep a value, and return the name that refers to it in the source."""
        name = f"{stem}_{len(self.constants)}"
        self.constants[name] = value
        return name

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the lines, and return the function of this name that they define."""
        text = "\n".join(self._lines)
        exec(compile(text, f"<generated {name}>", "exec"), self.constants)  # noqa: S102
        return self.constants[name]  # type: ignore[no-any-return]
