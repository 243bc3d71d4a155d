"""The rows of a job whose keys may come several times: merged, recorded one by one, or equal rows of a bag."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from structable.backends.ordered.codec.change_records import EncodedChange
from structable.backends.ordered.engine import EngineSnapshot, successor
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import RowKind, WriteMode
from structable.spi.authors import IGNORED

from .encoding import kind_of
from .rows import ChunkEffect, Fold, chunked, staged_size
from .staged import StagedRow, StagedRuns

_Keyed: TypeAlias = tuple[bytes, list[StagedRow]]


class MergedRows(Fold[_Keyed]):
    """Merges the staged rows of each key, one after the other, into the row that the table has."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        merges = binding.spec.table_options.merges or runs.partial
        self.reads = merges or binding.derives
        self._replaces = mode is WriteMode.CHANGES and not merges and self._fit
        """Whether the last staged row of a key replaces the stored row, which then need not be decoded."""
        self.refuses = not self._replaces

    def groups(self, after: bytes) -> Iterator[_Keyed]:
        return ((raw_key, list(rows)) for raw_key, rows in self._runs.by_key(after))

    @staticmethod
    def size_of(group: _Keyed) -> int:
        return sum(map(staged_size, group[1]))

    def write(
        self, group: _Keyed, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        raw_key, rows = group
        binding = self._binding
        if self._replaces:
            for record, _ in self._records(rows):
                records.append(record)
                if not binding.merger.drops(record[0]):
                    writes[raw_key] = None if record[0].retracts else binding.current(record[2])
            return
        row, ignored = None if old is None else binding.rows.decode_values(old), True
        for record, columns in self._records(rows):
            kind, _, raw = record
            merged = binding.merger.apply(row, kind, binding.named(raw, columns))
            if merged is not IGNORED:
                row, ignored = merged, False
            records.append(record)
        if not ignored:
            writes[raw_key] = None if row is None else binding.encoded(raw_key, row)

    def _records(self, rows: list[StagedRow]) -> Iterator[tuple[EncodedChange, tuple[str, ...] | None]]:
        """Yield the staged records, and the columns that each names."""
        if self.mode is WriteMode.CHANGES:
            return (((kind_of(raw), raw_key, raw[1:]), columns) for raw_key, raw, columns in rows)
        return (((RowKind.UPDATE_AFTER, raw_key, raw), columns) for raw_key, raw, columns in rows)


class ReplacedRows(MergedRows):
    """Writes the last staged row of each key, and records all of them."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        self.reads = binding.derives
        self.refuses = not self._fit

    def write(
        self, group: _Keyed, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        raw_key, rows = group
        for record, _ in self._records(rows):
            writes[raw_key] = self._row(raw_key, record[2])
            records.append(record)


class BagRows(MergedRows):
    """Handles equal rows together: a retract removes a row that the job has put before, or else one of the table's."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, mode: WriteMode) -> None:
        super().__init__(binding, runs, mode)
        self.refuses = not self._fit

    def written(self, latest: EngineSnapshot | None, after: bytes) -> Iterator[ChunkEffect]:
        for chunk in chunked(self.groups(after), self.size_of):
            written = ChunkEffect({}, {}, [], chunk[-1][0])
            taken: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
            for begin, rows in chunk:
                records = [record for record, _ in self._records(rows)]
                left, retracts = folded(records)
                if retracts:
                    taken[retracts].append((begin, successor(begin)))
                for _, raw_key, raw in left:
                    written.olds[raw_key], written.writes[raw_key] = None, self._row(raw_key, raw)
                written.records.extend(records)
            for retracts, intervals in taken.items():
                assert latest is not None
                written.olds.update(latest.scan_intervals(intervals, limit_each=retracts))
            written.writes.update(dict.fromkeys(written.olds.keys() - written.writes.keys()))
            yield written


def folded(records: list[EncodedChange]) -> tuple[list[EncodedChange], int]:
    """Return the equal rows that are put and not retracted again, and the most rows that the table may lose."""
    left: list[EncodedChange] = []
    retracts = 0
    for record in records:
        if not record[0].retracts:
            left.append(record)
        elif left:
            left.pop()
        else:
            retracts += 1
    return left, retracts
