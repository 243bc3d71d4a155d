"""`RowCodec`: the values of a table's rows, encoded as `row_layout` defines; generated for each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from structable.backends.base.bounded import Bounded
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Field, FieldType, Key, Row, Value
from structable.spi.authors import MAX_KEY_SIZE, MAX_ROW_SIZE, RowShape, new_id

from .key_fields import add_key_checks, add_key_decoder, key_expression, key_width
from .keys import ROW_KEY_START, KeyCodec
from .row_encoding import add_row_encoder
from .row_layout import RowLayout
from .scalars import decimal_decoder, from_number
from .source import GeneratedSource, NewerLayoutError, corrupt

Encoder: TypeAlias = Callable[[Mapping[str, Value]], tuple[bytes, bytes] | None]
"""Converts a row to its raw key and raw value; None for rows that the encoder leaves to others."""

Projection: TypeAlias = Callable[[bytes, bytes], tuple[Value, ...]]
"""Converts raw row key and raw value to the values of some columns."""
RowDecoder: TypeAlias = Callable[[bytes, bytes], Row]
"""Converts raw row key and raw value to a row of some columns."""


class RowEncoders:
    """Encoders of users' rows, generated for each order of the fields that a row names; the others are null.

    They check the rows that they encode, and return None for an unusual row, on which `check_row` then decides. A row
    is unusual if it is not a dict of the key and other fields of the table, if a value is not in its stored form, or if
    a size may be over a limit. They never accept a row that `check_row` rejects. A keyless table gets a new key at each
    call; rows of a log have the common prefix of all keys.

    Parameters
    ----------
    schema, rows_begin : TableSchema, bytes
        The table, and the prefix of its raw keys.
    then : mapping of int to sequence of str, optional
        Lines that follow the encoding of the field at a position, see `add_row_encoder`.
    """

    def __init__(
        self, schema: TableSchema, rows_begin: bytes, then: Mapping[int, Sequence[str]] = MappingProxyType({})
    ) -> None:
        self._schema = schema
        self._rows_begin = rows_begin
        self._then = then
        self._layout = RowLayout(schema.version, schema.value_fields)
        self._encoders: Bounded[tuple[str, ...], Encoder] = Bounded()

    def encode(self, row: Mapping[str, Value]) -> tuple[bytes, bytes] | None:
        """Return raw key and raw value of a usual row, None for any other."""
        if row.__class__ is not dict:
            return None
        names = tuple(row)
        encoder = self._encoders.get(names) or self._generated(names)
        return None if encoder is None else encoder(row)

    def _generated(self, names: tuple[str, ...]) -> Encoder | None:
        spec = self._schema.spec
        if not set(spec.primary_key) <= set(names) <= set(spec.field_names):
            return None
        encoder = self._encoders[names] = self.generate(frozenset(names))
        return encoder

    def generate(self, named: frozenset[str] | None = None) -> Encoder:
        """Return the encoder of dicts of these names; if none are given, of any mapping, usual if it is a whole row."""
        source, schema, layout = GeneratedSource(), self._schema, self._layout
        spec = schema.spec
        key_fields = spec.key_fields
        keys = [f"k{position}" for position in range(len(key_fields))]
        values = [f"v{position}" for position in range(len(layout.fields))]
        unset = {place for place, field in enumerate(layout.fields) if named is not None and field.name not in named}
        source.add(0, "def encode(row):")
        if named is None:
            source.add(1, f"if row.__class__ is not dict or len(row) != {len(keys) + len(values)}: return None")
        source.add(1, "try:")
        given = [one for place, one in enumerate(zip(layout.fields, values, strict=True)) if place not in unset]
        for field, name in (*zip(key_fields, keys, strict=True), *given):
            source.add(2, f"{name} = row[{field.name!r}]")
        add_key_checks(source, 2, key_fields, keys)
        value, end = add_row_encoder(source, 2, layout, values, checks=True, unset=unset, then=self._then)
        if spec.table_options.log:
            key_fields, keys = (), []
        elif spec.keyless:
            key_fields, keys = schema.key_fields, ["k0"]
            source.add(2, f"k0 = {source.constant('new_id', partial(new_id, spec))}(row)")
        source.add(2, f"key = {key_expression(source, self._rows_begin, key_fields, keys)}")
        # One bound for the limits of key, indexed value and both together: encoded bytes are never fewer than the bytes
        # that the limits count. The slow path decides near a limit.
        if not all(key_width(field.type) for field in key_fields):
            source.add(2, f"if len(key) > {MAX_KEY_SIZE}: return None")
        indexed = {*spec.indexes, *schema.maintained}
        for position in layout.variable:
            if layout.fields[position].name in indexed and position not in unset:
                source.add(2, f"if len(key) + len({values[position]}) > {MAX_KEY_SIZE}: return None")
        if end is not None:
            source.add(2, f"if {end} > {MAX_ROW_SIZE - MAX_KEY_SIZE}: return None")
        source.add(2, f"return key, {value}")
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        return source.function("encode")


class RowCodec:
    """Encodes and decodes the rows of one table; immutable, safe to share between threads."""

    encode_full: Encoder
    """Returns raw key and raw value of a whole row, None for any other row; see `RowEncoders`."""
    encode_given: Encoder
    """As `encode_full`, of a row that may name only some fields: the others are null."""
    encode_values: Callable[[tuple[Value, ...]], bytes]
    """Returns the raw value, never empty, of checked values in the order of `schema.value_fields`; None is null."""
    decode_values: Callable[[bytes], tuple[Value, ...]]
    """Returns these values from a raw value, None for fields that its layout lacks. Raises as `projection`."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self.keys = KeyCodec(schema)
        self._layouts = {version: RowLayout(version, fields) for version, fields in schema.layouts.items()}
        self.decode_values = _Projections(
            schema, self.keys, self._layouts, tuple(field.name for field in schema.value_fields), keyed=False
        ).current
        encoders = RowEncoders(schema, self.keys.rows_begin)
        self.encode_full = encoders.generate()
        self.encode_given = encoders.encode
        self.encode_values = self._generate_encoder()

    def projection(self, columns: tuple[str, ...]) -> Projection:
        """Return the generated decoder of raw row key and raw value to exactly these columns, in this order.

        The decoder decodes only these columns. It raises `DataCorruptionError` for bytes that no encoder made, and its
        subclass `NewerLayoutError` for a row of a newer layout than the schema knows.
        """
        return _Projections(self._schema, self.keys, self._layouts, columns, keyed=True).current

    def row_projection(self, shape: RowShape) -> RowDecoder:
        """Like `projection`, but the decoder returns rows with a shape's columns."""
        return _Projections(
            self._schema, self.keys, self._layouts, shape.columns, keyed=True, row_type=shape.row_type
        ).current

    def row_completion(self, shape: RowShape) -> Callable[[bytes, Key], Row]:
        """Return a function that makes a whole row of a raw value and of a key tuple that `encode_tuple` accepted."""
        names = tuple(field.name for field in self._schema.value_fields)
        return _Projections(self._schema, self.keys, self._layouts, names, keyed=False, row_type=shape.row_type).current

    def _generate_encoder(self) -> Callable[[tuple[Value, ...]], bytes]:
        source, layout = GeneratedSource(), self._layouts[self._schema.version]
        names = [f"v{position}" for position in range(len(layout.fields))]
        source.add(0, "def encode_values(values):")
        if names:
            source.add(1, f"{', '.join(names)}, = values")
        value, _ = add_row_encoder(source, 1, layout, names, checks=False)
        source.add(1, f"return {value}")
        return source.function("encode_values")


