"""`JobRows`: what a job's staged rows make of the table's rows, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from structable.backends.ordered.codec.change_records import NewRecord, pack_whole
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.part_sizes import next_rows, taken
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import RecordExistsError, RecordNotFoundError, RowKind, Value, WriteMode

from .staged import StagedRow, StagedRuns

__all__ = ["Chunk", "JobRows", "PlainRows", "chunked", "is_repeatable", "staged_size"]

One = TypeVar("One")
Keyed = TypeVar("Keyed", bound=tuple[Any, ...])


class Chunk(NamedTuple):
    """A part of what a job does."""

    changes: dict[bytes, bytes | None]
    """Of rows and index entries."""
    end: bytes
    """Where they end in the order of the rows: the argument `after` that yields those which follow."""
    appends: list[bytes]
    """What is appended to the change feed of the table, each value one entry."""


_CHUNK_ROWS = 2_000
_FIRST_ROWS = 32
"""Of what the table has, before its size is known."""

_KINDS = {WriteMode.INSERT: RowKind.INSERT, WriteMode.DELETE: RowKind.DELETE}


def is_repeatable(schema: TableSchema, mode: WriteMode) -> bool:
    """Tell whether chunks of a job may be applied again after a crash: they do not depend on the rows before them."""
    spec = schema.spec
    merges = mode in (WriteMode.UPSERT, WriteMode.CHANGES) and spec.table_options.merges
    bags = spec.keyless and mode is WriteMode.CHANGES
    return not merges and not bags and mode is not WriteMode.PATCH and schema.feed is None


class JobRows(ABC):
    """The rows of a job in order, as raw pairs of the table's current layout."""

    missing = 0
    """The number of keys that had to have a row and had none, once `chunks` was exhausted."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        self._binding = binding
        self._runs = runs
        self._mode = mode
        self.repeatable = is_repeatable(binding.schema, mode)

    @abstractmethod
    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if the current table rejects the job.

        What `chunks` itself raises is only found here with `decides_first`: chunks cannot fail then.
        """

    @abstractmethod
    def chunks(self, latest: EngineSnapshot | None, after: bytes = b"") -> Iterator[Chunk]:
        """Yield the changes, some thousand rows at a time, or fewer large ones.

        Parameters
        ----------
        latest : EngineSnapshot or None
            The newest state, in which all chunks up to `after` are applied; None for no rows.
        after : bytes
            Where the last applied chunk ended.
        """

    def _chunked(
        self, latest: EngineSnapshot | None, rows: Iterator[Keyed], size_of: Callable[[Keyed], int]
    ) -> Iterator[tuple[list[Keyed], dict[bytes, bytes | None]]]:
        """Yield the rows of one chunk after the other, and what `latest` has under the keys with which they begin."""
        if latest is None:
            for chunk in chunked(rows, size_of):
                yield chunk, dict.fromkeys(row[0] for row in chunk)
            return
        most = min(_FIRST_ROWS, _CHUNK_ROWS)
        while chunk := taken(rows, most, size_of):
            raw_keys = [row[0] for row in chunk]
            olds = dict(zip(raw_keys, latest.get_many(raw_keys), strict=True))
            yield chunk, olds
            most = next_rows(len(chunk), sum(len(old) for old in olds.values() if old is not None), _CHUNK_ROWS)

    def _chunk(
        self,
        writes: dict[bytes, bytes | None],
        olds: dict[bytes, bytes | None],
        end: bytes,
        given: Callable[[], list[NewRecord]],
    ) -> Chunk:
        """Return a chunk that writes rows; `given` returns what a feed with the producer input holds of it."""
        binding = self._binding
        appends: list[bytes] = []
        if binding.feeds_images:
            appends = pack_whole(binding.all_images(writes, olds))
        elif binding.feeds_input:
            appends = pack_whole(given())
        derived: dict[bytes, bytes | None] = {}
        binding.derive(writes, olds, derived)
        writes.update(derived)
        return Chunk(writes, end, appends)


