"""`OperandCodec`: merges into rows of a blind table as raw values, encoded without reading a row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from structable.backends.ordered.table_schema import TableSchema
from structable.spi import AggregateFunction, Field, FieldType, InvalidFieldError, RowKind, Value
from structable.spi.authors import Merger

from .row_layout import RowLayout
from .rows import Encoder, RowCodec, RowEncoders
from .source import GeneratedSource, Slot


class OperandCodec:
    """The operands of one blind table, see `Merger.operand`; immutable, safe to share between threads.

    An operand is encoded as a row whose nulls change nothing. Generated functions handle usual rows, and return None
    for all others, on which `Merger` then decides; they never accept what it would reject or change.
    """

    encode_added: Encoder
    """Returns raw key and operand of an upsert of a usual row, None for any other row."""

    def __init__(self, schema: TableSchema, merger: Merger, rows: RowCodec, rows_begin: bytes) -> None:
        self._schema = schema
        self._merger = merger
        self._rows = rows
        self._layout = RowLayout(schema.version, schema.value_fields)
        self._functions = [schema.spec.table_options.functions[field.name].function for field in schema.value_fields]
        counts = {
            place: self._counting(place)
            for place, function in enumerate(self._functions)
            if function is AggregateFunction.COUNT
        }
        self.encode_added = RowEncoders(schema, rows_begin, counts).encode
        self._absorbed = self._generate_absorb()

    def _counting(self, position: int) -> list[str]:
        """Return the lines that replace a checked value of a COUNT by the 1 that it adds, or by null."""
        word, mask = self._layout.null_bit(position)
        limit = 1 << (self._layout.fields[position].type.integer_bits - 1)
        return [
            f"if not {-limit} <= v{position} < {limit}: return None",
            f"v{position} = 0 if w{word} & {mask} else 1",
        ]

    def encode(self, kind: RowKind, row: Mapping[str, Value]) -> bytes | None:
        """Return the operand of a change with a checked row; None if the stored row must be read.

        Raises
        ------
        UnsupportedOperationError
            If the table does not accept the change.
        """
        values = self._merger.operand(kind, row)
        return None if values is None else self._rows.encode_values(values)

    def absorb(self, old: bytes | None, operand: bytes) -> bytes:
        """Return the raw value of a row, or of an operand, after an operand.

        Raises
        ------
        InvalidFieldError
            If a result does not fit its field.
        """
        raw = self._absorbed(old, operand)
        if raw is None:
            decode = self._rows.decode_values
            raw = self._rows.encode_values(self._merger.absorb(None if old is None else decode(old), decode(operand)))
        return raw

    def fits(self, old: bytes | None, operands: Sequence[bytes], others: Sequence[bytes]) -> bool:
        """Return whether operands fit a row with any of the others, in any order; False if that is not certain.

        Only sums and counts can overflow. They fit if all increases fit together, and all decreases.
        """
        try:
            raw = old
            for operand in operands:
                raw = self.absorb(raw, operand)
        except InvalidFieldError:
            return False
        if not others:
            return True
        decode = self._rows.decode_values
        start = (None,) * len(self._layout.fields) if old is None else decode(old)
        given = [decode(operand) for operand in (*operands, *others)]
        columns = zip(self._layout.fields, self._functions, start, zip(*given, strict=True), strict=True)
        return all(
            _sum_fits(field, before, [value for value in values if value is not None])
            for field, function, before, values in columns
            if function in (AggregateFunction.SUM, AggregateFunction.COUNT)
        )

    def _generate_absorb(self) -> Callable[[bytes | None, bytes], bytes | None]:
        source, layout = GeneratedSource(), self._layout
        version = repr(layout.version.to_bytes(2, "little"))
        source.add(0, "def absorb(old, operand):")
        source.add(1, "if old is None:")
        source.add(2, f"return operand if operand[:2] == {version} else None")
        source.add(1, "try:")
        source.add_unpack(2, "<", _slots(layout, "w", "v"), "old", exact=True)
        source.add_unpack(2, "<", _slots(layout, "x", "g"), "operand", exact=True)
        source.add(2, f"if w0 & 65535 != {layout.version} or x0 & 65535 != {layout.version}: return None")
        for position, field in enumerate(layout.fields):
            word, mask = layout.null_bit(position)
            source.add(2, f"if not x{word} & {mask}:")
            source.add(3, f"if w{word} & {mask}: v{position} = g{position}; w{word} ^= {mask}")
            source.add(3, "else:")
            for line in _combining(field, self._functions[position], f"v{position}", f"g{position}"):
                source.add(4, line)
        source.add(2, f"return {source.packed('<', _slots(layout, 'w', 'v'))}")
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        return source.function("absorb")


def _sum_fits(field: Field, before: Any, values: Sequence[Any]) -> bool:  # noqa: ANN401 - numbers of one type
    if not values:
        return True
    if field.type.floating:
        # Infinities and NaN do not overflow. A sum is rounded at each addition, in an unknown order.
        finite = [abs(value) for value in (before or 0.0, *values) if math.isfinite(value)]
        largest = (2 - 2**-23) * 2.0**127 if field.type is FieldType.FLOAT else sys.float_info.max
        return bool(sum(finite) <= largest * (1 - len(finite) * 2**-20))
    start, *steps = [Fraction(value) for value in (before or 0, *values)]
    highest = start + sum([step for step in steps if step > 0])
    lowest = start + sum([step for step in steps if step < 0])
    if field.type is FieldType.DECIMAL:
        beyond = 10 ** Fraction((field.precision or 0) - (field.scale or 0))
        return -beyond < lowest and highest < beyond
    limit = 1 << (field.type.integer_bits - 1)
    return -limit <= lowest and highest < limit


def _slots(layout: RowLayout, words: str, values: str) -> list[Slot]:
    """Return the slots of all words and fields, under these letters and their numbers."""
    slots: list[Slot] = [(code, f"{words}{word}") for word, (code, _) in enumerate(layout.words_slots())]
    codes = [code for code, _ in layout.fixed_slots(())]
    return slots + [(code, f"{values}{position}") for position, code in enumerate(codes)]


def _combining(field: Field, function: AggregateFunction, old: str, given: str) -> list[str]:
    """Return lines that combine two variables, packed later, or return None; as `combine_function` does."""
    if field.type is FieldType.DECIMAL:
        numbers = f"{old}n, {given}n = int.from_bytes({old}, 'little', signed=True), "
        numbers += f"int.from_bytes({given}, 'little', signed=True)"
        if function is AggregateFunction.SUM:
            beyond = 10 ** (field.precision or 0)
            return [
                numbers,
                f"{old}n += {given}n",
                f"if not {-beyond} < {old}n < {beyond}: return None",
                f"{old} = {old}n.to_bytes(16, 'little', signed=True)",
            ]
        sign = "<" if function is AggregateFunction.MIN else ">"
        return [numbers, f"if {given}n {sign} {old}n: {old} = {given}"]
    floating = field.type.floating
    match function:
        case AggregateFunction.SUM if floating:
            # Packing rejects a FLOAT that is too large.
            return [f"{old} += {given}", f"if {old} - {old} != 0.0: return None"]
        case AggregateFunction.SUM | AggregateFunction.COUNT:
            return [f"{old} += {given}"]
        case AggregateFunction.MIN if floating:
            return [f"if {given} < {old} or ({old} != {old} and {given} == {given}): {old} = {given}"]
        case AggregateFunction.MAX if floating:
            return [f"if {given} > {old} or ({given} != {given} and {old} == {old}): {old} = {given}"]
        case AggregateFunction.MIN:
            return [f"if {given} < {old}: {old} = {given}"]
        case AggregateFunction.MAX:
            return [f"if {given} > {old}: {old} = {given}"]
        case AggregateFunction.BOOL_AND:
            return [f"{old} = {old} and {given}"]
        case AggregateFunction.BOOL_OR:
            return [f"{old} = {old} or {given}"]
    raise AssertionError(f"{function} of {field.name!r} is not blind")
