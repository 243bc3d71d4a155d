"""Merges: deferred as other writes are, for rows of one key in rounds, each of which has distinct keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import build_rows, lookup_many_call
from structable.backends.postgresql.sql.merge_statements import merge_many, merge_row
from structable.backends.postgresql.sql.merging import Effect, effect_of
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.spi import RowKind, TableSpecification, Value
from structable.spi.merging import IGNORED, Merger, Values
from structable.spi.rules.rows import check_row_size
from structable.spi.table_options import AggregateFunction
from structable.spi.values import MAX_ROW_SIZE

from .bound_table import BoundTable
from .key_deletes import delete_keys
from .refusals import refusal_of_merges
from .row_arrays import SINGLE, arrays, portions
from .seen_rows import ABSENT
from .server_transaction import ServerTransaction
from .upsert_many import upsert_batch

__all__ = ["SnapshotNeededError", "apply_plain_changes", "merge_changes", "merge_one"]

Given: TypeAlias = Mapping[str, Value]
_MOST_ROUNDS = 8
"""Rows of one key in a call, beyond which they are merged here instead of by a statement for each."""


class SnapshotNeededError(Exception):
    """A call depends on what it found in rows before it wrote them, which needs a snapshot."""


def _merger(binding: TableBinding) -> Merger:
    found: Merger = binding.kept("merger", lambda: Merger(binding.spec))
    return found


def merge_one(tx: ServerTransaction, table: BoundTable, row: Given, names: tuple[str, ...], pieces: Pieces) -> None:
    """Merge an upsert of a checked row; `names` and `pieces` are in the order of statements."""
    _require_size(table.binding, row, pieces)
    _defer_single(tx, table, table.binding, Effect.ADD, names, (row, pieces))
    if not tx.has_one_call:  # otherwise no later write asks
        _note(table, Effect.ADD, pieces)


def merge_changes(tx: ServerTransaction, table: BoundTable, changes: Iterable[tuple[RowKind, Given]]) -> None:
    """Merge checked rows in their order; raises, before anything is written, what can be refused without the rows."""
    binding = table.binding
    merger, spec = _merger(binding), binding.spec
    width = len(binding.key_fields)
    rounds: list[dict[tuple[Effect, tuple[str, ...]], dict[Pieces, tuple[Given, Pieces]]]] = []
    counts: dict[Pieces, int] = {}
    given: list[tuple[RowKind, Given]] = []
    for kind, row in changes:
        merger.refuse(kind, row)
        effect = effect_of(spec, merger, kind)
        if effect is Effect.NOTHING:
            continue
        if effect is Effect.DELETE and tx.waits:
            raise SnapshotNeededError  # it would not see a row that is deleted and inserted again while it waits
        given.append((kind, row))
        for one in _negatable(spec, effect, row):
            names = binding.ordered(one if effect is not Effect.DELETE else [*spec.primary_key, *_sequence(spec, one)])
            pieces = binding.encoder(tuple(one)).pieces(one)
            _require_size(binding, one, pieces)
            if effect is Effect.DELETE:
                all_names = binding.ordered(one)
                pieces = tuple([pieces[all_names.index(name)] for name in names])
            key = pieces[:width]
            place = counts.get(key, 0)
            counts[key] = place + 1
            if place == len(rounds):
                rounds.append({})
            rounds[place].setdefault((effect, names), {})[key] = (one, pieces)
    if len(rounds) > _MOST_ROUNDS:
        _merge_here(tx, table, merger, given)
        return
    writes = [
        (effect, names, portion)
        for one in rounds
        for (effect, names), rows in one.items()
        for portion in portions([rows[key] for key in sorted(rows)], lambda row: at_most(row[1]))
    ]
    tx.require_room(sum(at_most(pieces) for _, _, portion in writes for _, pieces in portion))
    for effect, names, portion in writes:
        if len(portion) > SINGLE:
            _defer_many(tx, table, binding, effect, names, portion)
        else:
            for row_and_pieces in portion:
                _defer_single(tx, table, binding, effect, names, row_and_pieces)
    for effect, _, portion in writes:
        for _, pieces in portion:
            _note(table, effect, pieces)


def _require_size(binding: TableBinding, row: Given, pieces: Pieces) -> None:
    """Reject a row that is too large with the flag of a soft delete, which the merge adds."""
    softly = binding.spec.table_options.soft_delete
    if softly is not None and softly not in row and at_most(pieces) >= MAX_ROW_SIZE:
        check_row_size(binding.write_spec, {**row, softly: True})


def _note(table: BoundTable, effect: Effect, pieces: Pieces) -> None:
    """Record what is known of a row after a merge: a later write of the transaction need not ask for the row then."""
    binding, seen = table.binding, table.seen
    options = binding.spec.table_options
    key = pieces[: len(binding.key_fields)]
    if effect is Effect.DELETE:
        seen.put(key, None if options.sequence else ABSENT)
    elif effect is Effect.RETRACT and options.groups:
        seen.put(key, None)
    else:
        width, before = binding.width_without(()), seen.get(key)
        grown = at_most(pieces) + sum(len(one.delimiter.encode()) for one in options.functions.values())
        most = width if width is not None else MAX_ROW_SIZE if before is None else max(before, 0) + grown
        seen.put(key, most)


def _sequence(spec: TableSpecification, row: Given) -> list[str]:
    return [name for name in spec.table_options.sequence if name in row]


def _negatable(spec: TableSpecification, effect: Effect, row: Given) -> list[Given]:
    """Return the changes that together do what a retract does: the negative of the lowest integer does not fit."""
    options = spec.table_options
    if effect is not Effect.RETRACT:
        return [row]
    lowest = {}
    for name, one in options.functions.items():
        value, bits = row.get(name), spec.field(name).type.integer_bits
        if one.function is AggregateFunction.SUM and bits and value == -(1 << (bits - 1)):
            lowest[name] = value
    if not lowest:
        return [row]
    kept = {name for group in options.groups for name in group.fields} | set(spec.primary_key)
    rest = {name: value for name, value in row.items() if name in kept}
    return [
        {**row, **{name: value + 1 for name, value in lowest.items()}},  # type: ignore[operator]  # integers
        {**rest, **dict.fromkeys(lowest, -1)},
    ]


def _defer_single(
    tx: ServerTransaction,
    table: BoundTable,
    first: TableBinding,
    effect: Effect,
    names: tuple[str, ...],
    one: tuple[Given, Pieces],
) -> None:
    """Defer a merge of a row that was encoded for the `first` version of the table, which may be another by now."""
    row, pieces = one
    waits = tx.waits

    def build(binding: TableBinding) -> Call:
        given = pieces if binding is first else binding.row_pieces(names, row)
        return Call(merge_row(binding, effect, names, waits=waits), given)

    # A statement of one row may run alone, at READ COMMITTED, where this one would not insert a row that is deleted
    # while it waits. Without a key it runs in a snapshot.
    key = None if tx.has_one_call and not waits else pieces[: len(first.key_fields)]
    tx.defer(table, build, key, refusal_of_merges(first, names))


def _defer_many(
    tx: ServerTransaction,
    table: BoundTable,
    first: TableBinding,
    effect: Effect,
    names: tuple[str, ...],
    rows: Sequence[tuple[Given, Pieces]],
) -> None:
    waits = tx.waits

    def build(binding: TableBinding) -> Call:
        given = [pieces if binding is first else binding.row_pieces(names, row) for row, pieces in rows]
        return Call(merge_many(binding, effect, names, waits=waits), arrays(binding, names, given))

    tx.defer(table, build, None, refusal_of_merges(first, names))


# Rows of few keys


def _merge_here(
    tx: ServerTransaction, table: BoundTable, merger: Merger, changes: Sequence[tuple[RowKind, Given]]
) -> None:
    """Merge changes, many of which are of one key, with the rows as read, and write each row once."""
    if tx.waits:
        raise SnapshotNeededError
    binding = table.binding
    key_names = binding.spec.primary_key
    keys = [binding.key_pieces(tuple([row[name] for name in key_names])) for _, row in changes]
    old: dict[Pieces, Values] = {}
    for portion in portions(dict.fromkeys(keys), at_most):

        def look_up(current: TableBinding, portion: list[Pieces] = portion) -> Call:
            return lookup_many_call(current, portion, current.shape)

        for found in build_rows(tx.rows_of(tx.ask(table, look_up)), table.binding.shape):
            old[binding.key_pieces(found.key)] = tuple([found[name] for name in merger.columns])
    new: dict[Pieces, Values | None] = dict(old)
    written: dict[Pieces, Given] = {}
    for key, (kind, row) in zip(keys, changes, strict=True):
        merged = merger.apply(new.get(key), kind, row)
        if merged is not IGNORED:
            new[key] = merged
            written[key] = row
    rows: list[Given] = []
    doomed: list[Pieces] = []
    for key, row in written.items():
        values = new.get(key)
        if values is not None:
            rows.append({**{name: row[name] for name in key_names}, **dict(zip(merger.columns, values, strict=True))})
        elif key in old:
            doomed.append(key)
    upsert_batch(tx, table, rows, beside=sum(map(at_most, doomed)))
    delete_keys(tx, table, doomed)


# Tables without a merge engine


def apply_plain_changes(tx: ServerTransaction, table: BoundTable, changes: Iterable[tuple[RowKind, Given]]) -> None:
    """Put and delete rows in the order of the changes, each key by one statement."""
    binding = table.binding
    spec = binding.spec
    drops = spec.table_options.ignore_delete
    nulls: Given = dict.fromkeys(binding.value_names)
    rows: dict[tuple[Value, ...], Given | None] = {}
    for kind, row in changes:
        key = tuple([row[name] for name in spec.primary_key])
        if kind.retracts:
            if not drops:
                rows[key] = None
        elif key in rows:
            before = rows[key]
            rows[key] = {**(nulls if before is None else before), **row}
        else:
            rows[key] = row
    doomed = [binding.key_pieces(key) for key, row in rows.items() if row is None]
    put = [row for row in rows.values() if row is not None]
    upsert_batch(tx, table, put, beside=sum(map(at_most, doomed)))
    delete_keys(tx, table, doomed)
