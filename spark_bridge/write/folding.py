"""The rows of each key, folded into the patches of a write job. Independent of Spark.

Each `update(row, default)` and `delete(key)` sees the result of the ones before it. Until the first delete it matters
whether the table has a row: both cases are followed, and become an arm `present` and an arm `absent`. From a delete on
there is only one case, which becomes `replace` or `delete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import InvalidFieldError, PatchArm, TableSpecification, Value
from structable.spi.arrow import arrow_schema, arrow_type
from structable.spi.authors import PATCH_COLUMNS, shown

from .grouping import Groups, KeyCounts, flags

if TYPE_CHECKING:
    import numpy.typing as npt

DELETES = "_deletes"
"""The column of batches to fold in which true means that the row deletes its key; there may be none."""
DEFAULT = "_default"
"""The column of batches to fold with the default of each row, a struct of fields; there may be none."""

_ARM, _SET, _REQUIRED = PATCH_COLUMNS


class Patch(NamedTuple):
    """A row of a job of mode patch: its values, and which of them it names, None if all."""

    arm: PatchArm
    values: Mapping[str, Value]
    named: frozenset[str] | None = None
    required: bool = False


@dataclass(slots=True)
class KeyFold:
    """The effect of the updates and deletes of one key, in their order, on its row, present or absent.

    Rows are fields outside the key.
    """

    changes: dict[str, Value] = field(default_factory=dict)
    """The changes of a present row; unused after a delete."""
    row: dict[str, Value] | None = None
    """The row so far in the case that the table has none, or after a delete."""
    deleted: bool = False
    missing_if_absent: bool = False
    """Whether an update before the first delete finds no row if the table has none."""
    missing: bool = False
    """Whether an update after a delete found no row."""

    def update(self, changes: Mapping[str, Value], default: Mapping[str, Value] | None) -> None:
        self.changes.update(changes)
        if self.row is not None:
            self.row.update(changes)
        elif default is not None:
            self.row = {**default, **changes}
        elif self.deleted:
            self.missing = True
        else:
            self.missing_if_absent = True

    def delete(self) -> None:
        self.deleted = True
        self.row = None
        self.changes.clear()

    def patches(self) -> list[Patch]:
        """Return the one or two patches of the key."""
        required = self.missing_if_absent and not self.missing  # a key counts once
        if self.deleted and self.row is None:
            return [Patch(PatchArm.DELETE, {}, required=required)]
        if self.deleted:
            return [Patch(PatchArm.REPLACE, self.row or {}, required=required)]
        present = Patch(PatchArm.PRESENT, self.changes, frozenset(self.changes))
        return [present] if self.row is None else [present, Patch(PatchArm.ABSENT, self.row, required=required)]


@dataclass(frozen=True, slots=True)
class UpdateFolding:
    """Turns batches of updates into batches of patches; picklable.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    fields : tuple of str
        The fields outside the key that the batches have.
    keeps_nulls : bool
        Whether a null names no field.
    default : mapping of str to Value, optional
        The default of every row; it has no key field.
    default_fields : tuple of str
        The fields of the column `DEFAULT`, if there is one.
    """

    spec: TableSpecification
    fields: tuple[str, ...]
    keeps_nulls: bool = False
    default: Mapping[str, Value] | None = None
    default_fields: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the patches: the key, and the fields of the updates and of the defaults."""
        key = self.spec.primary_key
        more = [*self.fields, *(self.default or ()), *self.default_fields]
        return (*key, *dict.fromkeys(name for name in more if name not in key))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the patches."""
        own = [column.with_nullable(True) for column in arrow_schema(self.spec, self.columns)]
        kinds = (pa.string(), pa.binary(), pa.bool_())
        return pa.schema([*own, *map(pa.field, PATCH_COLUMNS, kinds)])

    def fold(self, batches: Iterable[pa.RecordBatch], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
        """Yield the patches of batches that are sorted by key and, within a key, in their order.

        Holds one batch and one key. Counts rows, keys, and those that are missing in any case.

        Raises
        ------
        InvalidFieldError
            If a default is for another key, or the contract has no such value.
        """
        groups = Groups(self.spec.primary_key)
        going_on: _OpenKey | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            starts, goes_on = groups.starts(batch)
            ends = np.append(starts[1:], batch.num_rows)
            counts.rows += batch.num_rows
            counts.keys += len(starts) - goes_on
            self._check_default_keys(batch)
            done: list[_OpenKey] = []
            if going_on is not None and goes_on:
                self._follow(going_on.fold, batch.slice(0, int(ends[0])))
                starts, ends = starts[1:], ends[1:]
            if len(starts):  # the last key may continue, too
                if going_on is not None:
                    done.append(going_on)
                going_on = _OpenKey(self._key_of(batch, int(starts[-1])), KeyFold())
                self._follow(going_on.fold, batch.slice(int(starts[-1])))
                lengths = (ends - starts)[:-1]
                yield from self._singles(batch, starts[:-1][lengths == 1])
                for start, end in zip(starts[:-1][lengths > 1], ends[:-1][lengths > 1], strict=True):
                    one = _OpenKey(self._key_of(batch, int(start)), KeyFold())
                    self._follow(one.fold, batch.slice(int(start), int(end - start)))
                    done.append(one)
            yield from self._folded(done, counts)
        if going_on is not None:
            yield from self._folded([going_on], counts)

    def _follow(self, fold: KeyFold, batch: pa.RecordBatch) -> None:
        """Apply the rows of one key."""
        deletes = batch.column(DELETES).to_pylist() if DELETES in batch.schema.names else [None] * batch.num_rows
        rows = self._rows(batch.select(list(self.fields)), batch.num_rows)
        for row, default, deleted in zip(rows, self._defaults(batch), deletes, strict=True):
            if deleted:
                fold.delete()
            elif self.keeps_nulls:
                fold.update({name: value for name, value in row.items() if value is not None}, default)
            else:
                fold.update(row, default)

    def _rows(self, batch: pa.RecordBatch, rows: int) -> list[dict[str, Value]]:
        columns = {
            name: self._values(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        return [{name: values[place] for name, values in columns.items()} for place in range(rows)]

    def _values(self, name: str, column: pa.Array[Any]) -> list[Value]:
        try:
            return column.to_pylist()
        except (ValueError, OverflowError) as error:
            raise InvalidFieldError(self.spec.name, name, f"has a value that Python cannot hold: {error}") from None

    def _key_of(self, batch: pa.RecordBatch, place: int) -> tuple[Value, ...]:
        return tuple(self._values(name, batch.column(name).slice(place, 1))[0] for name in self.spec.primary_key)

    def _defaults(self, batch: pa.RecordBatch) -> Sequence[Mapping[str, Value] | None]:
        if DEFAULT not in batch.schema.names:
            return [self.default] * batch.num_rows
        column, own = batch.column(DEFAULT), self._own_default_fields()
        columns = pa.RecordBatch.from_arrays([self._default_of(column, name) for name in own], names=list(own))
        given = column.is_valid().to_pylist()
        return [row if there else None for row, there in zip(self._rows(columns, len(given)), given, strict=True)]

    def _default_of(self, column: pa.Array[Any], name: str) -> pa.Array[Any]:
        """Return a field of the column of defaults, null where there is none."""
        given: pa.Array[Any] = pc.struct_field(column, name)
        return given.cast(arrow_type(self.spec.field(name)))  # Spark's times are in the session's zone

    def _own_default_fields(self) -> tuple[str, ...]:
        return tuple(name for name in self.default_fields if name not in self.spec.primary_key)

    def _check_default_keys(self, batch: pa.RecordBatch) -> None:
        """Check the fields of the key that defaults name, if they do; null leaves one out."""
        if DEFAULT not in batch.schema.names:
            return
        for name in self.default_fields:
            if name in self.spec.primary_key:
                given, wanted = self._default_of(batch.column(DEFAULT), name), batch.column(name)
                others = np.flatnonzero(flags(pc.not_equal(given, wanted), null=False) & ~_deletes(batch))
                if len(others):
                    place = int(others[0])
                    own, row = shown(given[place].as_py()), shown(wanted[place].as_py())
                    reason = f"the default is for {own}, the row for {row}; leave the key out of the default"
                    raise InvalidFieldError(self.spec.name, name, reason)

    def _singles(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield the patches of keys with one row, by columns."""
        if not len(places):
            return
        batch = batch if len(places) == batch.num_rows else batch.take(places)
        deletes = _deletes(batch)
        if DEFAULT in batch.schema.names:
            has_default = flags(batch.column(DEFAULT).is_valid(), null=False)
        else:
            has_default = np.full(batch.num_rows, self.default is not None)
        for arm, chosen in (
            (PatchArm.PRESENT, ~deletes),
            (PatchArm.ABSENT, ~deletes & has_default),
            (PatchArm.DELETE, deletes),
        ):
            if chosen.any():
                yield self._of_singles(arm, batch if chosen.all() else batch.filter(pa.array(chosen)))

    def _of_singles(self, arm: PatchArm, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns: list[pa.Array[Any]] = []
        for name in self.columns:
            if name in self.spec.primary_key:
                columns.append(rows.column(name))
                continue
            kind = arrow_type(self.spec.field(name))
            given = rows.column(name) if name in self.fields and arm is not PatchArm.DELETE else None
            if arm is PatchArm.ABSENT and (given is None or self.keeps_nulls):
                default = self._default_column(rows, name, kind)
                given = default if given is None else pc.coalesce(given, default)
            columns.append(_nulls(rows.num_rows, kind) if given is None else given)
        columns.append(pa.repeat(str(arm), rows.num_rows))
        columns.append(self._named(rows) if arm is PatchArm.PRESENT else pa.nulls(rows.num_rows, pa.binary()))
        columns.append(pa.nulls(rows.num_rows, pa.bool_()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _default_column(self, rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array[Any]:
        if DEFAULT in rows.schema.names:
            if name in self.default_fields:
                return self._default_of(rows.column(DEFAULT), name)
            return _nulls(rows.num_rows, kind)
        assert self.default is not None
        value = pa.array([self.default.get(name)], kind)
        return value.take(np.zeros(rows.num_rows, dtype=np.int64))

    def _named(self, rows: pa.RecordBatch) -> pa.Array[Any]:
        """Return the column `_set` of updates."""
        names = self.columns
        if not self.keeps_nulls:
            return pa.repeat(pa.scalar(_bits(names, self.fields), pa.binary()), rows.num_rows)
        named = np.zeros((rows.num_rows, len(names)), dtype=bool)
        for place, name in enumerate(names):
            if name in self.fields:
                named[:, place] = flags(rows.column(name).is_valid(), null=False)
        packed = np.packbits(named, axis=1, bitorder="little")
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(packed.shape[1]), rows.num_rows, [None, pa.py_buffer(packed.tobytes())]
        )
        return fixed.cast(pa.binary())

    def _folded(self, keys: Sequence[_OpenKey], counts: KeyCounts) -> Iterator[pa.RecordBatch]:
        if not keys:
            return
        patches: list[tuple[tuple[Value, ...], Patch]] = []
        for one in keys:
            if one.fold.missing:
                counts.miss(one.key)
            patches += [(one.key, patch) for patch in one.fold.patches()]
        names, key = self.columns, self.spec.primary_key
        columns: list[list[Any]] = [[given[place] for given, _ in patches] for place in range(len(key))]
        columns += [[patch.values.get(name) for _, patch in patches] for name in names[len(key) :]]
        columns.append([str(patch.arm) for _, patch in patches])
        columns.append([None if patch.named is None else _bits(names, patch.named) for _, patch in patches])
        columns.append([patch.required for _, patch in patches])
        arrays = [pa.array(values, column.type) for values, column in zip(columns, self.schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _OpenKey(NamedTuple):
    key: tuple[Value, ...]
    fold: KeyFold


def _deletes(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    if DELETES in batch.schema.names:
        return flags(batch.column(DELETES), null=False)
    return np.zeros(batch.num_rows, dtype=bool)


def _nulls(rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return pa.array([None] * rows, kind)


def _bits(names: Sequence[str], named: Iterable[str]) -> bytes:
    wanted = frozenset(named)
    bits = sum(1 << place for place, name in enumerate(names) if name in wanted)
    return bits.to_bytes(-(-len(names) // 8), "little")