class _Projections:
    """One projection for each layout, generated when the first row of the layout is read."""

    def __init__(
        self,
        schema: TableSchema,
        keys: KeyCodec,
        layouts: dict[int, RowLayout],
        columns: tuple[str, ...],
        *,
        keyed: bool,
        row_type: type[Row] | None = None,
    ) -> None:
        self._row_type = row_type
        self._schema = schema
        self._keys = keys
        self._layouts = layouts
        self._columns = columns
        self._key_names = [field.name for field in schema.key_fields]
        self._keyed = keyed
        self._by_version: dict[int, Callable[..., Any]] = {}
        self.current = self._of(schema.version)

    def _of(self, version: int) -> Callable[..., Any]:
        function = self._by_version.get(version)
        if function is None:
            function = self._by_version[version] = self._generate(self._layouts[version])
        return function

    def _generate(self, layout: RowLayout) -> Callable[..., Any]:
        source = GeneratedSource(self._row_type, "key" if self._row_type and not self._keyed else "")
        key_fields = self._schema.key_fields
        positions = {field.name: position for position, field in enumerate(layout.fields)}
        key_names = {name: f"k{position}" for position, name in enumerate(self._key_names)}
        wanted = {key_names[column] for column in self._columns if column in key_names}
        outputs = [key_names.get(column, positions.get(column)) for column in self._columns]
        source.add(0, f"def project({'key, value' if self._keyed else 'value, key=None'}):")
        source.add(1, "try:")
        add_key_decoder(source, 2, "key", ROW_KEY_START, key_fields, list(key_names.values()), wanted)
        if wanted and all(isinstance(output, str) for output in outputs):
            source.add_values(2, [str(output) for output in outputs])
        else:
            _add_row_decoder(source, 2, "value", layout, outputs)
        source.add(1, "except FAILURES as error:")
        source.add(2, f"return {source.constant('other', self._other)}({layout.version}, key, value, error)")
        source.add(1, f"return {source.constant('other', self._other)}({layout.version}, key, value, None)")
        return source.function("project")

    def _other(self, tried: int, key: bytes, value: bytes, error: Exception | None) -> object:
        version = int.from_bytes(value[:2], "little")
        if len(value) < 4:
            raise self._corrupt(value, "it is too short")
        if version in self._layouts and version != tried:
            return self._of(version)(key=key, value=value)
        if version == tried:
            if any(name in self._columns for name in self._key_names):
                self._keys.decode(key)
            raise self._corrupt(value, error)
        if version > self._schema.version:
            raise NewerLayoutError(
                str(self._corrupt(value, f"its layout {version} is newer than {self._schema.version}"))
            )
        raise self._corrupt(value, f"its layout {version} is unknown")

    def _corrupt(self, value: bytes, reason: object) -> DataCorruptionError:
        return corrupt(self._schema.spec.name, "row", value, reason)


