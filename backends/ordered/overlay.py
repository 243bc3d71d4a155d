"""`TableOverlay`: one table in a transaction, its rows in the snapshot under the transaction's own writes."""

from __future__ import annotations

from collections.abc import Mapping

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import StorageUnavailableError, TransactionConflictError

from .engine import EngineSnapshot, Increment, ReadSet, SchemaChangedError, WriteSet
from .scan.lookup import values_of
from .schema.binding import TableBinding

__all__ = ["ENGINE_FAILURES", "TableOverlay"]

ENGINE_FAILURES = (TransactionConflictError, StorageUnavailableError, SchemaChangedError)
"""Errors of an engine after which a transaction can only be left."""
_MOST_ORIGINALS = 4_096
_LARGEST_ORIGINAL = 4_096
"""In bytes, so that a transaction with many reads holds at most 16 MiB of them."""


class TableOverlay:
    """The rows that a transaction sees, by raw keys and values.

    Attributes
    ----------
    writes : dict
        Written rows, None where deleted.
    increments : dict
        Rows that were only incremented.
    """

    __slots__ = ("_originals", "binding", "increments", "reads", "snapshot", "transaction", "writes")

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
        self.increments: dict[bytes, tuple[Increment, ...]] = {}
        # Rows read from the snapshot: a row that was read is often written next, and the commit needs the old row to
        # find its index entries.
        self._originals: dict[bytes, bytes | None] = {}

    def raw_value(self, raw_key: bytes) -> bytes | None:
        """Return a row's raw value: the transaction's own, else the snapshot's."""
        if raw_key in self.writes:
            return self.writes[raw_key]
        originals = self._originals
        if raw_key in originals:
            raw = originals[raw_key]
        else:
            tx = self.transaction
            try:
                raw = self.snapshot.get(raw_key)
            except ENGINE_FAILURES as error:
                tx.fail(error)
            if self.reads is not None:
                self.reads.keys.add(raw_key)
            if len(originals) < _MOST_ORIGINALS and (raw is None or len(raw) <= _LARGEST_ORIGINAL):
                originals[raw_key] = raw
        if self.increments and raw_key in self.increments:
            raw = self.binding.incremented(raw, self.increments[raw_key])
        return raw

    def raw_values(self, raw_keys: list[bytes]) -> list[bytes | None]:
        """Return the raw values of sorted raw keys."""
        tx = self.transaction
        try:
            found = values_of(self.snapshot, raw_keys)
        except ENGINE_FAILURES as error:
            tx.fail(error)
        if self.reads is not None:
            self.reads.keys.update(raw_keys)
        largest = max(map(len, filter(None, found)), default=0)
        if len(self._originals) + len(raw_keys) <= _MOST_ORIGINALS and largest <= _LARGEST_ORIGINAL:
            self._originals.update(zip(raw_keys, found, strict=True))
        if self.writes or self.increments:
            writes, increments = self.writes, self.increments
            for position, raw_key in enumerate(raw_keys):
                if raw_key in writes:
                    found[position] = writes[raw_key]
                elif raw_key in increments:
                    found[position] = self.binding.incremented(found[position], increments[raw_key])
        return found

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
        """Add this table's writes, and the index entries that follow from them, to a write set."""
        writes, increments, binding = self.writes, self.increments, self.binding
        if not writes and not increments:
            return
        changes.spaces.add(binding.schema.space)
        if changes.writes:
            changes.writes = changes.writes | writes  # a new dict: the other is the first table's own
        else:
            changes.writes = writes
        if increments:
            changes.increments.update(increments)
        if binding.maintained and writes:
            originals = self._originals
            unknown = sorted([raw_key for raw_key in writes if raw_key not in originals])
            if unknown:
                originals.update(zip(unknown, values_of(self.snapshot, unknown), strict=True))
            binding.derive(writes, originals, changes.derived)
