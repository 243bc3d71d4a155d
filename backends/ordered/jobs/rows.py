"""`Fold`: turns a job's staged rows into changes of the table's rows, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from structable.backends.base.bounded import next_rows, taken
from structable.backends.ordered.codec.change_records import EncodedChange, pack_numbered, pack_whole
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.job_records import JobProgress
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import RecordExistsError, RecordNotFoundError, RowKind, WriteMode

from .staged import StagedRow, StagedRuns

One = TypeVar("One")
Keyed = TypeVar("Keyed", bound=tuple[Any, ...])


class Chunk(NamedTuple):
    """A part of a job's changes."""

    changes: dict[bytes, bytes | None]
    """Changes of rows and index entries."""
    end: bytes
    """The place of the last change in the order of the rows; `chunks` continues after it."""
    appends: list[bytes]
    """Values to append to the change feed of the table, one entry each."""
    number: int | None
    """The number of the next change in a feed of the producer `input`, if it is known."""


class ChunkEffect(NamedTuple):
    """The effect of a chunk of staged rows on the table."""

    writes: dict[bytes, bytes | None]
    olds: dict[bytes, bytes | None]
    """The former row of each key in `writes`."""
    records: list[EncodedChange]
    """The records that a feed with the producer `input` keeps."""
    end: bytes


_CHUNK_ROWS = 2_000
_PLACE_BYTES = 8
_FIRST_ROWS = 32
"""The number of the table's rows to read first, before their size is known."""

_NOTHING = JobProgress()
_KINDS = {WriteMode.INSERT: RowKind.INSERT, WriteMode.DELETE: RowKind.DELETE}


def is_repeatable(schema: TableSchema, mode: WriteMode) -> bool:
    """Return whether chunks of a job may be applied again after a crash because they do not depend on former rows."""
    spec = schema.spec
    merges = mode in (WriteMode.UPSERT, WriteMode.CHANGES) and spec.table_options.merges
    bags = spec.keyless and mode is WriteMode.CHANGES
    return not merges and not bags and mode is not WriteMode.PATCH and schema.feed is None


def staged_size(group: StagedRow) -> int:
    """Return the size of a staged row, without its key."""
    return len(group[1])


