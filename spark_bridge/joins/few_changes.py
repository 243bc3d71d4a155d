"""Large steps with few changes: the left rows that refer to a changed row of the right table, without the result.

The result equals the join at the recorded positions. So the result row of an unchanged left row was made from the old
state of its right row, and the feed holds an image of that state. The change of the result depends on the right row
alone, and is the same for all left rows that refer to it. Neither the result nor the right table is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from structable.spark_bridge.write.grouping import flags
from structable.spi import CHANGE_TYPE, Filter, Row, SharedSnapshot, Storage, TableSpecification, col
from structable.spi.arrow import arrow_schema
from structable.spi.authors import RowShape

from .affected import SideChanges
from .binding import BoundJoin
from .kernel import Difference, Kernel, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Finds the rows of a batch that have one of some distinct keys; picklable."""

    steps: tuple[tuple[pa.Array[Any], Places], ...]
    """For each column its distinct values, and a table from the numbers of a key's prefix and of a value to the number
    of the longer prefix; -1 stands for no key."""

    @classmethod
    def of(cls, spec: TableSpecification, fields: Sequence[str], keys: Sequence[Values]) -> KeyPlaces:
        """Return a finder of these keys, which are values of these fields."""
        steps = []
        begun, beginnings = [0] * len(keys), 1
        for place, field in enumerate(arrow_schema(spec, fields)):
            numbers = {value: number for number, value in enumerate(dict.fromkeys(key[place] for key in keys))}
            pairs = [(beginning, numbers[key[place]]) for beginning, key in zip(begun, keys, strict=True)]
            found = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
            leads = np.full((beginnings + 1, len(numbers) + 1), -1, dtype=np.int64)
            for pair, number in found.items():
                leads[pair] = number
            steps.append((pa.array(list(numbers), field.type), leads))
            begun, beginnings = [found[pair] for pair in pairs], len(found)
        return cls(tuple(steps))

    def among(self, batch: pa.RecordBatch, columns: Sequence[str]) -> Places:
        """Return for each row the number of the key in these columns; -1 if it is none of the keys."""
        places = np.zeros(batch.num_rows, dtype=np.int64)
        for name, (values, leads) in zip(columns, self.steps, strict=True):
            numbers = pc.index_in(batch.column(name), value_set=values).fill_null(-1)
            places = leads[places, numbers.to_numpy(zero_copy_only=False)]
        return places


@dataclass(frozen=True, slots=True)
class RightImages:
    """The changes of results for unchanged left rows that refer to changed right rows; picklable.

    Attributes
    ----------
    bound : BoundJoin
        The join, which has no joiner.
    keys : tuple of tuple
        The keys of the right table whose left rows get another result row, or lose theirs.
    """

    bound: BoundJoin
    keys: tuple[Values, ...]
    _referred: KeyPlaces
    _changed: KeyPlaces
    _columns: Mapping[str, pa.Array[Any]]
    """The columns of the result that come from the right table, and the kind of change; a value for each key."""

    @classmethod
    def of(cls, kernel: Kernel, changed_left: Iterable[Values], right: SideChanges) -> RightImages:
        """Return the images of changes of the right table; left rows with keys in `changed_left` are left out."""
        bound = kernel.bound
        assert bound.select is not None
        left = Row(
            RowShape(bound.left.name, bound.left_columns, bound.left.primary_key), (None,) * len(bound.left_columns)
        )
        found: dict[Values, Difference] = {}
        for key, after in right.rows.items():
            was, now = (kernel.joined(left, row) for row in (right.before[key], after))
            difference = kernel.difference(left.key, was, now)
            if difference is not None:
                found[key] = difference
        columns: dict[str, pa.Array[Any]] = {
            CHANGE_TYPE: pa.array([one.kind.change_type for one in found.values()], pa.string())
        }
        for place, field in enumerate(arrow_schema(bound.result, kernel.columns)):
            if field.name in bound.select and bound.select[field.name][0] == "right":
                columns[field.name] = pa.array([one.values[place] for one in found.values()], field.type)
        keys = tuple(found)
        referred = KeyPlaces.of(bound.right, bound.right.primary_key, keys)
        own = KeyPlaces.of(bound.left, bound.left.primary_key, list(changed_left))
        return cls(bound, keys, referred, own, columns)

    def differences(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to write for a batch of left rows, without changed rows and rows that refer to other keys."""
        bound = self.bound
        assert bound.select is not None
        places = self._referred.among(batch, bound.foreign_key)
        counts = (places >= 0) & (self._changed.among(batch, bound.left.primary_key) < 0)
        if bound.left.table_options.soft_delete is not None:
            counts &= ~flags(batch.column(bound.left.table_options.soft_delete), null=False)
        if not counts.all():
            batch, places = batch.filter(pa.array(counts)), places[counts]
        taken = pa.array(places, pa.int64())
        names = [*bound.result.primary_key, *bound.select, CHANGE_TYPE]
        columns = [
            self._columns[name].take(taken) if name in self._columns else batch.column(self._source(name))
            for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _source(self, name: str) -> str:
        """Return the left table's field behind a column of the result."""
        assert self.bound.select is not None
        return self.bound.select[name][1] if name in self.bound.select else name


def keys_are(fields: Sequence[str], keys: Iterable[Values]) -> Filter:
    """Return a filter that accepts all rows with these keys; with several fields it may accept other rows."""
    columns = zip(*keys, strict=True)
    wanted: list[Filter] = [col(name).isin(dict.fromkeys(values)) for name, values in zip(fields, columns, strict=True)]
    return reduce(and_, wanted)


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Reads rows by their keys, few at a time, from a shared snapshot."""

    snapshot: SharedSnapshot
    storage: Storage
    spec: TableSpecification

    def multi_read(self, keys: Iterable[Values], columns: Iterable[str] | None = None) -> list[Row]:
        """Return the rows with these keys, in no order."""
        wanted, spec = set(keys), self.spec
        if not wanted:
            return []
        names = spec.field_names if columns is None else tuple(columns)
        shape = RowShape(spec.name, names, spec.primary_key)
        where = keys_are(spec.primary_key, wanted)
        with self.snapshot.plan_scan(spec.name, where=where, columns=names) as plan:
            rows = [row for split in plan.splits for row in self._rows(shape, self.storage.read_split(split))]
        return [row for row in rows if row.key in wanted]

    def _rows(self, shape: RowShape, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Row(shape, values)
