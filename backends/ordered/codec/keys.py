"""`KeyCodec`: the keys of a table's rows and index entries, generated for each table.

    row            space + 0x01 + key fields                                                 -> the row's value
    index entry    space + 0x02 + index number (2 bytes) + indexed value + key fields

`key_fields` defines the form of a field. An indexed value is 0x00 if null, else 0x01 and its form, with all integers as
LONG so that entries stay valid when the field is widened. The key field of a table without a primary key is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from structable.backends.ordered.engine import SPACE_BYTES, successor
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Field, FieldType, Value
from structable.spi.authors import DIGEST_BYTES, MAX_KEY_SIZE

from .key_fields import add_key_checks, add_key_decoder, key_expression, key_width, shortest_form
from .row_layout import RowLayout
from .source import GeneratedSource, corrupt

EntryEncoder: TypeAlias = Callable[[bytes, bytes], bytes]
"""Raw row key and raw value to the row's raw entry."""

ROW_KEY_START = SPACE_BYTES + 1
"""Offset of the key fields in a raw row key."""
LONGEST_KEY = 3 * MAX_KEY_SIZE
"""An upper bound on raw row keys: a form takes at most two bytes for each byte that the limit counts, and two more."""
_VALUE_START = SPACE_BYTES + 3
"""Offset of the indexed value in a raw index entry."""
ROW_MARK = b"\x01"
"""The byte after the space in row keys, and in no other keys."""
_ENTRIES = b"\x02"
_AS_INTEGER = {FieldType.DATE: Field.int, FieldType.TIMESTAMP: Field.long, FieldType.TIMESTAMP_NTZ: Field.long}


class KeyCodec:
    """Encodes and decodes the keys of one table; immutable, safe to share between threads."""

    encode_tuple: Callable[[object], bytes | None]
    """The raw key of a tuple; None for tuples that `check_key` would reject or change, and perhaps for others."""
    encode_named: Callable[[Mapping[str, Value]], bytes | None]
    """The raw key of a dict with all key fields; None as for `encode_tuple`."""
    encode_checked: Callable[[tuple[Value, ...]], bytes]
    """The raw key of a tuple that `check_key` returned."""
    decode: Callable[[bytes], tuple[Value, ...]]
    """The tuple of a raw row key of this table; raises `DataCorruptionError`."""

    def __init__(self, schema: TableSchema) -> None:
        self._table = schema.spec.name
        self._fields = schema.key_fields
        self._space = schema.space
        self._value_encoders: dict[FieldType, Callable[[tuple[Value, ...]], bytes]] = {}
        self.rows_begin = schema.space + ROW_MARK
        self.rows_end = schema.space + _ENTRIES
        self.encode_tuple = self._generate_checked_encoder(named=False)
        self.encode_named = self._generate_checked_encoder(named=True)
        self._prefixes = [
            _generate_encoder(self.rows_begin, self._fields[:count]) for count in range(len(self._fields) + 1)
        ]
        self.encode_checked = self._prefixes[-1]
        self.decode = self._generate_decoder()

    def encode_prefix(self, values: tuple[Value, ...]) -> bytes:
        """Return the common prefix of the raw keys of all rows whose key begins with these checked values."""
        return self._prefixes[len(values)](values)

    def equal_rows(self, raw_key: bytes) -> tuple[bytes, bytes]:
        """Return the interval of raw keys under which a bag keeps the rows equal to the row of a raw key."""
        [hidden] = self.decode(raw_key)
        assert isinstance(hidden, bytes)
        prefix = self.encode_prefix((hidden[:DIGEST_BYTES],))[: -shortest_form(FieldType.BYTES)]
        return prefix, successor(prefix)

    def index_begin(self, number: int) -> bytes:
        """Return the smallest possible entry of an index."""
        return self._space + _ENTRIES + number.to_bytes(2, "big")

    def index_end(self, number: int) -> bytes:
        """Return an upper bound, exclusive, of all entries of an index."""
        return successor(self.index_begin(number))

    def encode_index_value(self, field: Field, value: Value) -> bytes:
        """Return the bytes after the index number in all entries of a checked value; None is null."""
        if value is None:
            return b"\x00"
        encode = self._value_encoders.get(field.type)
        if encode is None:
            encode = self._value_encoders[field.type] = _generate_encoder(b"\x01", (_widest(field),))
        return encode((value,))

    def index_entry_encoder(self, number: int, field: Field) -> Callable[[Value, bytes], bytes]:
        """Return the generated function from an indexed value and a raw row key to the raw entry in one index."""
        head = self.index_begin(number)
        source = GeneratedSource()
        value = key_expression(source, head + b"\x01", (_widest(field),), ["value"])
        null = source.constant("null", head + b"\x00")
        source.add(0, "def encode(value, raw_key):")
        source.add(1, f"if value is None: return {null} + raw_key[{ROW_KEY_START}:]")
        source.add(1, f"return {value} + raw_key[{ROW_KEY_START}:]")
        return source.function("encode")

    def index_row_key_decoder(self, field: Field) -> Callable[[bytes], bytes]:
        """Return the generated function from a raw entry in a field's index to the raw row key.

        The function raises `DataCorruptionError` for bytes that are not such an entry.
        """
        source, kind = GeneratedSource(), _widest(field).type
        source.constants["corrupt"] = self._corrupt_entry
        null_end = _VALUE_START + 1
        if width := key_width(kind):
            end = str(null_end + width)
        else:
            terminator = bytes(shortest_form(kind))
            end = f"raw.index({terminator!r}, {null_end}) + {len(terminator)}"
        source.add(0, "def row_key(raw):")
        source.add(1, "try:")
        source.add(2, f"start = {end} if raw[{_VALUE_START}] else {null_end}")
        source.add(1, "except FAILURES as error:")
        source.add(2, "raise corrupt(raw, error) from error")
        source.add(1, f"return {source.constant('rows', self.rows_begin)} + raw[start:]")
        return source.function("row_key")

    def _corrupt_entry(self, raw: bytes, reason: object) -> DataCorruptionError:
        return corrupt(self._table, "index entry", raw, reason)

    def _corrupt_key(self, raw: bytes, reason: object) -> DataCorruptionError:
        return corrupt(self._table, "row key", raw, reason)

    def _generate_checked_encoder(self, *, named: bool) -> Callable[[Any], bytes | None]:
        source, names = GeneratedSource(), _names(self._fields)
        source.add(0, "def encode(key):")
        if named:
            for field, name in zip(self._fields, names, strict=True):
                source.add(1, f"{name} = key[{field.name!r}]")
        else:
            source.add(1, f"if key.__class__ is not tuple or len(key) != {len(names)}: return None")
            source.add(1, f"{', '.join(names)}, = key")
        add_key_checks(source, 1, self._fields, names)
        source.add(1, "try:")
        source.add(2, f"raw = {key_expression(source, self.rows_begin, self._fields, names)}")
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        if any(not key_width(field.type) for field in self._fields):
            # The encoded key is longer than the size that the limit counts.
            source.add(1, f"return raw if len(raw) <= {MAX_KEY_SIZE} else None")
        else:
            source.add(1, "return raw")
        return source.function("encode")

    def _generate_decoder(self) -> Callable[[bytes], tuple[Value, ...]]:
        source, names = GeneratedSource(), _names(self._fields)
        source.constants["corrupt"] = self._corrupt_key
        source.add(0, "def decode(raw):")
        source.add(1, "try:")
        if not all(key_width(field.type) for field in self._fields):
            shortest = ROW_KEY_START + sum(shortest_form(field.type) for field in self._fields)
            source.add(2, f"if len(raw) < {shortest}: raise ValueError('it is too short')")
        add_key_decoder(source, 2, "raw", ROW_KEY_START, self._fields, names, names)
        source.add(2, f"return {', '.join(names)},")
        source.add(1, "except FAILURES as error:")
        source.add(2, "raise corrupt(raw, error) from error")
        return source.function("decode")