class Fold(ABC, Generic[Keyed]):
    """The rows of a job in order, as raw pairs of the table's current layout, and how the rows of a key become its row.

    Attributes
    ----------
    reads : bool
        Whether the former rows are needed.
    refuses : bool
        Whether a row may be rejected.
    missing : int
        The number of keys that required a row and had none, once `chunks` was exhausted.
    """

    reads = True
    refuses = True
    missing = 0

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        self._binding = binding
        self._runs = runs
        self.mode = mode
        self._fit = mode is WriteMode.DELETE or runs.fit_indexes()
        self.repeatable = is_repeatable(binding.schema, mode)

    def decide(self) -> None:
        """Stop checking which rows exist: they were checked, and some may be in place already."""
        return None

    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if a run is lost or damaged.

        With `decides_first`, also raise if the current table rejects a row: `chunks` cannot fail then.
        """
        self._runs.check()
        if decides_first and self.refuses:
            presence = self.mode in (WriteMode.INSERT, WriteMode.UPDATE)
            for _ in self.written(latest, b"") if presence else self.chunks(latest):
                continue
            self.decide()

    def chunks(self, latest: EngineSnapshot | None, done: JobProgress = _NOTHING) -> Iterator[Chunk]:
        """Yield the changes, some thousand rows at a time, or fewer large ones; raise if the table rejects a row.

        Parameters
        ----------
        latest : EngineSnapshot or None
            The newest state, in which all chunks that are `done` are applied; None for no rows.
        done : JobProgress
            The effect of the applied chunks.
        """
        binding = self._binding
        number = done.number if binding.feeds_input else None
        for writes, olds, records, end in self.written(latest, done.end):
            appends: list[bytes] = []
            if binding.feeds_images:
                appends = pack_whole(binding.images(writes, olds))
            elif binding.feeds_input:
                appends = pack_numbered(records, number)
                if number is not None:
                    number += len(records)
            derived: dict[bytes, bytes | None] = {}
            binding.derive(writes, olds, derived)
            writes.update(derived)
            if writes or appends:
                yield Chunk(writes, end, appends, number)

    def written(self, latest: EngineSnapshot | None, after: bytes) -> Iterator[ChunkEffect]:
        """Yield the writes of the rows after a key, some thousand rows at a time, or fewer large ones."""
        groups = self.groups(after)
        latest = latest if self.reads else None
        most = _CHUNK_ROWS if latest is None else min(_FIRST_ROWS, _CHUNK_ROWS)
        while chunk := taken(groups, most, self.size_of):
            raw_keys = [group[0] for group in chunk]
            olds = dict.fromkeys(raw_keys)
            if latest is not None:
                olds = dict(zip(raw_keys, latest.get_many(raw_keys), strict=True))
                most = next_rows(olds.values(), _CHUNK_ROWS)
            written = ChunkEffect({}, olds, [], raw_keys[-1])
            for group in chunk:
                self.write(group, olds[group[0]], written.writes, written.records)
            yield written

    @abstractmethod
    def groups(self, after: bytes) -> Iterator[Keyed]:
        """Yield each key after another one, with its staged rows."""

    @staticmethod
    @abstractmethod
    def size_of(group: Keyed) -> int:
        """Return the size of the staged rows of a key."""

    @abstractmethod
    def write(
        self, group: Keyed, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        """Add the writes of the staged rows of one key."""

    def _row(self, raw_key: bytes, raw: bytes) -> bytes:
        """Return a staged row in the current layout; rejects one too large for an index added since it was staged."""
        return self._binding.current(raw) if self._fit else self._binding.merged(raw_key, raw, {})


class LastRows(Fold[StagedRow]):
    """Writes one row of each key, as the mode says: the last one staged."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        self._partial = mode in (WriteMode.UPSERT, WriteMode.UPDATE) and runs.partial
        self._kind = _KINDS.get(mode, RowKind.UPDATE_AFTER)
        self._new = mode is WriteMode.INSERT and not binding.keyless
        self._existing = mode is WriteMode.UPDATE
        self.refuses = self._new or self._existing or self._partial or not self._fit
        # Inserted rows are known to be absent once they were checked.
        self._follows = self._partial or (binding.derives and mode is not WriteMode.INSERT)
        self.reads = self._new or self._existing or self._follows

    def decide(self) -> None:
        self._new = self._existing = False
        self.reads = self._follows

    def groups(self, after: bytes) -> Iterator[StagedRow]:
        rows = self._runs.rows()
        last = next(rows, None)
        for row in rows:
            assert last is not None
            if row[0] != last[0]:
                if last[0] > after:
                    yield last
            elif self._new:
                self._refuse(RecordExistsError, row[0])
            last = row
        if last is not None and last[0] > after:
            yield last

    size_of = staticmethod(staged_size)

    def write(
        self, group: StagedRow, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        raw_key, raw, columns = group
        binding = self._binding
        if old is None and self._existing:
            self._refuse(RecordNotFoundError, raw_key)
        if old is not None and self._new:
            self._refuse(RecordExistsError, raw_key)
        after: bytes | None = None
        if self._partial and columns is not None and old is not None:
            after = binding.merged(raw_key, old, binding.named(raw, columns))
        elif self.mode is not WriteMode.DELETE:
            after = self._row(raw_key, raw)
        writes[raw_key] = after
        if binding.feeds_input:
            records.append((self._kind, raw_key, binding.raw_nulls if after is None else after))

    def _refuse(self, error: type[RecordExistsError] | type[RecordNotFoundError], raw_key: bytes) -> NoReturn:
        raise error(self._binding.spec.name, self._binding.keys.decode(raw_key))


class LogRows(Fold[StagedRow]):
    """Keeps each row, in the order of the partitions, then of staging: its place is its key."""

    reads = refuses = False

    def groups(self, after: bytes) -> Iterator[StagedRow]:
        done = int.from_bytes(after)
        for place, (_, raw, columns) in enumerate(islice(self._runs.rows(), done, None), done + 1):
            yield place.to_bytes(_PLACE_BYTES), raw, columns

    size_of = staticmethod(staged_size)

    def write(
        self, group: StagedRow, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        records.append((RowKind.INSERT, self._binding.keys.rows_begin, self._binding.current(group[1])))


def chunked(rows: Iterator[One], size_of: Callable[[One], int]) -> Iterator[list[One]]:
    """Yield the rows of one chunk after the other."""
    while chunk := taken(rows, _CHUNK_ROWS, size_of):
        yield chunk
