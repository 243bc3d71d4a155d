"""`TableOverlay`: one table in a transaction, its rows in the snapshot under the transaction's own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import StorageUnavailableError, TransactionConflictError

from .codec.change_records import EncodedChange
from .engine import BlindStep, EngineSnapshot, Pair, ReadSet, SchemaChangedError, WriteSet
from .scan.lookup import values_of
from .schema.binding import TableBinding

ENGINE_FAILURES = (TransactionConflictError, StorageUnavailableError, SchemaChangedError)
"""The errors of an engine that end a transaction."""
_KEPT = 4 << 20
"""The bytes of rows that a table keeps in a transaction: keys, values, and `_ROW_BYTES` for each row."""
_KEPT_OF_SCANS = 1 << 20
"""The bytes beyond which the rows of scans are not kept: after a large scan few of its rows are written."""
_ROW_BYTES = 200


class TableOverlay:
    """The rows that a transaction sees, by raw keys and values.

    Attributes
    ----------
    writes : dict
        Written rows, None where deleted.
    increments : dict
        Rows that were only incremented, or only merged into.
    """

    records: Sequence[EncodedChange] = ()
    """The rows given to verbs, if the table's feed records them."""

    __slots__ = ("_kept", "_room", "binding", "increments", "reads", "snapshot", "transaction", "writes")

    def __init__(
        self,
        transaction: TransactionLifecycle,
        reads: ReadSet | None,
        binding: TableBinding,
        snapshot: EngineSnapshot,
    ) -> None:
        self.transaction = transaction
        self.reads = reads
        self.binding = binding
        self.snapshot = snapshot
        self.writes: dict[bytes, bytes | None] = {}
        self.increments: dict[bytes, tuple[BlindStep, ...]] = {}
        # Rows of the snapshot that were read: a row that was read is often written next, and the commit needs the old
        # row to find its index entries. Each was recorded in `reads`, by its key or an interval.
        self._kept: dict[bytes, bytes | None] = {}
        self._room = _KEPT

    def raw_value(self, raw_key: bytes) -> bytes | None:
        """Return a row's raw value: the transaction's own, else the snapshot's."""
        if raw_key in self.writes:
            return self.writes[raw_key]
        kept = self._kept
        if raw_key in kept:
            raw = kept[raw_key]
        else:
            tx = self.transaction
            try:
                raw = self.snapshot.get(raw_key)
            except ENGINE_FAILURES as error:
                tx.fail(error)
            if self.reads is not None:
                self.reads.keys.add(raw_key)
            room = self._room - len(raw_key) - (_ROW_BYTES if raw is None else _ROW_BYTES + len(raw))
            if room >= 0:
                kept[raw_key] = raw
                self._room = room
        if self.increments and raw_key in self.increments:
            raw = self.binding.applied(raw, self.increments[raw_key])
        return raw

    def raw_values(self, raw_keys: list[bytes]) -> list[bytes | None]:
        """Return the raw values of sorted raw keys."""
        return self.values_under(raw_keys, self.writes, self.increments)

    def values_under(
        self,
        raw_keys: list[bytes],
        writes: Mapping[bytes, bytes | None],
        increments: Mapping[bytes, tuple[BlindStep, ...]],
    ) -> list[bytes | None]:
        """Return the raw values of sorted raw keys under the given writes and increments, perhaps older ones."""
        wanted = [raw_key for raw_key in raw_keys if raw_key not in writes] if writes else raw_keys
        found = self.snapshot_values(wanted, partial(values_of, self.snapshot))
        if not writes and not increments:
            return found
        values = {**dict(zip(wanted, found, strict=True)), **{key: writes[key] for key in raw_keys if key in writes}}
        for raw_key in increments.keys() & values.keys() if increments else ():
            values[raw_key] = self.binding.applied(values[raw_key], increments[raw_key])
        return [values[raw_key] for raw_key in raw_keys]

    def snapshot_values(
        self, raw_keys: list[bytes], look_up: Callable[[list[bytes]], list[bytes | None]]
    ) -> list[bytes | None]:
        """Return the raw values of raw keys in the snapshot, without the transaction's writes.

        `look_up` reads the rows that were not read before.
        """
        kept = self._kept
        wanted = [raw_key for raw_key in raw_keys if raw_key not in kept] if kept else raw_keys
        found: list[bytes | None] = []
        if wanted:
            try:
                found = look_up(wanted)
            except ENGINE_FAILURES as error:
                self.transaction.fail(error)
            if self.reads is not None:
                self.reads.keys.update(wanted)
        size = _ROW_BYTES * len(wanted) + sum(map(len, wanted)) + sum(map(len, filter(None, found)))
        values: dict[bytes, bytes | None] = {}
        if size <= self._room:
            kept.update(zip(wanted, found, strict=True))
            self._room -= size
        elif len(wanted) < len(raw_keys):
            values = dict(zip(wanted, found, strict=True))
        if len(wanted) == len(raw_keys):
            return found
        return [kept[raw_key] if raw_key in kept else values[raw_key] for raw_key in raw_keys]

    def keeping(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """Yield the pairs of a scan of the snapshot, and keep the first of them."""
        if not self.transaction.writable:
            return pairs
        return self._keeping(pairs)

    def _keeping(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        kept = self._kept
        for pair in pairs:
            raw_key, raw = pair
            if raw_key not in kept:
                room = self._room - len(raw_key) - len(raw) - _ROW_BYTES
                if room < _KEPT - _KEPT_OF_SCANS:
                    yield pair
                    break
                kept[raw_key] = raw
                self._room = room
            yield pair
        yield from pairs

    def is_absent(self, raw_key: bytes) -> bool:
        """Return whether an increment creates a row; False also if `settle_increments` must find out.

        The first row is looked up at once: while nothing has been read, the snapshot may be younger.
        """
        return (raw_key in self._kept or not self._kept) and self.raw_value(raw_key) is None

    def know_absent(self, raw_keys: Iterable[bytes]) -> None:
        """Record that the snapshot has no rows with these keys, so that the commit need not look them up."""
        self._kept.update(dict.fromkeys(raw_keys))

    def settle_increments(self) -> None:
        """Turn increments that create rows into writes, for their index entries; reads all rows together.

        Turns all increments into writes if their rows are read and put.
        """
        increments, puts = self.increments, self.binding.puts_merged
        wanted = sorted({*increments, *self.writes} if puts else increments)
        found = self.snapshot_values(wanted, partial(values_of, self.snapshot))
        for raw_key, raw in zip(wanted, found, strict=True):
            if (puts or raw is None) and raw_key in increments:
                merged = self.binding.applied(raw, increments[raw_key])
                self.write_raw(raw_key, self.binding.within_limits(raw_key, merged))

    def note_steps(self, steps: Mapping[bytes, tuple[BlindStep, ...]]) -> None:
        """Record steps of rows, to be applied at the commit."""
        if steps:
            if not self.increments:
                self.snapshot.pin()
            self.increments.update(steps)

    def write_raw(self, raw_key: bytes, raw: bytes | None) -> None:
        if not self.writes:
            self.snapshot.pin()
        self.writes[raw_key] = raw
        if self.increments:
            self.increments.pop(raw_key, None)

    def write_all(self, written: Mapping[bytes, bytes | None]) -> None:
        """Write rows, at least one."""
        if not self.writes:
            self.snapshot.pin()
        self.writes.update(written)
        for raw_key in self.increments.keys() & written.keys() if self.increments else ():
            del self.increments[raw_key]

    def collect(self, changes: WriteSet) -> None:
        """Add this table's writes, and the index entries and images that follow from them, to a write set."""
        writes, increments, binding = self.writes, self.increments, self.binding
        if not writes and not increments:
            return
        if increments and binding.settles_merges:
            self.settle_increments()
        changes.spaces.add(binding.schema.space)
        if changes.writes:
            changes.writes = changes.writes | writes  # a new dict: the other is the first table's own
        else:
            changes.writes = writes
        if increments:
            changes.increments.update(increments)
            if binding.feeds_images and binding.schema.feed is not None:
                changes.appends[binding.schema.feed.space] = []
        if binding.derives and writes:
            kept = self._kept
            unknown = [raw_key for raw_key in writes if raw_key not in kept]
            if unknown:
                unknown.sort()
                kept.update(zip(unknown, values_of(self.snapshot, unknown), strict=True))
            if binding.maintained:
                binding.derive(writes, kept, changes.derived)
            feed = binding.schema.feed
            if feed is not None and binding.feeds_images and (entries := binding.packed_images(writes, kept)):
                changes.appends[feed.space] = entries
