"""Merges: deferred like other writes; rows with one key are merged in rounds, each with distinct keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import build_rows, lookup_many_call
from structable.backends.postgresql.sql.merging import MergeEffect, effect_of
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.write_statements import WriteShape
from structable.spi import AggregateFunction, RowKind, TableSpecification, Value
from structable.spi.authors import IGNORED, Effect, Merger, Values

from .bound_table import BoundTable
from .many_rows import delete_keys, upsert_batch
from .one_row import after_merge, require_flag
from .row_statements import EncodedRow, Given, chunks, defer_rows, encoded_row, size_of_rows
from .server_transaction import ServerTransaction

_MOST_ROUNDS = 8
"""The maximum number of a call's rows of one key merged by a statement each; more are merged in this process."""


class SnapshotNeededError(Exception):
    """A call depends on the state of rows before its writes, which needs a snapshot."""


def merge_changes(tx: ServerTransaction, table: BoundTable, changes: Iterable[tuple[RowKind, Given]]) -> None:
    """Merge checked rows in their order; errors that do not depend on stored rows are raised before any write."""
    binding = table.binding
    spec, waits = binding.spec, tx.waits
    merger = binding.kept("merger", lambda: Merger(spec))
    width = len(binding.key_fields)
    rounds: list[dict[tuple[MergeEffect, tuple[str, ...]], dict[Pieces, EncodedRow]]] = []
    counts: dict[Pieces, int] = {}
    given: list[tuple[RowKind, Given]] = []
    for kind, row in changes:
        merger.refuse(kind, row)
        effect = effect_of(spec, merger, kind)
        if effect is MergeEffect.NOTHING:
            continue
        if effect is MergeEffect.DELETE and waits:
            raise SnapshotNeededError  # it would miss a row that is deleted and inserted again while it waits
        given.append((kind, row))
        for one in _negatable(spec, effect, row):
            names, encoded = encoded_row(binding, one)
            require_flag(binding, encoded)
            if effect is MergeEffect.DELETE:
                sequence = [name for name in spec.table_options.sequence if name in one]
                wanted = binding.ordered([*spec.primary_key, *sequence])
                pieces = tuple([encoded.pieces[names.index(name)] for name in wanted])
                names, encoded = wanted, EncodedRow(one, pieces, at_most(pieces))
            key = encoded.pieces[:width]
            place = counts.get(key, 0)
            counts[key] = place + 1
            if place == len(rounds):
                rounds.append({})
            rounds[place].setdefault((effect, names), {})[key] = encoded
    if len(rounds) > _MOST_ROUNDS:
        _merge_here(tx, table, merger, given)
        return
    writes = [
        (WriteShape(Effect.MERGE, names, waits=waits, merge=effect), chunk)
        for one_round in rounds
        for (effect, names), rows in one_round.items()
        for chunk in chunks([rows[key] for key in sorted(rows)], lambda one: one.size)
    ]
    tx.require_room(sum(size_of_rows(chunk) for _, chunk in writes))
    for shape, chunk in writes:
        defer_rows(tx, table, binding, shape, chunk)
    for shape, chunk in writes:
        for one_row in chunk:
            key = one_row.pieces[:width]
            table.seen.put(key, after_merge(binding, table.seen.get(key), shape.merge, one_row.size))


def _negatable(spec: TableSpecification, effect: MergeEffect, row: Given) -> list[Given]:
    """Return the changes that together are one retract, because the negative of the lowest integer does not fit."""
    options = spec.table_options
    if effect is not MergeEffect.RETRACT:
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


def _merge_here(
    tx: ServerTransaction, table: BoundTable, merger: Merger, changes: Sequence[tuple[RowKind, Given]]
) -> None:
    """Merge changes, many of one key, with the rows in this process, and write each row once."""
    if tx.waits:
        raise SnapshotNeededError
    binding = table.binding
    key_names = binding.spec.primary_key
    keys = [binding.key_pieces(tuple([row[name] for name in key_names])) for _, row in changes]
    old: dict[Pieces, Values] = {}
    for chunk in chunks(dict.fromkeys(keys), at_most):

        def look_up(current: TableBinding, chunk: list[Pieces] = chunk) -> Call:
            return lookup_many_call(current, chunk, current.shape)

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
