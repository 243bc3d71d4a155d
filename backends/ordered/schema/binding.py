"""`TableBinding`: a table's schema with its codecs and all other values computed once per schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from structable.backends.base.bounded import Bounded
from structable.backends.ordered.codec.change_records import PACKED_BYTES, EncodedChange, pack_change, pack_whole
from structable.backends.ordered.codec.keys import KeyCodec, generate_entry_encoder
from structable.backends.ordered.codec.operands import OperandCodec
from structable.backends.ordered.codec.row_layout import RowLayout
from structable.backends.ordered.codec.row_patching import RowPatch, RowPatches
from structable.backends.ordered.codec.rows import Projection, RowCodec, RowDecoder
from structable.backends.ordered.engine import BlindStep, Increment, Operand
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import ChangelogProducer, Field, InvalidFieldError, MergeEngine, RowKind, Value
from structable.spi.authors import (
    MAX_KEY_SIZE,
    MAX_ROW_SIZE,
    Merger,
    RowRules,
    RowShape,
    Values,
    check_increment,
    check_key,
    check_row,
    check_row_size,
    equal,
    feed_channel,
    incremented,
    new_id,
    row_columns,
)

_INSERT, _UPDATE_BEFORE = RowKind.INSERT, RowKind.UPDATE_BEFORE
_UPDATE_AFTER, _DELETE = RowKind.UPDATE_AFTER, RowKind.DELETE
INDEX_MARK = b"\x01"
"""The value of every index entry."""


class IndexBinding:
    """One index that writes maintain."""

    __slots__ = ("entry", "entry_of", "field", "indexed_value", "number", "row_key")

    def __init__(self, number: int, field: Field, schema: TableSchema, keys: KeyCodec, rows: RowCodec) -> None:
        self.number = number
        self.field = field
        self.entry = keys.index_entry_encoder(number, field)
        self.row_key = keys.index_row_key_decoder(field)
        self.indexed_value = rows.projection((field.name,))
        layout = RowLayout(schema.version, schema.value_fields)
        self.entry_of = generate_entry_encoder(keys.index_begin(number), field, layout, self._encoded_entry)
        """Returns the entry of a row, given raw key and raw value."""

    def _encoded_entry(self, raw_key: bytes, raw_value: bytes) -> bytes:
        return self.entry(self.indexed_value(raw_key, raw_value)[0], raw_key)


class TableBinding:
    """A table with its generated codecs, ready for reads and writes; `raw_schema` identifies this state of it."""

    def __init__(self, schema: TableSchema, raw_schema: bytes, *, describes_merges: bool = True) -> None:
        self.schema = schema
        self.raw_schema = raw_schema
        self.spec = schema.spec
        # Rows written while an index is under construction must fit it as well.
        self.write_spec = self.spec.evolve(indexes=schema.maintained)
        self.rows = RowCodec(schema)
        self.keys = self.rows.keys
        self.encode_full = self.rows.encode_full
        self.encode_given = self.rows.encode_given
        self.patches = RowPatches(schema, self.keys)
        self._version_mark = schema.version.to_bytes(2, "little")
        self.keyless = self.spec.keyless
        self.log = self.spec.table_options.log
        """Whether rows are in the feed alone."""
        self.rules = RowRules.of(self.spec)
        computes = self.rules is not None and self.rules.answer_reads
        # Short paths to a stored row, which may lack computed fields, begin with an encoded tuple.
        self.encode_tuple = _no_key if self.keyless or computes else self.keys.encode_tuple
        self.value_names = tuple(field.name for field in schema.value_fields)
        self.value_positions = {name: position for position, name in enumerate(self.value_names)}
        self.shape = RowShape(self.spec.name, schema.row_columns, self.spec.primary_key)
        self.whole: RowDecoder = self.rows.row_projection(self.shape)
        """Decodes a row to all columns, in the order of `shape`."""
        self.row_of = self.rows.row_completion(self.shape)
        """Makes a whole row of a raw value and a key that `encode_tuple` accepted."""
        options = self.spec.table_options
        producer = options.changelog_producer
        self.feed_channel = feed_channel(self.spec.name)
        self.feeds_images = schema.feed is not None and producer is not ChangelogProducer.INPUT
        """Whether commits add images of the rows that they change to a feed."""
        self.feeds_input = schema.feed is not None and producer is ChangelogProducer.INPUT
        """Whether commits add the rows given to verbs to a feed."""
        self.merges = options.merges
        self.replaces_whole = options.merge_engine is MergeEngine.DEDUPLICATE and not options.sequence
        """Whether a merge of all fields needs no former row."""
        self.has_type = self.keyless or self.merges or self.feeds_input
        """Whether the table needs a `TypedOrderedTable`."""
        self.merges_alone = self.merges and not self.feeds_input
        """Whether an upsert is one merge and records nothing else."""
        self.bare = not schema.maintained and schema.feed is None
        """Whether a commit adds nothing to the rows that are written."""
        self.feed_beginning: tuple[int, int] | None = None
        """Version and time of the feed's first entry, once it was read."""
        self.nulls: tuple[Value, ...] = (None,) * len(self.value_names)
        self.maintained = tuple(
            IndexBinding(number, self.spec.field(name), schema, self.keys, self.rows)
            for name, number in schema.maintained.items()
        )
        self.indexes = {one.field.name: one for one in self.maintained if one.field.name in schema.indexes}
        self.puts_merged = self.feeds_images and not describes_merges
        """Whether incremented or merged rows are read and put, because the engine describes no merges."""
        self.settles_merges = bool(self.maintained) or self.puts_merged
        self.derives = bool(self.maintained) or self.feeds_images
        """Whether a commit adds entries that follow from the rows before and after it."""
        self._exact_parts = RowLayout(schema.version, schema.value_fields).exact_parts()
        self._decoders: Bounded[tuple[str, ...], RowDecoder] = Bounded()
        self._decoders[self.shape.columns] = self.whole
        self._columns: Bounded[tuple[str, ...], tuple[str, ...]] = Bounded()
        self._projections: Bounded[tuple[str, ...], Projection] = Bounded()

    @cached_property
    def merger(self) -> Merger:
        """The merge engine of the table, which has a key; its rows are in the order of `value_names`."""
        return Merger(self.spec, self.value_names)

    @cached_property
    def raw_nulls(self) -> bytes:
        """The raw value of a row with only a key."""
        return self.rows.encode_values(self.nulls)

    @cached_property
    def operands(self) -> OperandCodec | None:
        """The codec of merges that read no row; None unless the table's merges commute."""
        if self.spec.keyless or self.maintained or not self.merger.blind:
            return None
        return OperandCodec(self.schema, self.merger, self.rows, self.keys.rows_begin)

    def raw_key(self, key: object) -> bytes:
        """Check a whole key of a user and return its encoding."""
        raw = self.encode_tuple(key) if key.__class__ is tuple else None
        return self.keys.encode_checked(check_key(self.spec, key)) if raw is None else raw

    def checked_raw_key(self, row: Mapping[str, Value]) -> bytes:
        """Return the encoded key of a checked row: a new one in a keyless table, and only the prefix in a log."""
        if self.log:
            return self.keys.rows_begin
        if self.keyless:
            return self.keys.encode_checked((new_id(self.spec, row),))
        return self.keys.encode_checked(tuple([row[name] for name in self.spec.primary_key]))

    def key_of(self, raw_key: bytes) -> tuple[Value, ...]:
        """Return the primary key of a row, which is empty in a table without one."""
        return () if self.keyless else self.keys.decode(raw_key)

    def row_decoder(self, columns: tuple[str, ...]) -> RowDecoder:
        """Return the decoder of rows of these columns, the key among them."""
        found = self._decoders.get(columns)
        if found is None:
            found = self.rows.row_projection(RowShape(self.spec.name, columns, self.spec.primary_key))
            self._decoders[columns] = found
        return found

    def projection(self, columns: tuple[str, ...]) -> Projection:
        """Return the decoder of raw row key and raw value to the values of these columns."""
        found = self._projections.get(columns)
        if found is None:
            found = self.rows.projection(columns)
            self._projections[columns] = found
        return found

    def row_columns(self, columns: Iterable[str] | None) -> tuple[str, ...]:
        """Check the columns of a read and return the columns of its rows: the key, then the other requested columns."""
        if columns is None:
            return self.shape.columns
        if columns.__class__ is not list and columns.__class__ is not tuple:
            return row_columns(self.spec, columns) or ()
        given = tuple(columns)
        try:
            return self._columns[given]
        except (KeyError, TypeError):
            found = row_columns(self.spec, given) or ()
        self._columns[given] = found
        return found

    def row_key(self, row: Mapping[str, Value]) -> bytes:
        """Return the encoded key of a user's row; rejects a wrong key, but not every row with a wrong field."""
        raw = None
        if row.__class__ is dict:  # other mappings may compute missing fields
            raw = self.encode_tuple(tuple(map(row.get, self.spec.primary_key)))
        return self.checked_raw_key(check_row(self.write_spec, row)) if raw is None else raw

    def patched(self, patch: RowPatch | None, raw_key: bytes, row: Mapping[str, Value], old: bytes | None) -> bytes:
        """Return the result of `changed`, by the patch for the row's names if there is one."""
        raw = None if patch is None or old is None else patch.change(row, raw_key, old)
        return self.changed(row, old) if raw is None else raw

    def changed(self, row: Mapping[str, Value], old: bytes | None) -> bytes:
        """Return the raw value of a row after a user's change; fields that the change does not name are as before."""
        if row.__class__ is dict:
            encoded = self.encode_given(row) if old is None else self.encode_full({**self.named(old, None), **row})
            if encoded is not None:
                return encoded[1]
        checked = check_row(self.write_spec, row)
        return self.merged(self.checked_raw_key(checked), old, checked)

    def named(self, raw: bytes, columns: tuple[str, ...] | None) -> dict[str, Value]:
        """Return a row's fields outside the key with their values: all of them, or those in `columns`."""
        fields = dict(zip(self.value_names, self.rows.decode_values(raw), strict=True))
        return fields if columns is None else {name: fields[name] for name in columns if name in fields}

    def merged(self, raw_key: bytes, old: bytes | None, changes: Mapping[str, Value]) -> bytes:
        """Return the raw value of a row after checked changes: other fields keep their old value, or null."""
        values = list(self.nulls if old is None else self.rows.decode_values(old))
        for name, value in changes.items():
            position = self.value_positions.get(name)
            if position is not None:
                values[position] = value
        return self.encoded(raw_key, tuple(values))

    def encoded(self, raw_key: bytes, values: Values) -> bytes:
        """Return the raw value of a row of checked values; rejects one over the limits."""
        raw = self.rows.encode_values(values)
        # Encoded values are no shorter than the sizes that limits count: most rows are far from any limit.
        if len(raw_key) + len(raw) > MAX_KEY_SIZE:
            key = zip(self.spec.primary_key, self.key_of(raw_key), strict=True)
            check_row_size(self.write_spec, {**dict(zip(self.value_names, values, strict=True)), **dict(key)})
        return raw

    def within_limits(self, raw_key: bytes, raw: bytes) -> bytes:
        """Return the raw value of a row after increments; rejects a row over the limit."""
        if len(raw_key) + len(raw) > MAX_ROW_SIZE:
            self.encoded(raw_key, self.rows.decode_values(raw))
        return raw

    def incremented(self, raw: bytes | None, increments: Sequence[Increment]) -> bytes:
        """Return the raw value of a row after increments; an absent row and null count as 0. Rejects an overflow."""
        values = list(self.nulls if raw is None else self.rows.decode_values(raw))
        for increment in increments:
            position = self.value_positions[increment.field]
            field = self.schema.value_fields[position]
            values[position] = incremented(self.spec.name, field, values[position], increment.amount)
        return self.rows.encode_values(tuple(values))

    def applied(self, raw: bytes | None, steps: Sequence[BlindStep]) -> bytes:
        """Return the raw value of a row after increments or operands; rejects an overflow."""
        if isinstance(steps[0], Increment):
            return self.incremented(raw, _increments(steps))
        assert self.operands is not None, "the operands of a table have its schema"
        first, *others = _operands(steps)
        merged = self.operands.absorb(raw, first)
        for operand in others:
            merged = self.operands.absorb(merged, operand)
        return merged

    def images(
        self, writes: Mapping[bytes, bytes | None], originals: Mapping[bytes, bytes | None]
    ) -> list[EncodedChange]:
        """Return a feed's images of writes, without rows that stay equal, or come and go again in a bag.

        `originals` has the former raw value of each key in `writes`.
        """
        records: list[EncodedChange] = []
        for raw_key, after in writes.items():
            before = originals[raw_key]
            if before is None:
                if after is not None:
                    records.append((_INSERT, raw_key, after))
            elif after is None:
                records.append((_DELETE, raw_key, before))
            elif before != after and self._differ(before, after):
                records += ((_UPDATE_BEFORE, raw_key, before), (_UPDATE_AFTER, raw_key, after))
        return self._net_by_value(records) if self.keyless else records

    def packed_images(
        self, writes: Mapping[bytes, bytes | None], originals: Mapping[bytes, bytes | None]
    ) -> list[bytes]:
        """Return the result of `images`, packed."""
        if len(writes) == 1:
            [(raw_key, after)] = writes.items()
            before = originals[raw_key]
            if before == after or (before is not None and after is not None and not self._differ(before, after)):
                return []
            if len(before or b"") + len(after or b"") < PACKED_BYTES:
                return [pack_change(raw_key, before, after)]
        return pack_whole(self.images(writes, originals))

    def _net_by_value(self, records: list[EncodedChange]) -> list[EncodedChange]:
        """Return the records of a keyless table, without equal rows that are both inserted and deleted."""
        equal_rows = self.keys.equal_rows
        gone = [equal_rows(raw_key)[0] for kind, raw_key, _ in records if kind is _DELETE]
        if not gone:
            return records
        come = [equal_rows(raw_key)[0] for kind, raw_key, _ in records if kind is _INSERT]
        cancelled = Counter(come) & Counter(gone)
        left_out = {_INSERT: cancelled.copy(), _DELETE: cancelled}
        kept: list[EncodedChange] = []
        for record in records:
            equal_to = equal_rows(record[1])[0]
            if left_out[record[0]][equal_to]:
                left_out[record[0]][equal_to] -= 1
            else:
                kept.append(record)
        return kept

    def _differ(self, raw: bytes, other: bytes) -> bool:
        """Return whether rows of different bytes differ: in other layouts, or in floats, they may be equal."""
        if raw.startswith(self._version_mark) and other.startswith(self._version_mark):
            for part in self._exact_parts:
                if raw[part] != other[part]:
                    return True
        pairs = zip(self.rows.decode_values(raw), self.rows.decode_values(other), strict=True)
        return any(
            (one is None) != (two is None) or (one is not None and two is not None and not equal(one, two))
            for one, two in pairs
        )

    def described(self, raw_key: bytes, before: bytes | None, after: bytes) -> tuple[bytes, bytes] | None:
        """Return the result of `Upcalls.describe` for a merge."""
        if self.schema.feed is None or not self.feeds_images:
            return None
        if before == after or (before is not None and not self._differ(before, after)):
            return None
        return self.schema.feed.space, pack_change(raw_key, before, after)

    def fits(self, raw: bytes | None, steps: Sequence[BlindStep], others: Sequence[BlindStep]) -> bool:
        """Return whether steps fit a row with any of the others, all of one kind; False if that is not certain."""
        if any(step.schema != self.raw_schema for step in others):
            return False  # from before and after a schema change: one of the commits will fail
        if isinstance(steps[0], Operand):
            assert self.operands is not None, "the operands of a table have its schema"
            return self.operands.fits(raw, _operands(steps), _operands(others))
        own, theirs = _increments(steps), _increments(others)
        try:
            for sign in (1, -1):
                self.incremented(raw, [*(step for step in theirs if step.amount * sign > 0), *own])
        except InvalidFieldError:
            return False
        return True

    def current(self, raw: bytes) -> bytes:
        return raw if raw.startswith(self._version_mark) else self.rows.encode_values(self.rows.decode_values(raw))

    def checked_increment(self, field: object, amount: object) -> Increment:
        changed, step = check_increment(self.spec, field, amount)
        return Increment(self.raw_schema, changed.name, step)

    def derive(
        self,
        writes: Mapping[bytes, bytes | None],
        originals: Mapping[bytes, bytes | None],
        derived: dict[bytes, bytes | None],
    ) -> None:
        """Add the changes of index entries that follow from writes of rows to `derived`; None deletes.

        `originals` has the former raw value of each key in `writes`.
        """
        for index in self.maintained:
            entry_of = index.entry_of
            for raw_key, new in writes.items():
                old = originals[raw_key]
                if old is None:
                    if new is not None:
                        derived[entry_of(raw_key, new)] = INDEX_MARK
                    continue
                before = entry_of(raw_key, old)
                after = None if new is None else entry_of(raw_key, new)
                if after != before:
                    derived[before] = None
                    if after is not None:
                        derived[after] = INDEX_MARK


def _no_key(_: object) -> None:
    return None


def _increments(steps: Sequence[BlindStep]) -> list[Increment]:
    return [step for step in steps if isinstance(step, Increment)]


def _operands(steps: Sequence[BlindStep]) -> list[bytes]:
    return [step.row for step in steps if isinstance(step, Operand)]
