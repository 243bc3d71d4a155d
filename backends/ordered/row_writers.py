"""`RowWriter`: computes the effects of row writes on a table in a transaction.

A writer reads rows and returns pairs, which the table writes. Only steps that need no row are recorded at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from structable.spi import RecordExistsError, RecordNotFoundError, RowKind, Value
from structable.spi.authors import (
    APPLY_CHANGES,
    IGNORED,
    UPDATE,
    UPDATE_MANY,
    UPSERT,
    Effect,
    FeedRecords,
    RowWrites,
    Values,
    When,
    check_default,
    check_increments,
    check_many,
    check_row,
    check_row_kinds,
    check_swap,
    equal,
    update_with_default,
)

from .codec.change_records import EncodedChange
from .codec.row_patching import RowPatch
from .engine import Increment
from .overlay import TableOverlay
from .schema.binding import TableBinding

GivenRow: TypeAlias = Mapping[str, Value]
_MERGE, _PUT, _CHANGE, _STEP = Effect.MERGE, Effect.PUT, Effect.CHANGE, Effect.STEP


WrittenPair: TypeAlias = tuple[bytes, bytes | None]
"""A raw key and its row; None deletes."""
Pairs: TypeAlias = Sequence[WrittenPair]
"""In the order of the writes."""
Written: TypeAlias = tuple[Pairs, Sequence[bytes]]
"""The effects of writes, and the raw keys of skipped writes, each once."""
_NOTHING: Written = ((), ())


class RowWriter:
    """Writes of a table with a key whose upserts change the fields that they name."""

    def written(self, table: TableOverlay, writes: RowWrites) -> Written:
        """Return the effects of writes; changes nothing, but may record blind steps."""
        if writes.verb is UPSERT:
            pair = self.upserted(table, writes.rows[0])
            return _NOTHING if pair is None else ((pair,), ())
        effect = writes.verb.effect
        if effect is _MERGE:
            return self.merged(table, writes)
        if effect is _PUT:
            return self.put(table, writes)
        if effect is _STEP:
            return self.stepped(table, writes)
        if effect is _CHANGE:
            return _swapped(table, writes) if writes.verb.when is not When.PRESENT else _updated(table, writes)
        return _removed(table, writes)

    def upserted(self, table: TableOverlay, row: GivenRow) -> WrittenPair | None:
        """Return the pair that an upsert of one row writes; None if it writes nothing or records a blind step."""
        return table.binding.encode_full(row) or changed_row(table, row)

    def merged(self, table: TableOverlay, writes: RowWrites) -> Written:
        if writes.verb is APPLY_CHANGES:
            return merged_rows(table, check_row_kinds(table.binding.spec, writes.rows))
        rows = rows_of(table, writes, "rows")
        encode_full = table.binding.encode_full
        encoded = [encode_full(row) for row in rows]
        if None not in encoded:
            return encoded, ()  # type: ignore[return-value]  # no element is None
        return _changed_rows(table, rows, [None] * len(rows))

    def put(self, table: TableOverlay, writes: RowWrites) -> Written:
        binding = table.binding
        given = [given_row(binding, row) for row in rows_of(table, writes, "rows")]
        if writes.verb.when is When.ABSENT:
            found = found_rows(table, [raw_key for raw_key, _ in given])
            taken = {raw_key for raw_key, raw in found.items() if raw is not None}
            for raw_key, _ in given:
                if raw_key in taken:
                    raise RecordExistsError(binding.spec.name, binding.keys.decode(raw_key))
                taken.add(raw_key)
        return given, ()

    def stepped(self, table: TableOverlay, writes: RowWrites) -> Written:
        """Return the effects of increments: blind, unless index entries depend on the result, or a feed keeps it."""
        binding, increments = table.binding, table.increments
        if writes.rows.__class__ is tuple:
            [(key, field, amount)] = writes.rows
            raw_key, step = binding.raw_key(key), binding.checked_increment(field, amount)
            if (
                raw_key in table.writes
                or binding.feeds_input
                or (binding.maintained and (field in binding.schema.maintained or table.is_absent(raw_key)))
            ):
                raw = binding.incremented(table.raw_value(raw_key), (step,))
                return [(raw_key, binding.within_limits(raw_key, raw))], ()
            table.note_steps({raw_key: (*increments.get(raw_key, ()), step)})
            return _NOTHING
        steps: dict[bytes, tuple[Increment, ...]] = {}
        for checked, changed, amount in check_increments(binding.spec, writes.rows):
            raw_key = binding.keys.encode_checked(checked)
            steps[raw_key] = (*steps.get(raw_key, ()), Increment(binding.raw_schema, changed.name, amount))
        written = _stepped_rows(table, steps)
        table.note_steps(
            {
                raw_key: (*increments.get(raw_key, ()), *some)
                for raw_key, some in steps.items()
                if raw_key not in written
            }
        )
        return [*written.items()], ()


PLAIN = RowWriter()


def given_row(binding: TableBinding, row: GivenRow) -> tuple[bytes, bytes]:
    """Return key and row of exactly the named fields, with nulls in the others; a keyless table gets a new key."""
    encoded = binding.encode_full(row) or binding.encode_given(row)
    if encoded is None:
        checked = check_row(binding.write_spec, row)
        raw_key = binding.checked_raw_key(checked)
        encoded = raw_key, binding.merged(raw_key, None, checked)
    return encoded


def changed_row(table: TableOverlay, row: GivenRow, *, must_exist: bool = False) -> tuple[bytes, bytes]:
    """Return key and row after a change of the named fields, or of a new row, unless one must exist."""
    binding = table.binding
    patch = binding.patches.of(row)
    raw_key = _row_key(binding, patch, row)
    old = table.raw_value(raw_key)
    if must_exist and old is None:
        check_row(binding.write_spec, row)
        raise RecordNotFoundError(binding.spec.name, binding.keys.decode(raw_key))
    return raw_key, binding.patched(patch, raw_key, row, old)


def _row_key(binding: TableBinding, patch: RowPatch | None, row: GivenRow) -> bytes:
    raw_key = None if patch is None else patch.key(row)
    return binding.row_key(row) if raw_key is None else raw_key


def rows_of(table: TableOverlay, writes: RowWrites, argument: str) -> Sequence[Any]:
    """Return the given rows; `argument` is their name in the error of an argument that has none."""
    return writes.rows if writes.rows.__class__ is tuple else check_many(table.binding.spec, argument, writes.rows)


def found_rows(table: TableOverlay, raw_keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """Return the table's rows with these keys."""
    if len(raw_keys) == 1:
        return {raw_keys[0]: table.raw_value(raw_keys[0])}
    distinct = sorted(set(raw_keys))
    return dict(zip(distinct, table.raw_values(distinct), strict=True))