def _names(fields: Sequence[Field]) -> list[str]:
    return [f"k{position}" for position in range(len(fields))]


def _generate_encoder(head: bytes, fields: Sequence[Field]) -> Callable[[tuple[Any, ...]], bytes]:
    source, names = GeneratedSource(), _names(fields)
    source.add(0, "def encode(key):")
    if names:
        source.add(1, f"{', '.join(names)}, = key")
    source.add(1, f"return {key_expression(source, head, fields, names)}")
    return source.function("encode")


def _widest(field: Field) -> Field:
    return Field.long(field.name) if field.type.integer_bits else field


def generate_entry_encoder(head: bytes, field: Field, layout: RowLayout, otherwise: EntryEncoder) -> EntryEncoder:
    """Return the generated encoder of one index's entries, which all begin with `head`, from stored rows.

    It cuts the indexed value from the row, without decoding and encoding it again.

    It encodes rows of the current layout; `otherwise` encodes all others, and raises for bytes that are not a row.
    """
    source = GeneratedSource()
    position = next(place for place, other in enumerate(layout.fields) if other.name == field.name)
    word, mask = layout.null_bit(position)
    rest = f"key[{ROW_KEY_START}:]"
    unset, set_ = head + b"\x00", head + b"\x01"
    source.add(0, "def entry_of(key, value):")
    source.add(1, "try:")
    begins, ends = layout.edges((position,))
    last = layout.variable[-1:]
    ends.update(last)
    slots = layout.words_slots() + layout.fixed_slots((position,)) + layout.end_slots(ends)
    source.add_unpack(2, "<", slots, "value", exact=not last)
    whole = f" and e{last[0]} == len(value)" if last else ""
    source.add(2, f"if w0 & 65535 == {layout.version}{whole}:")
    source.add(3, f"if w{word} & {mask}: return {source.constant('null', unset)} + {rest}")
    piece = f"value[{begins.get(position)}:e{position}]"
    if field.type is FieldType.STRING:
        source.add(3, f"return {source.constant('head', set_)} + {piece} + b'\\0' + {rest}")
    else:
        if field.type is FieldType.BYTES:
            source.add(3, f"v{position} = {piece}")
        kept = _AS_INTEGER[field.type](field.name) if field.type in _AS_INTEGER else _widest(field)
        source.add(3, f"return {key_expression(source, set_, (kept,), [f'v{position}'])} + {rest}")
    source.add(1, "except FAILURES:")
    source.add(2, "pass")
    source.add(1, f"return {source.constant('otherwise', otherwise)}(key, value)")
    return source.function("entry_of")
