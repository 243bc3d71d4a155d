"""`BagRows`: the rows of a job of mode changes on a table that is a bag of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TypeAlias

from structable.backends.ordered.codec.change_records import NewRecord
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import WriteMode

from .rows import Chunk, JobRows, chunked, staged_size
from .staged import StagedRow, StagedRuns, kind_of

__all__ = ["BagRows"]

_Interval: TypeAlias = tuple[bytes, bytes]


class BagRows(JobRows):
    """Equal rows together: a retract takes away one that the job itself has put before, or else one of the table."""

    def __init__(self, binding: TableBinding, runs: StagedRuns) -> None:
        super().__init__(binding, runs, WriteMode.CHANGES)
        self._fit = runs.fit_indexes()

    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if a run is damaged; with `decides_first` also if a row is too large for an index added since."""
        self._runs.check()
        if decides_first and not self._fit:
            for _ in self.chunks(latest):
                continue

    def chunks(self, latest: EngineSnapshot | None, after: bytes = b"") -> Iterator[Chunk]:
        for chunk in chunked(self._of_equal(after), _size):
            olds: dict[bytes, bytes | None] = {}
            writes: dict[bytes, bytes | None] = {}
            taken: defaultdict[int, list[_Interval]] = defaultdict(list)
            for equal, rows in chunk:
                left, retracts = _folded(rows)
                if retracts:
                    taken[retracts].append(equal)
                for raw_key, raw, _ in left:
                    olds[raw_key], writes[raw_key] = None, self._current(raw_key, raw[1:])
            for retracts, intervals in taken.items():
                assert latest is not None
                olds.update(latest.scan_intervals(intervals, limit_each=retracts))
            writes.update(dict.fromkeys(olds.keys() - writes.keys()))
            (last, _), _ = chunk[-1]
            made = self._chunk(writes, olds, last, partial(_given, chunk))
            if made.changes or made.appends:
                yield made

    def _current(self, raw_key: bytes, raw: bytes) -> bytes:
        return self._binding.current(raw) if self._fit else self._binding.merged(raw_key, raw, {})

    def _of_equal(self, after: bytes) -> Iterator[tuple[_Interval, list[StagedRow]]]:
        """Yield equal rows, with the interval of the keys of those in the table."""
        equal_rows = self._binding.keys.equal_rows
        for equal, group in groupby(self._runs.rows(), lambda row: equal_rows(row[0])):
            if equal[0] > after:
                yield equal, list(group)


def _size(equal: tuple[_Interval, list[StagedRow]]) -> int:
    return sum(map(staged_size, equal[1]))


def _given(chunk: Iterable[tuple[_Interval, list[StagedRow]]]) -> list[NewRecord]:
    return [(kind_of(raw), raw_key, raw[1:]) for _, rows in chunk for raw_key, raw, _ in rows]


def _folded(rows: list[StagedRow]) -> tuple[list[StagedRow], int]:
    """Return those rows that are put and not taken away again, and how many the table loses, if it has that many."""
    left: list[StagedRow] = []
    retracts = 0
    for row in rows:
        if not kind_of(row[1]).retracts:
            left.append(row)
        elif left:
            left.pop()
        else:
            retracts += 1
    return left, retracts