def _changed_rows(
    table: TableOverlay, rows: Sequence[GivenRow], starts: Sequence[GivenRow | None], *, must_exist: bool = False
) -> Written:
    """Return the rows after all changes, and the keys of required rows that do not exist."""
    binding, of = table.binding, table.binding.patches.of
    if _all_dicts(rows) and len(set(map(tuple, rows))) == 1:
        patches = [of(rows[0])] * len(rows)
    else:
        patches = [of(row) for row in rows]
    raw_keys = [_row_key(binding, patch, row) for patch, row in zip(patches, rows, strict=True)]
    newest = found_rows(table, raw_keys)
    pairs: list[tuple[bytes, bytes | None]] = []
    missing: dict[bytes, None] = {}
    for raw_key, patch, row, start in zip(raw_keys, patches, rows, starts, strict=True):
        old = newest[raw_key]
        if old is None and start is not None:
            row = {**start, **row}
        elif old is None and must_exist:
            check_row(binding.write_spec, row)
            missing[raw_key] = None
            continue
        newest[raw_key] = raw = binding.patched(patch, raw_key, row, old)
        pairs.append((raw_key, raw))
    return pairs, list(missing)


def _updated(table: TableOverlay, writes: RowWrites) -> Written:
    binding, default = table.binding, writes.default
    if default is None and writes.verb is UPDATE:
        return [changed_row(table, writes.rows[0], must_exist=True)], ()
    starts: list[GivenRow | None]
    rows: Sequence[Any] = rows_of(table, writes, "updates")
    if default is None and _all_dicts(rows):
        starts = [None] * len(rows)
    else:
        spec, many = binding.write_spec, writes.verb is UPDATE_MANY
        given = [update_with_default(one, default) if many else (one, default) for one in rows]
        rows = [row for row, _ in given]
        starts = [None if one is None else check_default(spec, check_row(spec, row), one) for row, one in given]
    return _changed_rows(table, rows, starts, must_exist=True)


def _swapped(table: TableOverlay, writes: RowWrites) -> Written:
    binding = table.binding
    [(key, field, expected, value)] = writes.rows
    raw_key = binding.raw_key(key)
    wanted, new = check_swap(binding.write_spec, field, expected, value)
    raw = table.raw_value(raw_key)
    found = None if raw is None else binding.rows.decode_values(raw)[binding.value_positions[field]]
    if (found is None) != (wanted is None) or (found is not None and not equal(found, wanted)):
        return (), [raw_key]
    return [(raw_key, binding.merged(raw_key, raw, {field: new}))], ()


def _removed(table: TableOverlay, writes: RowWrites) -> Written:
    binding = table.binding
    if writes.rows.__class__ is tuple:
        raw_key = binding.raw_key(writes.rows[0])
        return _NOTHING if table.raw_value(raw_key) is None else ([(raw_key, None)], ())
    found = found_rows(table, [binding.raw_key(key) for key in rows_of(table, writes, "keys")])
    return [(raw_key, None) for raw_key, raw in found.items() if raw is not None], ()


