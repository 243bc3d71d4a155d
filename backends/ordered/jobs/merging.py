"""`MergedRows`: the rows of a job that are merged: by the table's engine, or since they have kinds or lack fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from structable.backends.ordered.codec.change_records import NewRecord
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import RowKind, Value, WriteMode
from structable.spi.merging import IGNORED

from .rows import Chunk, JobRows, staged_size
from .staged import StagedRow, StagedRuns, kind_of

__all__ = ["MergedRows"]


class MergedRows(JobRows):
    """Each key once: its rows are merged, one after the other, into the row that the table has."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        self._has_kinds = mode is WriteMode.CHANGES
        merges = binding.spec.table_options.merges or runs.partial
        self._reads = merges or binding.derives
        self._replaces = self._has_kinds and not merges and runs.fit_indexes()
        """Whether a row becomes the last that was staged, whatever the table has: it need not be decoded."""

    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if a run is damaged; with `decides_first` also if a result does not fit, or a retract is refused."""
        self._runs.check()
        if decides_first and not self._replaces:
            for _ in self.chunks(latest):
                continue

    def chunks(self, latest: EngineSnapshot | None, after: bytes = b"") -> Iterator[Chunk]:
        keyed = ((raw_key, list(rows)) for raw_key, rows in self._runs.by_key(after))
        for chunk, olds in self._chunked(latest if self._reads else None, keyed, _size):
            writes: dict[bytes, bytes | None] = {}
            for raw_key, rows in chunk:
                if self._replaces:
                    self._replace(raw_key, rows, writes)
                else:
                    self._merge(raw_key, rows, olds[raw_key], writes)
            made = self._chunk(writes, olds, chunk[-1][0], partial(self._records, chunk))
            if made.changes or made.appends:
                yield made

    def _records(self, chunk: Iterable[tuple[bytes, list[StagedRow]]]) -> list[NewRecord]:
        staged = [row for _, rows in chunk for row in rows]
        if self._has_kinds:
            return [(kind_of(raw), raw_key, raw[1:]) for raw_key, raw, _ in staged]
        return [(RowKind.UPDATE_AFTER, raw_key, raw) for raw_key, raw, _ in staged]

    def _replace(self, raw_key: bytes, rows: list[StagedRow], writes: dict[bytes, bytes | None]) -> None:
        binding = self._binding
        for _, raw, _ in reversed(rows):
            kind = kind_of(raw)
            if not binding.merger.drops(kind):
                writes[raw_key] = None if kind.retracts else binding.current(raw[1:])
                return

    def _merge(
        self, raw_key: bytes, rows: list[StagedRow], old: bytes | None, writes: dict[bytes, bytes | None]
    ) -> None:
        binding = self._binding
        values = None if old is None else binding.rows.decode_values(old)
        ignored = True
        for _, raw, columns in rows:
            kind = kind_of(raw) if self._has_kinds else RowKind.UPDATE_AFTER
            merged = binding.merger.apply(values, kind, self._given(raw, columns))
            if merged is not IGNORED:
                values, ignored = merged, False
        if not ignored:
            writes[raw_key] = None if values is None else binding.encoded(raw_key, values)

    def _given(self, raw: bytes, columns: tuple[str, ...] | None) -> dict[str, Value]:
        binding = self._binding
        given = dict(
            zip(binding.value_names, binding.rows.decode_values(raw[1:] if self._has_kinds else raw), strict=True)
        )
        return given if columns is None else {name: given[name] for name in columns if name in given}


def _size(keyed: tuple[bytes, list[StagedRow]]) -> int:
    return sum(map(staged_size, keyed[1]))
