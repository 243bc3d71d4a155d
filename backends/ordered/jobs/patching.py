"""`PatchRows`: the rows of a job of mode patch: what each does is judged on the row of its key before the job.

In runs, what a row does precedes its value: a byte with the number of its arm and, in its third bit, whether it is
required, and a bit for each column of its batch that it names, the lowest of the first byte for the first column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from structable.backends.base.patches import REPEATABLE, PatchMarks, misfit
from structable.backends.ordered.codec.change_records import NewRecord
from structable.backends.ordered.engine import EngineSnapshot, Pair
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import (
    DataCorruptionError,
    PatchArm,
    RecordChangedError,
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    WriteMode,
)
from structable.spi.evaluation import equal

from .rows import Chunk, JobRows
from .staged import StagedRow, StagedRuns

__all__ = ["PatchRows", "of_marks"]

_ARMS = tuple(PatchArm)
_NUMBERS = {arm: number for number, arm in enumerate(_ARMS)}
_REQUIRED = 4
_SHOWN_KEYS = 10
_MOST_ARMS = 2


def of_marks(pairs: Iterable[Pair], marks: PatchMarks, columns: int) -> list[Pair]:
    """Return the pairs of a run of mode patch, whose batches have that many columns."""
    size = _named_bytes(columns)
    heads = [
        bytes([_head(mark.arm, required=mark.required)]) + mark.named.to_bytes(size, "little")
        for mark in marks.distinct
    ]
    return [(raw_key, heads[place] + raw) for (raw_key, raw), place in zip(pairs, marks.places.tolist(), strict=True)]


def _head(arm: PatchArm, *, required: bool) -> int:
    rest, low = divmod(_NUMBERS[arm], _REQUIRED)
    return low + _REQUIRED * (required + 2 * rest)


def _named_bytes(columns: int) -> int:
    return -(-columns // 8)


class _Mark(NamedTuple):
    """What a staged row does."""

    arm: PatchArm
    required: bool
    positions: tuple[int, ...]
    """Of the named fields among the fields outside the key."""


class _Patch(NamedTuple):
    """One staged row of a key."""

    mark: _Mark
    raw: bytes


class PatchRows(JobRows):
    """Each key once, as its arms say; with `skips_missing`, keys that have no row and must have one are counted."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, *, skips_missing: bool) -> None:
        super().__init__(binding, runs, WriteMode.PATCH)
        self._skips_missing = skips_missing
        self._fit = runs.fit_indexes()
        self._first_missing: list[bytes] = []
        self._changed = 0
        self._first_changed: list[bytes] = []
        self._marks: dict[tuple[tuple[str, ...], bytes], _Mark] = {}

    def check(self, latest: EngineSnapshot, *, decides_first: bool) -> None:
        """Raise if a run is damaged; with `decides_first` also for missing keys, misfits, and rows over the limits."""
        self._runs.check()
        if decides_first:
            for _ in self.chunks(latest):
                continue

    def chunks(self, latest: EngineSnapshot | None, after: bytes = b"") -> Iterator[Chunk]:
        self.missing, self._first_missing = 0, []
        self._changed, self._first_changed = 0, []
        for chunk, olds in self._chunked(latest, self._by_key(after), _size):
            writes: dict[bytes, bytes | None] = {}
            records: list[NewRecord] = []
            for raw_key, patches in chunk:
                self._apply(raw_key, patches, olds[raw_key], writes, records)
            made = self._chunk(writes, olds, chunk[-1][0], partial(list, records))
            if made.changes or made.appends:
                yield made
        if self._changed:
            raise RecordChangedError(self._binding.spec.name, self._decoded(self._first_changed), self._changed)
        if self.missing and not self._skips_missing:
            keys = self._decoded(self._first_missing)
            raise RecordNotFoundError(self._binding.spec.name, keys[0], keys, self.missing)

    def _decoded(self, raw_keys: Iterable[bytes]) -> tuple[tuple[object, ...], ...]:
        return tuple(self._binding.keys.decode(raw_key) for raw_key in raw_keys)

    def _by_key(self, after: bytes) -> Iterator[tuple[bytes, list[_Patch]]]:
        for raw_key, rows in self._runs.by_key(after):
            yield raw_key, self._different(map(self._patch, rows))

    def _different(self, patches: Iterable[_Patch]) -> list[_Patch]:
        """Return the rows of a key without repeated ones of arms that may be; at most one more than fit together."""
        found: dict[_Patch, None] = {}
        others: list[_Patch] = []
        for patch in patches:
            if patch.mark.arm in REPEATABLE:
                found[patch] = None
            elif len(others) <= _MOST_ARMS:
                others.append(patch)
        return [*found, *others]

    def _apply(
        self,
        raw_key: bytes,
        patches: Sequence[_Patch],
        old: bytes | None,
        writes: dict[bytes, bytes | None],
        records: list[NewRecord],
    ) -> None:
        """Add what the arms of one key write, and what a feed with the producer input has of it."""
        binding = self._binding
        arms = {patch.mark.arm: patch for patch in patches}
        if len(patches) > 1:
            error = misfit(binding.spec.name, binding.keys.decode(raw_key), [patch.mark.arm for patch in patches])
            if error is not None:
                raise error
        arms.pop(PatchArm.EXPECT, None)
        if not all(self._is_as(old, patch) for patch in patches if patch.mark.arm is PatchArm.EXPECT):
            self._changed += 1
            if len(self._first_changed) < _SHOWN_KEYS:
                self._first_changed.append(raw_key)
        if old is None:
            self._note_missing(raw_key, arms)
        if PatchArm.INSERT in arms and PatchArm.DELETE in arms:
            arms = {PatchArm.REPLACE: arms[PatchArm.INSERT]}
        if (present := arms.get(PatchArm.PRESENT)) is not None and old is not None:
            self._put(raw_key, self._updated(raw_key, old, present), RowKind.UPDATE_AFTER, writes, records)
        elif (absent := arms.get(PatchArm.ABSENT)) is not None and old is None:
            self._put(raw_key, self._row(raw_key, absent), RowKind.INSERT, writes, records)
        elif (replaced := arms.get(PatchArm.REPLACE)) is not None:
            self._put(raw_key, self._row(raw_key, replaced), RowKind.UPDATE_AFTER, writes, records)
        elif (inserted := arms.get(PatchArm.INSERT)) is not None:
            if old is not None:
                raise RecordExistsError(binding.spec.name, binding.keys.decode(raw_key))
            self._put(raw_key, self._row(raw_key, inserted), RowKind.INSERT, writes, records)
        elif PatchArm.DELETE in arms:
            if old is not None:
                writes[raw_key] = None
            records.append((RowKind.DELETE, raw_key, binding.raw_nulls))

    def _is_as(self, old: bytes | None, expected: _Patch) -> bool:
        """Tell whether there is a row that has the values of the named fields."""
        if old is None or old == expected.raw:
            return old is not None
        decode = self._binding.rows.decode_values
        values, wanted = decode(old), decode(expected.raw)
        return all(equal(values[position], wanted[position]) for position in expected.mark.positions)

    def _note_missing(self, raw_key: bytes, arms: Mapping[PatchArm, _Patch]) -> None:
        """Count a key without a row, if it must have one."""
        alone = list(arms) == [PatchArm.PRESENT]
        if alone or any(patch.mark.required for patch in arms.values()):
            self.missing += 1
            if len(self._first_missing) < _SHOWN_KEYS:
                self._first_missing.append(raw_key)

    def _put(
        self, raw_key: bytes, raw: bytes, kind: RowKind, writes: dict[bytes, bytes | None], records: list[NewRecord]
    ) -> None:
        writes[raw_key] = raw
        records.append((kind, raw_key, raw))

    def _updated(self, raw_key: bytes, old: bytes, patch: _Patch) -> bytes:
        if len(patch.mark.positions) == len(self._binding.value_positions):
            return self._row(raw_key, patch)
        decode = self._binding.rows.decode_values
        values, given = list(decode(old)), decode(patch.raw)
        for position in patch.mark.positions:
            values[position] = given[position]
        return self._binding.encoded(raw_key, tuple(values))

    def _row(self, raw_key: bytes, patch: _Patch) -> bytes:
        """Return the row of the fields that a patch names; the others are null in what was staged."""
        binding = self._binding
        return binding.current(patch.raw) if self._fit else binding.merged(raw_key, patch.raw, {})

    def _patch(self, row: StagedRow) -> _Patch:
        _, raw, columns = row
        assert columns is not None, "rows of a patch come with their columns"
        size = 1 + _named_bytes(len(columns))
        mark = self._marks.get((columns, raw[:size]))
        if mark is None:
            mark = self._marks[columns, raw[:size]] = self._mark(columns, raw[:size])
        return _Patch(mark, raw[size:])

    def _mark(self, columns: tuple[str, ...], head: bytes) -> _Mark:
        try:
            marks, low = divmod(head[0], _REQUIRED)
            rest, required = divmod(marks, 2)
            arm = _ARMS[low + _REQUIRED * rest]
        except IndexError:
            raise DataCorruptionError(f"a staged row begins with {head[:1].hex()}, which is no arm") from None
        named, positions = int.from_bytes(head[1:], "little"), self._binding.value_positions
        names = [name for place, name in enumerate(columns) if named >> place & 1]
        return _Mark(arm, bool(required), tuple(positions[name] for name in names if name in positions))


def _size(keyed: tuple[bytes, list[_Patch]]) -> int:
    return sum(len(patch.raw) for patch in keyed[1])