def _add_row_decoder(
    source: GeneratedSource, indent: int, raw: str, layout: RowLayout, outputs: Sequence[str | int | None]
) -> None:
    """Add lines that return values decoded from one layout; a value of another layout falls through to the next line.

    `raw` is the variable with the value. Each output is literal source, the field at a position of the layout, or None.
    """
    wanted = {output for output in outputs if isinstance(output, int)}
    begins, ends = layout.edges(wanted)
    # A value without variable-length fields has a constant length, which `unpack` verifies.
    slots = layout.words_slots() + layout.fixed_slots(wanted) + layout.end_slots(ends)
    source.add_unpack(indent, "<", slots, raw, exact=not layout.variable)
    plain = " and ".join([f"w0 == {layout.version}", *(f"not w{word}" for word in range(1, layout.words))])
    for test, nulls in ((plain, False), (f"w0 & 65535 == {layout.version}", True)):
        source.add(indent, f"if {test}:")
        if ends:
            source.add(indent + 1, f"if e{layout.variable[-1]} != len({raw}): raise ValueError('its length is wrong')")
        values = [
            _field(source, raw, layout, output, begins, nulls=nulls) if isinstance(output, int) else str(output)
            for output in outputs
        ]
        source.add_values(indent + 1, values)


def _field(
    source: GeneratedSource, raw: str, layout: RowLayout, position: int, begins: dict[int, str], *, nulls: bool
) -> str:
    field = layout.fields[position]
    value = _value(source, field, f"v{position}", f"{raw}[{begins.get(position)}:e{position}]")
    if not nulls:
        return value
    word, mask = layout.null_bit(position)
    return f"None if w{word} & {mask} else {value}"


def _value(source: GeneratedSource, field: Field, name: str, piece: str) -> str:
    match field.type:
        case FieldType.STRING:
            return f"{piece}.decode()"
        case FieldType.BYTES:
            return piece
        case FieldType.DECIMAL:
            return f"{source.constant('decimal', decimal_decoder(field))}({name})"
    return from_number(field.type, name)
