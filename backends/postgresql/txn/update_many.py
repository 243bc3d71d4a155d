"""`update_many`: first finds the rows that exist, then changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from structable.backends.postgresql.driver.statement import TID, Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import addresses_of, read_addresses
from structable.backends.postgresql.sql.row_codec import SLACK, Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT, CHECKED_SIZE, Judge, judge, refusal
from structable.backends.postgresql.sql.types import array
from structable.backends.postgresql.sql.write_statements import update_at_addresses
from structable.spi import UpdateMessage
from structable.spi.authors import MAX_ROW_SIZE, Effect, check_default, check_row

from .bound_table import BoundTable
from .many_rows import upsert_batch
from .row_statements import EncodedRow, Given, chunks, encoded_row, require_sizes
from .server_transaction import ServerTransaction

_ONE_CHUNK = 4_000
"""The number of keys that one statement always takes, however large they are."""
_FEW_BYTES = 8 << 20


class KeyUpdates(NamedTuple):
    """All updates of one key in a call."""

    names: tuple[str, ...]
    """The key and the changed fields, in the order of statements."""
    row: Given
    pieces: Pieces
    created: Given | None
    """The row that the updates create if there was none; None without a default."""
    created_size: int
    """An upper bound of the bytes of `created`."""
    skips: bool
    """Whether the first update is skipped if there was no row."""

    @property
    def encoded(self) -> EncodedRow:
        return EncodedRow(self.row, self.pieces, at_most(self.pieces))

    def for_version(self, binding: TableBinding) -> KeyUpdates:
        """Return the same update for another version of the table."""
        return self._replace(pieces=binding.row_pieces(self.names, self.row))


def checked_updates(
    binding: TableBinding, given: Iterable[Given | UpdateMessage], default: Given | None
) -> list[KeyUpdates]:
    """Check the elements of a call, each by itself."""
    shared = None if default is None else _Default(binding, default)
    found = []
    known: tuple[str, ...] | None = None
    encode: Callable[[Given], Pieces] | None = None
    ordered: tuple[str, ...] = ()
    for one in given:
        row: Given
        under = shared
        if isinstance(one, UpdateMessage):
            row = one.update
            if one.default is not None:
                under = _Default(binding, one.default)
        else:
            row = one
        names = tuple(row) if row.__class__ is dict else ()
        if names != known:
            known, encode = names, None
            if (in_order := binding.known_names(names)) is not None:
                encode, ordered = binding.encoder(names).pieces, in_order
        if encode is None:
            ordered, (row, pieces, _) = encoded_row(binding, row)
        else:
            pieces = encode(row)
        created, size = (None, 0) if under is None else under.under(row)
        found.append(KeyUpdates(ordered, row, pieces, created, size, created is None))
    return found


class _Default:
    """A default, checked as a whole with the first row that needs it; other rows check only what depends on them."""

    def __init__(self, binding: TableBinding, default: Given) -> None:
        self._binding = binding
        self._default = default
        self._start: Given | None = None

    def under(self, row: Given) -> tuple[Given, int]:
        """Return the row that an update makes from the default, and an upper bound of its bytes."""
        spec = self._binding.write_spec
        start = self._start
        if start is None:
            start = check_default(spec, check_row(spec, row), self._default)
            if not any(name in self._default for name in spec.primary_key):
                start = self._start = {name: value for name, value in start.items() if name not in spec.primary_key}
        _, created = encoded_row(self._binding, {**start, **row})
        return created.row, created.size


def _by_key(binding: TableBinding, updates: Iterable[KeyUpdates]) -> dict[Pieces, KeyUpdates]:
    width = len(binding.key_fields)
    found: dict[Pieces, KeyUpdates] = {}
    for one in updates:
        key = one.pieces[:width]
        before = found.get(key)
        if before is None:
            found[key] = one
            continue
        created, size = one.created, one.created_size
        if before.created is not None:
            _, (created, _, size) = encoded_row(binding, {**before.created, **one.row})
        names, (row, pieces, _) = encoded_row(binding, {**before.row, **one.row})
        found[key] = KeyUpdates(names, row, pieces, created, size, before.skips)
    return found


def rounds_of(
    tx: ServerTransaction, table: BoundTable, binding: TableBinding, updates: Iterable[KeyUpdates]
) -> list[list[KeyUpdates]]:
    """Divide updates, in order, into lists without repeated keys; raises if a row would be too large.

    They were checked for a version of the table, the `binding`.
    """
    width = len(binding.key_fields)
    rounds: list[list[KeyUpdates]] = []
    keys: set[Pieces] = set()
    for one in updates:
        key = one.pieces[:width]
        if not rounds or key in keys:
            rounds.append([])
            keys.clear()
        rounds[-1].append(one)
        keys.add(key)
    if len(rounds) > 1:
        # A later round must not be rejected after an earlier one was written.
        left: dict[Pieces, KeyUpdates] = {}
        for one in (one for each in rounds for one in each):
            key = one.pieces[:width]
            left |= _by_key(binding, [left[key], one] if key in left else [one])
            if at_most(left[key].pieces) > CHECKED_SIZE:
                require_sizes(tx, table, binding, left[key].names, [left[key].encoded])
    return rounds


def update_batch(
    tx: ServerTransaction, table: BoundTable, first: TableBinding, updates: Iterable[KeyUpdates]
) -> list[KeyUpdates]:
    """Change the rows that exist, and put defaults; return one skipped update of each key, in their order.

    The updates were checked for the `first` version of the table.
    """
    changes = _by_key(first, updates)
    seen = table.seen.known(changes)
    addresses = _addresses(tx, table, sorted([key for key in changes if key not in seen]))
    if table.binding is not first:
        changes = {key: one.for_version(table.binding) for key, one in changes.items()}
    groups: dict[tuple[str, ...], dict[Pieces, KeyUpdates]] = {}
    written: list[Given] = []
    skipped, total = [], 0
    alike = {one.names for one in changes.values()}
    if len(alike) == 1 and len(addresses) == len(changes):
        groups[alike.pop()] = changes
    for key, one in () if groups else changes.items():
        if key in addresses:
            groups.setdefault(one.names, {})[key] = one
        elif seen.get(key, ABSENT) != ABSENT:
            written.append(one.row)
            total += at_most(one.pieces)
        else:
            total += one.created_size
            if one.created is not None:
                written.append(one.created)
            if one.skips:
                skipped.append(one)
    located = [_Located(table.binding, names, rows) for names, rows in groups.items()]
    tx.require_room(total + sum(one.size for one in located))
    for one_group in located:
        one_group.check(tx, table)
    upsert_batch(tx, table, written, copies=False)
    for one_group in located:
        one_group.defer(tx, table, addresses)
    return skipped


def _addresses(tx: ServerTransaction, table: BoundTable, keys: list[Pieces]) -> dict[Pieces, bytes]:
    """Return the row addresses (ctid) of some keys, found faster in key order; record the keys without a row."""
    found: dict[Pieces, bytes] = {}
    for chunk in chunks(keys, at_most) if len(keys) > _ONE_CHUNK else [keys] if keys else []:

        def build(binding: TableBinding, chunk: list[Pieces] = chunk) -> Call:
            return Call(addresses_of(binding), binding.arrays(binding.spec.primary_key, chunk))

        result = tx.ask(table, build)
        found.update(read_addresses(chunk, result.get_value(0, 0), result.get_value(0, 1)))
    if len(found) < len(keys):
        table.seen.put_all([key for key in keys if key not in found], ABSENT)
    return found


class _Located:
    """Changes of the same fields of rows with known addresses (ctid).

    `size` is an upper bound of their bytes.
    """

    def __init__(self, binding: TableBinding, names: tuple[str, ...], updates: Mapping[Pieces, KeyUpdates]) -> None:
        self._names = names
        self._updates = updates
        self._width = binding.width_without(names)
        # Column by column, in a fraction of the time.
        self._columns = list(zip(*[one.pieces for one in updates.values()], strict=True))
        longest = [max([len(one) for one in column if one is not None], default=0) for column in self._columns]
        self._largest = sum(longest) + SLACK * len(longest)
        self.size = self._largest * len(updates)
        self._is_one_chunk = self.size <= _FEW_BYTES
        if not self._is_one_chunk:
            self.size = sum(at_most(one.pieces) for one in updates.values())
        self._is_checked = judge(self._width, self._largest, None)[1] is not Judge.NOBODY

    def check(self, tx: ServerTransaction, table: BoundTable) -> None:
        """Reject rows that become too large, where the server does not check that when it changes them."""
        if self._is_checked and self._largest > CHECKED_SIZE:
            large = [one.encoded for one in self._updates.values() if at_most(one.pieces) > CHECKED_SIZE]
            require_sizes(tx, table, table.binding, self._names, large)
            self._is_checked = len(large) < len(self._updates)

    def defer(self, tx: ServerTransaction, table: BoundTable, addresses: Mapping[Pieces, bytes]) -> None:
        binding = table.binding
        width = len(binding.key_fields)
        oids = [binding.oids[name] for name in self._names[width:]]
        statement = update_at_addresses(binding, self._names, checked=self._is_checked)
        explain = partial(refusal, binding.spec, Effect.CHANGE, self._names) if self._is_checked else None
        for keys, columns in self._chunks():
            given = [array(oid, column) for oid, column in zip(oids, columns[width:], strict=True)]
            call = Call(statement, [array(TID, [addresses[key] for key in keys]), *given])
            # The transaction has read the rows in this version of the table.
            tx.defer(table, lambda _, call=call: call, None, explain)  # type: ignore[misc]
            table.seen.put_all(keys, MAX_ROW_SIZE if self._width is None else self._width + self._largest)

    def _chunks(self) -> Iterator[tuple[list[Pieces], list[tuple[bytes | None, ...]]]]:
        """Yield keys and columns of about the size of one statement."""
        if self._is_one_chunk:
            yield list(self._updates), self._columns
            return
        for chunk in chunks(self._updates.items(), lambda one: at_most(one[1].pieces)):
            keys, updates = zip(*chunk, strict=True)
            yield list(keys), list(zip(*[one.pieces for one in updates], strict=True))
