"""`RowCodec`: the values of a table's rows, encoded as `row_layout` defines; generated for each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Row
from structable.spi.rows import RowShape
from structable.spi.rules.keyless import new_id
from structable.spi.values import MAX_KEY_SIZE, MAX_ROW_SIZE, Key, Value

from .key_fields import add_key_checks, add_key_decoder, key_expression, key_width
from .keys import ROW_KEY_START, KeyCodec
from .row_decoding import add_row_decoder
from .row_encoding import add_row_encoder
from .row_layout import RowLayout
from .source import NewerLayoutError, Source, corrupt

__all__ = ["Projection", "RowCodec", "RowDecoder"]

Projection: TypeAlias = Callable[[bytes, bytes], tuple[Value, ...]]
"""Raw row key and raw value to the values of some columns."""
RowDecoder: TypeAlias = Callable[[bytes, bytes], Row]
"""Raw row key and raw value to a row of some columns."""


class RowCodec:
    """Encodes and decodes the rows of one table; immutable, safe to share between threads."""

    encode_full: Callable[[Mapping[str, Value]], tuple[bytes, bytes] | None]
    """Raw key and raw value of a mapping, or None for any unusual mapping, on which `check_row` then decides.

    Unusual: it is not a dict of exactly the table's fields, a value is not in its stored form, or a size may be over a
    limit. Never accepts a mapping that `check_row` rejects. The key of a table without one is new at each call.
    """
    encode_values: Callable[[tuple[Value, ...]], bytes]
    """The raw value, never empty, of checked values in the order of `schema.value_fields`; None is null."""
    decode_values: Callable[[bytes], tuple[Value, ...]]
    """The same tuple from a raw value; fields that the row's layout lacks are None. Raises as `projection` does."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._keys = KeyCodec(schema)
        self._layouts = {version: RowLayout(version, fields) for version, fields in schema.layouts.items()}
        self.decode_values = _Projections(
            schema, self._keys, self._layouts, tuple(field.name for field in schema.value_fields), keyed=False
        ).current
        self.encode_full = self._generate_full_encoder()
        self.encode_values = self._generate_encoder()

    def projection(self, columns: tuple[str, ...]) -> Projection:
        """Return the generated decoder of raw row key and raw value to exactly these columns, in this order.

        The decoder decodes only these columns. It raises `DataCorruptionError` for bytes that no encoder made, and its
        subclass `NewerLayoutError` for a row of a newer layout than the schema knows.
        """
        return _Projections(self._schema, self._keys, self._layouts, columns, keyed=True).current

    def row_projection(self, shape: RowShape) -> RowDecoder:
        """Like `projection`, but the decoder returns rows with a shape's columns."""
        return _Projections(
            self._schema, self._keys, self._layouts, shape.columns, keyed=True, row_type=shape.row_type
        ).current

    def row_completion(self, shape: RowShape) -> Callable[[bytes, Key], Row]:
        """Return the decoder of a raw value and a key tuple that `encode_tuple` accepted to a whole row."""
        names = tuple(field.name for field in self._schema.value_fields)
        return _Projections(
            self._schema, self._keys, self._layouts, names, keyed=False, row_type=shape.row_type
        ).current

    def _generate_encoder(self) -> Callable[[tuple[Value, ...]], bytes]:
        source, layout = Source(), self._layouts[self._schema.version]
        names = [f"v{position}" for position in range(len(layout.fields))]
        source.add(0, "def encode_values(values):")
        if names:
            source.add(1, f"{', '.join(names)}, = values")
        value, _ = add_row_encoder(source, 1, layout, names, checks=False)
        source.add(1, f"return {value}")
        return source.function("encode_values")

    def _generate_full_encoder(self) -> Callable[[Mapping[str, Value]], tuple[bytes, bytes] | None]:
        source, schema = Source(), self._schema
        layout, spec = self._layouts[schema.version], schema.spec
        key_fields = spec.key_fields
        keys = [f"k{position}" for position in range(len(key_fields))]
        values = [f"v{position}" for position in range(len(layout.fields))]
        source.add(0, "def encode_full(row):")
        source.add(1, f"if row.__class__ is not dict or len(row) != {len(keys) + len(values)}: return None")
        source.add(1, "try:")
        for field, name in zip((*key_fields, *layout.fields), (*keys, *values), strict=True):
            source.add(2, f"{name} = row[{field.name!r}]")
        add_key_checks(source, 2, key_fields, keys)
        value, end = add_row_encoder(source, 2, layout, values, checks=True)
        if spec.keyless:
            key_fields, keys = schema.key_fields, ["k0"]
            source.add(2, f"k0 = {source.constant('new_id', partial(new_id, spec))}(row)")
        source.add(2, f"key = {key_expression(source, self._keys.rows_begin, key_fields, keys)}")
        # One bound for the limits of key, indexed value and both together: encoded bytes are never fewer than the bytes
        # that the limits count. The slow path decides near a limit.
        if not all(key_width(field.type) for field in key_fields):
            source.add(2, f"if len(key) > {MAX_KEY_SIZE}: return None")
        indexed = {*spec.indexes, *schema.maintained}
        for position in layout.variable:
            if layout.fields[position].name in indexed:
                source.add(2, f"if len(key) + len({values[position]}) > {MAX_KEY_SIZE}: return None")
        if end is not None:
            source.add(2, f"if {end} > {MAX_ROW_SIZE - MAX_KEY_SIZE}: return None")
        source.add(2, f"return key, {value}")
        source.add(1, "except FAILURES:")
        source.add(2, "return None")
        return source.function("encode_full")


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
        source = Source(self._row_type, "key" if self._row_type and not self._keyed else "")
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
            add_row_decoder(source, 2, "value", layout, outputs)
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
