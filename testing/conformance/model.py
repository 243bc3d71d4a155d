"""A naive model of one table, with snapshots and conflicts, that knows nothing of how the library works.

Rows are dictionaries in a dictionary by key; scans sort all of them; conditions are evaluated by hand in three-valued
logic. Where the contract says "may", the model says so, and the state machine accepts both.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from structable.spi import (
    FieldType,
    Isolation,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    TableSpecification,
    Value,
)

from .conditions import Condition, equals, rank
from .merge_model import MergeModel
from .samples import Record

Key = tuple[Any, ...]
State = dict[Key, Record]


def kept(spec: TableSpecification, name: str, value: Value) -> Value:
    """Return a value as a table keeps it: floats of 32 bits rounded, instants in UTC."""
    kind = spec.field(name).type
    if value is None:
        return None
    if kind is FieldType.FLOAT:
        return ctypes.c_float(float(value)).value  # type: ignore[arg-type] # a number
    if kind is FieldType.DOUBLE:
        return float(value)  # type: ignore[arg-type] # a number
    if kind is FieldType.DECIMAL and isinstance(value, int):
        return Decimal(value)
    return value.astimezone(dt.UTC) if kind is FieldType.TIMESTAMP and isinstance(value, dt.datetime) else value


class Verdict(enum.Enum):
    """Whether a transaction conflicts with the commits since its snapshot."""

    NO = "no"
    MAY = "may"
    MUST = "must"


class WriteKind(enum.Enum):
    """How a transaction wrote a row. The contract leaves open whether VANISHED and NOTHING count as writes."""

    WRITE = "write"
    INCREMENT = "increment"  # by increments alone
    MERGE = "merge"  # by merges of a blind table alone
    VANISHED = "vanished"  # a row that was absent is absent again
    NOTHING = "nothing"  # by an operation that changed nothing


@cache
def merging(spec: TableSpecification) -> MergeModel:
    """Return the merges of a table."""
    return MergeModel(spec)


@dataclass
class Model:
    """The committed rows of a table, and the writes of each commit."""

    spec: TableSpecification
    rows: State = field(default_factory=dict)
    commits: list[dict[Key, WriteKind]] = field(default_factory=list)

    def begin(self, isolation: Isolation = Isolation.SNAPSHOT) -> ModelTransaction:
        """Begin a transaction that reads the rows as they are now."""
        return ModelTransaction(self, isolation, self.rows, len(self.commits), dict(self.rows))


@dataclass
class ModelTransaction:
    """A snapshot, and the transaction's changes to it."""

    model: Model
    isolation: Isolation
    before: State  # the rows of the snapshot; never changed
    since: int  # the number of commits in the snapshot
    rows: State  # as this transaction sees them
    kinds: dict[Key, WriteKind] = field(default_factory=dict)
    increments: dict[Key, dict[str, int]] = field(default_factory=dict)  # sums by field, of rows only incremented
    merges: dict[Key, list[tuple[RowKind, Record]]] = field(default_factory=dict)  # of rows only merged

    @property
    def spec(self) -> TableSpecification:
        return self.model.spec

    def copy(self) -> ModelTransaction:
        """Return a copy to try an operation on."""
        deltas = {key: dict(sums) for key, sums in self.increments.items()}
        merges = {key: list(changes) for key, changes in self.merges.items()}
        return ModelTransaction(
            self.model, self.isolation, self.before, self.since, dict(self.rows), dict(self.kinds), deltas, merges
        )

    def verdict(self) -> Verdict:
        """Return whether a commit now would conflict; SERIALIZABLE may, whenever anything was committed since."""
        later = self.model.commits[self.since :]
        found = Verdict.MAY if later and self.isolation is Isolation.SERIALIZABLE else Verdict.NO
        for written in later:
            for key in self.kinds.keys() & written.keys():
                kinds = {self.kinds[key], written[key]}
                absent = key not in self.before and key not in self.model.rows
                both_may = kinds in ({WriteKind.INCREMENT}, {WriteKind.MERGE})
                if kinds & {WriteKind.VANISHED, WriteKind.NOTHING} or both_may or absent:
                    found = Verdict.MAY
                else:
                    return Verdict.MUST
        return found

    def commit(self) -> None:
        """Commit the changes; increments and blind merges apply to rows as others have left them."""
        rows = dict(self.model.rows)
        for key, kind in self.kinds.items():
            if kind is WriteKind.INCREMENT:
                row = dict(rows.get(key, self.empty(key)))
                for name, amount in self.increments[key].items():
                    row[name] = (row[name] or 0) + amount
                rows[key] = row
            elif kind is WriteKind.MERGE:
                for change, given in self.merges[key]:
                    merged = merging(self.spec).merge(rows.get(key), change, given)
                    assert merged is not None
                    rows[key] = merged
            elif kind is WriteKind.WRITE and key in self.rows:
                rows[key] = self.rows[key]
            elif kind is WriteKind.WRITE:
                rows.pop(key, None)
        self.model.rows = rows
        self.model.commits.append(dict(self.kinds))

    def empty(self, key: Key) -> Record:
        """Return a row of nulls."""
        nulls: Record = dict.fromkeys(self.spec.field_names)
        return {**nulls, **dict(zip(self.spec.primary_key, key, strict=True))}

    def key_of(self, row: Mapping[str, Value]) -> Key:
        """Return a row's key in its stored form."""
        return tuple(kept(self.spec, name, row[name]) for name in self.spec.primary_key)

    def kept_key(self, key: tuple[Value, ...]) -> Key:
        """Return a key in its stored form."""
        return tuple(kept(self.spec, name, value) for name, value in zip(self.spec.primary_key, key, strict=True))

    def _put(self, key: Key, row: Record | None) -> None:
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        self.increments.pop(key, None)
        self.merges.pop(key, None)
        vanished = row is None and key not in self.before
        self.kinds[key] = WriteKind.VANISHED if vanished else WriteKind.WRITE

    def _change(self, key: Key, base: Record, changes: Mapping[str, Value]) -> None:
        changed = {**base, **{name: kept(self.spec, name, value) for name, value in changes.items()}}
        names_nothing = changes.keys() <= set(self.spec.primary_key)
        if names_nothing and key in self.rows:
            self.kinds.setdefault(key, WriteKind.NOTHING)
        else:
            self._put(key, changed)

    def try_in_vain(self, keys: Iterable[Key]) -> None:
        """Record rows of a rejected write: whether the rejection or a conflict of the rows is raised is unspecified."""
        for key in keys:
            self.kinds.setdefault(key, WriteKind.NOTHING)

    def upsert(self, row: Mapping[str, Value]) -> None:
        self.apply_changes([(RowKind.INSERT, row)])

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        for row in rows:
            self.upsert(row)

    def apply_changes(self, changes: Iterable[tuple[RowKind, Mapping[str, Value]]]) -> None:
        engine = merging(self.spec)
        for kind, row in changes:
            key = self.key_of(row)
            if engine.plain and not kind.retracts:
                self._change(key, self.rows.get(key, self.empty(key)), row)
            else:
                self._merge(engine, key, kind, {name: kept(self.spec, name, value) for name, value in row.items()})

    def _merge(self, engine: MergeModel, key: Key, kind: RowKind, given: Record) -> None:
        before = self.rows.get(key)
        after = engine.merge(before, kind, given)
        if after is before or (after is None and before is None):
            self.kinds.setdefault(key, WriteKind.NOTHING)
        elif engine.blind and after is not None and self.kinds.get(key) in (None, WriteKind.NOTHING, WriteKind.MERGE):
            self.rows[key] = after
            self.kinds[key] = WriteKind.MERGE
            self.merges.setdefault(key, []).append((kind, given))
        elif after == before and (engine.engine != "deduplicate" or engine.sequence):
            self.kinds.setdefault(key, WriteKind.NOTHING)  # whether equal rows are writes is unspecified
        else:
            self._put(key, after)

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        for row in rows:
            self.insert(row)

    def replace(self, row: Mapping[str, Value]) -> None:
        key = self.key_of(row)
        self._put(key, {**self.empty(key), **{name: kept(self.spec, name, value) for name, value in row.items()}})

    def insert(self, row: Mapping[str, Value]) -> None:
        key = self.key_of(row)
        if key in self.rows:
            raise RecordExistsError(self.spec.name, key)
        self.replace(row)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None) -> None:
        key = self.key_of(row)
        if key in self.rows:
            self._change(key, self.rows[key], row)
        elif default is None:
            raise RecordNotFoundError(self.spec.name, key)
        else:
            self.replace({**default, **row})

    def compare_and_swap(self, key: Key, name: str, expected: Value, value: Value) -> bool:
        current = self.rows.get(key, self.empty(key))[name]
        wanted = kept(self.spec, name, expected)
        matches = current is None if wanted is None else current is not None and equals(current, wanted)
        if matches:
            self._put(key, {**self.rows.get(key, self.empty(key)), name: kept(self.spec, name, value)})
        else:
            self.kinds.setdefault(key, WriteKind.NOTHING)
        return matches

    def increment(self, key: Key, name: str, amount: int) -> None:
        row = self.rows.get(key, self.empty(key))
        changed = {**row, name: (row[name] or 0) + amount}
        if self.kinds.get(key) in (WriteKind.WRITE, WriteKind.VANISHED, WriteKind.MERGE):
            self._put(key, changed)
            return
        self.rows[key] = changed
        self.kinds[key] = WriteKind.INCREMENT
        sums = self.increments.setdefault(key, {})
        sums[name] = sums.get(name, 0) + amount

    def delete(self, key: Key) -> None:
        """Delete a row; an absent row is not written."""
        if key in self.rows:
            self._put(key, None)

    def delete_all(self, range_: Range, where: Condition | None) -> int:
        found = self.matching([range_], where)
        for row in found:
            self._put(self.key_of(row), None)
        return len(found)

    def update_all(self, range_: Range, changes: Mapping[str, Value], where: Condition | None) -> int:
        found = self.matching([range_], where)
        for row in found:
            self._change(self.key_of(row), row, changes)
        return len(found)

    def matching(self, ranges: Iterable[Range], where: Condition | None) -> list[Record]:
        """Return the rows in any of the ranges that match the condition, in key order."""
        return [
            self.rows[key]
            for key in sorted(self.rows)
            if any(inside(key, range_) for range_ in ranges) and (where is None or where.truth(self.rows[key]) is True)
        ]

    def scan(
        self,
        ranges: list[Range],
        where: Condition | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        limit_per_range: int | None = None,
    ) -> list[Record]:
        found = self.matching(ranges, where)
        if limit_per_range is not None:
            firsts = [self.scan([range_], where, order_by, reverse, limit_per_range) for range_ in ranges]
            found = [row for row in found if any(row is one for rows in firsts for one in rows)]
        if order_by is not None:
            found.sort(key=nulls_first(order_by))  # stable: ties stay in key order
        if reverse:
            found.reverse()
        return found if limit is None else found[:limit]


def nulls_first(name: str) -> Callable[[Record], tuple[Any, ...]]:
    """Return a sort key by one field."""
    return lambda row: (0,) if row[name] is None else (1, rank(row[name]))


def inside(key: Key, range_: Range) -> bool:
    """Return whether a key is in a range whose bounds are tuples: as many fields as a bound has are compared."""
    begin, end = range_.begin, range_.end
    if isinstance(begin, tuple):
        head = key[: len(begin)]
        if head < begin or (head == begin and not range_.begin_inclusive):
            return False
    if isinstance(end, tuple):
        head = key[: len(end)]
        if head > end or (head == end and not range_.end_inclusive):
            return False
    return True


def comparable(row: Mapping[str, Value]) -> Record:
    """Return a row in which NaN equals NaN."""
    return {name: "NaN" if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
