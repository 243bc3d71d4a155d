"""`PatchedRows`: the rows of a job of mode `patch`; the row of the key before the job decides the effect of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from structable.backends.base.patches import REPEATABLE, misfit
from structable.backends.ordered.codec.change_records import EncodedChange
from structable.backends.ordered.engine import EngineSnapshot
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import PatchArm, RecordChangedError, RecordExistsError, RecordNotFoundError, RowKind, WriteMode
from structable.spi.authors import equal

from .encoding import mark_bytes, mark_of
from .rows import ChunkEffect, Fold
from .staged import StagedRow, StagedRuns

_SHOWN_KEYS = 10
_MOST_ARMS = 2


class _ArmEffect(NamedTuple):
    """The effect of a staged row."""

    arm: PatchArm
    required: bool
    positions: tuple[int, ...]
    """Positions of the named fields among the fields outside the key."""


class _PatchRow(NamedTuple):
    """One staged row of a key."""

    mark: _ArmEffect
    raw: bytes


_Keyed: TypeAlias = tuple[bytes, list[_PatchRow]]


class PatchedRows(Fold[_Keyed]):
    """Applies the arms of each key; with `skips_missing`, counts the keys that require a row and have none."""

    def __init__(self, binding: TableBinding, runs: StagedRuns, *, skips_missing: bool) -> None:
        super().__init__(binding, runs, WriteMode.PATCH)
        self._skips_missing = skips_missing
        self._first_missing: list[bytes] = []
        self._changed = 0
        self._first_changed: list[bytes] = []
        self._marks: dict[tuple[tuple[str, ...], bytes], _ArmEffect] = {}

    def written(self, latest: EngineSnapshot | None, after: bytes) -> Iterator[ChunkEffect]:
        self.missing, self._first_missing = 0, []
        self._changed, self._first_changed = 0, []
        yield from super().written(latest, after)
        if self._changed:
            raise RecordChangedError(self._binding.spec.name, self._decoded(self._first_changed), self._changed)
        if self.missing and not self._skips_missing:
            keys = self._decoded(self._first_missing)
            raise RecordNotFoundError(self._binding.spec.name, keys[0], keys, self.missing)

    def _decoded(self, raw_keys: Iterable[bytes]) -> tuple[tuple[object, ...], ...]:
        return tuple(self._binding.keys.decode(raw_key) for raw_key in raw_keys)

    def groups(self, after: bytes) -> Iterator[_Keyed]:
        return ((raw_key, self._different(map(self._patch, rows))) for raw_key, rows in self._runs.by_key(after))

    @staticmethod
    def size_of(group: _Keyed) -> int:
        return sum(len(patch.raw) for patch in group[1])

    def _different(self, patches: Iterable[_PatchRow]) -> list[_PatchRow]:
        """Return the rows of a key, each repeatable arm once; at most one row more than can stand together."""
        found: dict[_PatchRow, None] = {}
        others: list[_PatchRow] = []
        for patch in patches:
            if patch.mark.arm in REPEATABLE:
                found[patch] = None
            elif len(others) <= _MOST_ARMS:
                others.append(patch)
        return [*found, *others]

    def write(
        self, group: _Keyed, old: bytes | None, writes: dict[bytes, bytes | None], records: list[EncodedChange]
    ) -> None:
        raw_key, patches = group
        spec = self._binding.spec
        if len(patches) > 1:
            error = misfit(spec.name, self._binding.keys.decode(raw_key), [patch.mark.arm for patch in patches])
            if error is not None:
                raise error
        if not all(self._is_as(old, patch) for patch in patches if patch.mark.arm is PatchArm.EXPECT):
            self._changed += 1
            if len(self._first_changed) < _SHOWN_KEYS:
                self._first_changed.append(raw_key)
        arms: dict[PatchArm, _PatchRow] = {}
        arms.update((patch.mark.arm, patch) for patch in patches if patch.mark.arm is not PatchArm.EXPECT)
        if old is None:
            self._note_missing(raw_key, arms)
        new, replaced = arms.get(PatchArm.INSERT), arms.get(PatchArm.REPLACE)
        if new is not None and PatchArm.DELETE in arms:
            new, replaced = None, new
        kind = RowKind.UPDATE_AFTER
        raw: bytes | None = None
        if replaced is not None:
            raw = self._row(raw_key, replaced.raw)
        elif new is not None or (old is None and (new := arms.get(PatchArm.ABSENT)) is not None):
            if old is not None:
                raise RecordExistsError(spec.name, self._binding.keys.decode(raw_key))
            kind, raw = RowKind.INSERT, self._row(raw_key, new.raw)
        elif old is not None and (present := arms.get(PatchArm.PRESENT)) is not None:
            raw = self._updated(raw_key, old, present)
        elif PatchArm.DELETE in arms:
            if old is not None:
                writes[raw_key] = None
            records.append((RowKind.DELETE, raw_key, self._binding.raw_nulls))
        if raw is not None:
            writes[raw_key] = raw
            records.append((kind, raw_key, raw))

    def _is_as(self, old: bytes | None, expected: _PatchRow) -> bool:
        """Return whether there is a row with the values of the named fields."""
        if old is None or old == expected.raw:
            return old is not None
        decode = self._binding.rows.decode_values
        values, wanted = decode(old), decode(expected.raw)
        return all(equal(values[position], wanted[position]) for position in expected.mark.positions)

    def _note_missing(self, raw_key: bytes, arms: Mapping[PatchArm, _PatchRow]) -> None:
        """Count a key without a row, if it must have one."""
        alone = list(arms) == [PatchArm.PRESENT]
        if alone or any(patch.mark.required for patch in arms.values()):
            self.missing += 1
            if len(self._first_missing) < _SHOWN_KEYS:
                self._first_missing.append(raw_key)

    def _updated(self, raw_key: bytes, old: bytes, patch: _PatchRow) -> bytes:
        if len(patch.mark.positions) == len(self._binding.value_positions):
            return self._row(raw_key, patch.raw)
        decode = self._binding.rows.decode_values
        values, given = list(decode(old)), decode(patch.raw)
        for position in patch.mark.positions:
            values[position] = given[position]
        return self._binding.encoded(raw_key, tuple(values))

    def _patch(self, row: StagedRow) -> _PatchRow:
        _, raw, columns = row
        assert columns is not None, "rows of a patch come with their columns"
        size = mark_bytes(len(columns))
        mark = self._marks.get((columns, raw[:size]))
        if mark is None:
            arm, required, names = mark_of(columns, raw[:size])
            positions = self._binding.value_positions
            mark = _ArmEffect(arm, required, tuple(positions[name] for name in names if name in positions))
            self._marks[columns, raw[:size]] = mark
        return _PatchRow(mark, raw[size:])