def _stepped_rows(table: TableOverlay, steps: Mapping[bytes, tuple[Increment, ...]]) -> dict[bytes, bytes | None]:
    """Return the rows after increments that cannot be blind."""
    binding, indexed = table.binding, table.binding.schema.maintained
    known = {raw_key: table.writes[raw_key] for raw_key in steps if raw_key in table.writes}
    wanted = binding.maintained or table.binding.feeds_input
    unknown = sorted(steps.keys() - known.keys()) if wanted else []
    rows = {**known, **dict(zip(unknown, table.raw_values(unknown), strict=True))}
    return {
        raw_key: binding.within_limits(raw_key, binding.incremented(rows[raw_key], some))
        for raw_key, some in steps.items()
        if raw_key in rows
        if raw_key in known
        or rows[raw_key] is None
        or table.binding.feeds_input
        or any(one.field in indexed for one in some)
    }


def _all_dicts(rows: Sequence[object]) -> bool:
    return set(map(type, rows)) == {dict}


def merged_rows(table: TableOverlay, changes: Sequence[tuple[RowKind, GivenRow]]) -> Written:
    """Return the pairs that changes write one after the other; the changes are also merged with one another."""
    binding = table.binding
    if len(changes) == 1:
        pair = merged_row(table, *changes[0])
        return _NOTHING if pair is None else ((pair,), ())
    checked = [(kind, *_checked(binding, row)) for kind, row in changes]
    rows: dict[bytes, Values | None] = {}
    unread: set[bytes] = set()
    for kind, raw_key, row in checked:
        if raw_key not in rows:
            rows[raw_key] = None
            if not _replaces(binding, kind, row):
                unread.add(raw_key)
    if unread:
        decode = binding.rows.decode_values
        for raw_key, raw in found_rows(table, [*unread]).items():
            if raw is not None:
                rows[raw_key] = decode(raw)
    merge = binding.merger.apply
    written: set[bytes] = set()
    for kind, raw_key, row in checked:
        old = rows[raw_key]
        new = merge(old, kind, row)
        if new is not IGNORED and not (new is old is None and raw_key not in written):
            rows[raw_key] = new
            written.add(raw_key)
    encoded = binding.encoded
    return [
        (raw_key, None if (values := rows[raw_key]) is None else encoded(raw_key, values)) for raw_key in written
    ], ()


def merged_row(table: TableOverlay, kind: RowKind, row: GivenRow) -> WrittenPair | None:
    """Return the pair that a change writes, if any."""
    binding = table.binding
    raw_key, row = _checked(binding, row)
    raw = None if _replaces(binding, kind, row) else table.raw_value(raw_key)
    old = None if raw is None else binding.rows.decode_values(raw)
    new = binding.merger.apply(old, kind, row)
    if new is IGNORED or new is old is None:
        return None
    return raw_key, None if new is None else binding.encoded(raw_key, new)


def _checked(binding: TableBinding, row: GivenRow) -> tuple[bytes, GivenRow]:
    encoded = binding.encode_given(row)
    if encoded is not None:
        return encoded[0], row
    checked = check_row(binding.write_spec, row)
    return binding.checked_raw_key(checked), checked


def _replaces(binding: TableBinding, kind: RowKind, row: GivenRow) -> bool:
    """Return whether a change determines the whole row, whatever it was before."""
    if not binding.replaces_whole or kind.retracts:
        return False
    unnamed = len(binding.spec.fields) - len(row)
    soft_delete = binding.spec.table_options.soft_delete
    return unnamed == 0 or (unnamed == 1 and soft_delete is not None and soft_delete not in row)


def records_of(binding: TableBinding, writes: RowWrites, pairs: Pairs) -> list[EncodedChange]:
    """Return the records that a feed with the producer `input` keeps of finished writes."""
    verb, nulls = writes.verb, binding.raw_nulls
    if verb.effect is Effect.REMOVE:
        given = [raw_key for raw_key, _ in pairs]
        if verb.records is FeedRecords.GIVEN:
            given = [binding.raw_key(key) for key in writes.rows]
        return [(RowKind.DELETE, raw_key, nulls) for raw_key in given]
    if verb.effect is Effect.MERGE:
        if verb is APPLY_CHANGES:
            return [(kind, *given_row(binding, row)) for kind, row in check_row_kinds(binding.spec, writes.rows)]
        if binding.merges:
            return [(RowKind.UPDATE_AFTER, *given_row(binding, row)) for row in writes.rows]
        # A whole row is written as given: it is already encoded.
        count = len(binding.spec.fields)
        return [
            (RowKind.UPDATE_AFTER, *(given_row(binding, row) if raw is None or len(row) < count else (raw_key, raw)))
            for row, (raw_key, raw) in zip(writes.rows, pairs, strict=True)
        ]
    kind = RowKind.INSERT if verb.when is When.ABSENT else RowKind.UPDATE_AFTER
    return [(kind, raw_key, nulls if raw is None else raw) for raw_key, raw in pairs]