class PlainRows(JobRows):
    """Each key once, as the mode says: of several rows with one key, the last staged."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        self._partial = mode in (WriteMode.UPSERT, WriteMode.UPDATE) and runs.partial

    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if the current table rejects a row: its key exists, or does not, or it is too large."""
        self._runs.check()
        if self._mode is WriteMode.INSERT and not self._binding.spec.keyless:
            self._check_new(latest)
        elif self._mode is WriteMode.UPDATE:
            self._check_existing(latest)
        self.check_sizes()
        if self._partial and decides_first:
            for _ in self.chunks(latest):  # merging raises for rows over the limits; the chunks are discarded
                continue

    def check_sizes(self) -> None:
        """Raise if a row is too large for an index that was added after the row was staged."""
        if self._mode is WriteMode.DELETE or self._runs.fit_indexes():
            return
        for raw_key, raw, _ in self._unique():
            self._binding.merged(raw_key, raw, {})

    def _check_new(self, latest: EngineSnapshot) -> None:
        before: bytes | None = None
        for chunk, olds in self._chunked(latest, self._runs.rows(), staged_size):
            for raw_key, _, _ in chunk:
                if raw_key == before or olds[raw_key] is not None:
                    self._refuse(RecordExistsError, raw_key)
                before = raw_key

    def _check_existing(self, latest: EngineSnapshot) -> None:
        for _, olds in self._chunked(latest, self._unique(), staged_size):
            for raw_key, old in olds.items():
                if old is None:
                    self._refuse(RecordNotFoundError, raw_key)

    def _refuse(self, error: type[RecordExistsError] | type[RecordNotFoundError], raw_key: bytes) -> NoReturn:
        raise error(self._binding.spec.name, self._binding.keys.decode(raw_key))

    def chunks(self, latest: EngineSnapshot | None, after: bytes = b"") -> Iterator[Chunk]:
        # Rows that are inserted are known to be absent.
        needs_old = self._partial or (self._binding.derives and self._mode is not WriteMode.INSERT)
        rows = (row for row in self._unique() if row[0] > after)
        for chunk, olds in self._chunked(latest if needs_old else None, rows, staged_size):
            writes: dict[bytes, bytes | None] = {
                raw_key: self._outcome(raw_key, raw, columns, olds[raw_key]) for raw_key, raw, columns in chunk
            }
            yield self._chunk(writes, olds, chunk[-1][0], partial(self._given, writes))

    def _given(self, writes: Mapping[bytes, bytes | None]) -> list[NewRecord]:
        kind, nulls = _KINDS.get(self._mode, RowKind.UPDATE_AFTER), self._binding.raw_nulls
        return [(kind, raw_key, nulls if raw is None else raw) for raw_key, raw in writes.items()]

    def _outcome(self, raw_key: bytes, raw: bytes, columns: tuple[str, ...] | None, old: bytes | None) -> bytes | None:
        if self._mode is WriteMode.DELETE:
            return None
        if columns is None or old is None or not self._partial:
            return self._binding.current(raw)
        binding = self._binding
        staged = dict(zip(binding.value_names, binding.rows.decode_values(raw), strict=True))
        changes: dict[str, Value] = {name: staged[name] for name in columns if name in staged}
        return binding.merged(raw_key, old, changes)

    def _unique(self) -> Iterator[StagedRow]:
        rows = self._runs.rows()
        last = next(rows, None)
        for row in rows:
            if last is not None and row[0] != last[0]:
                yield last
            last = row
        if last is not None:
            yield last


def chunked(rows: Iterator[One], size_of: Callable[[One], int]) -> Iterator[list[One]]:
    """Yield the rows of one chunk after the other."""
    while chunk := taken(rows, _CHUNK_ROWS, size_of):
        yield chunk


def staged_size(row: StagedRow) -> int:
    """Return the size of what was staged for a row, without its key."""
    return len(row[1])
