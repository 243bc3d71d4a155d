"""`OperandCodec`: merges into rows of a blind table as raw values, which need no row to be encoded."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Field, FieldType, InvalidFieldError
from structable.spi.changes import RowKind
from structable.spi.merging import Merger
from structable.spi.table_options import AggregateFunction
from structable.spi.values import MAX_KEY_SIZE, Value

from .key_fields import add_key_checks, key_expression, key_width
from .row_encoding import add_field_encoder
from .row_layout import RowLayout
from .rows import RowCodec
from .source import Slot, Source

__all__ = ["OperandCodec"]

_MOST_ENCODERS = 256
_FLOATING = (FieldType.FLOAT, FieldType.DOUBLE)

Encoder = Callable[[Mapping[str, Value]], tuple[bytes, bytes] | None]


class OperandCodec:
    """The operands of one blind table, see `Merger.operand`; immutable, safe to share between threads.

    An operand is encoded as a row whose nulls change nothing. Generated functions handle usual rows, and return None
    for all others, on which `Merger` then decides; they never accept what it would reject or change.
    """

    def __init__(self, schema: TableSchema, merger: Merger, rows: RowCodec, rows_begin: bytes) -> None:
        self._schema = schema
        self._merger = merger
        self._rows = rows
        self._rows_begin = rows_begin
        self._layout = RowLayout(schema.version, schema.value_fields)
        self._functions = [schema.spec.table_options.functions[field.name].function for field in schema.value_fields]
        self._encoders: dict[tuple[str, ...], Encoder] = {}
        self._absorbed = self._generate_absorb()

    def encode_added(self, row: Mapping[str, Value]) -> tuple[bytes, bytes] | None:
        """Return raw key and operand of an upsert of a usual row, None for any other."""
        if row.__class__ is not dict:
            return None
        names = tuple(row)
        encoder = self._encoders.get(names) or self._generated(names)
        return None if encoder is None else encoder(row)

    def encode(self, kind: RowKind, row: Mapping[str, Value]) -> bytes | None:
        """Return the operand of a change with a checked row; None if the row of its key must be read.

        Raises
        ------
        UnsupportedOperationError
            If the table refuses the change.
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
        """Tell whether operands fit a row with any of the others, whatever their order; False if that is not certain.

        Only sums and counts can overflow. They fit if all that raise them fit together, and all that lower them.
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

    def _generated(self, names: tuple[str, ...]) -> Encoder | None:
        spec = self._schema.spec
        if not set(spec.primary_key) <= set(names) <= set(spec.field_names):
            return None
        if len(self._encoders) >= _MOST_ENCODERS:
            self._encoders.clear()
        encoder = self._encoders[names] = self._generate_encoder(frozenset(names))
        return encoder

    def _generate_encoder(self, named: frozenset[str]) -> Encoder:
        source, layout, key_fields = Source(), self._layout, self._schema.spec.key_fields
        keys = [f"k{position}" for position in range(len(key_fields))]
        given = {position for position, field in enumerate(layout.fields) if field.name in named}
        words = [layout.version if word == 0 else 0 for word in range(layout.words)]
        for position in range(len(layout.fields)):
            word, mask = layout.null_bit(position)
            words[word] |= 0 if position in given else mask
        source.add(0, "def encode(row):")
        source.add(1, "try:")
        for field, name in zip(key_fields, keys, strict=True):
            source.add(2, f"{name} = row[{field.name!r}]")
        add_key_checks(source, 2, key_fields, keys)
        for word, value in enumerate(words):
            source.add(2, f"w{word} = {value}")
        for position, field in enumerate(layout.fields):
            if position not in given:
                source.add(2, f"v{position} = {_zero(field)}")
                continue
            word, mask = layout.null_bit(position)
            source.add(2, f"v{position} = row[{field.name!r}]")
            add_field_encoder(source, 2, field, f"v{position}", f"w{word} |= {mask}", checks=True)
            if self._functions[position] is AggregateFunction.COUNT:
                limit = 1 << (field.type.integer_bits - 1)
                source.add(2, f"if not {-limit} <= v{position} < {limit}: return None")
                source.add(2, f"v{position} = 0 if w{word} & {mask} else 1")
        source.add(2, f"key = {key_expression(source, self._rows_begin, key_fields, keys)}")
        if not all(key_width(field.type) for field in key_fields):
            source.add(2, f"if len(key) > {MAX_KEY_SIZE}: return None")
        source.add(2, f"return key, {source.packed('<', _slots(layout, 'w', 'v'))}")
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        return source.function("encode")

    def _generate_absorb(self) -> Callable[[bytes | None, bytes], bytes | None]:
        source, layout = Source(), self._layout
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
    if field.type in _FLOATING:
        # Infinities and NaN are no overflow. A sum is rounded at each addition, in an order that is not known.
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


def _zero(field: Field) -> str:
    if field.type is FieldType.DECIMAL:
        return repr(bytes(16))
    return "0.0" if field.type in _FLOATING else "0"


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
    floating = field.type in _FLOATING
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
