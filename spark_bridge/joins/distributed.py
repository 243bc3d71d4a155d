"""`SparkSteps`: large steps and rebuilds as DataFrames of one state of the tables.

The driver takes one snapshot of each store, the result's first, so that no table is read at an earlier state than the
result. Spark's tasks read the splits, join the affected left rows with the right table and with the result, and stage
the differences. No task reads the newest state of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from functools import cache, partial, reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from structable.spark_bridge.base.python_workers import collecting_rarely
from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.base.types import spark_type
from structable.spark_bridge.write.staging import collect_reports
from structable.spi import (
    CHANGE_TYPE,
    ChangePlan,
    FeedPosition,
    RowKind,
    ScanPlan,
    ScanSplit,
    SharedSnapshot,
    Storage,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
)

from .affected import Changes, rows_to_join
from .few_changes import RightImages, SnapshotRows, keys_are
from .joining import Counts, differences, imaged_differences
from .kernel import Kernel
from .progress import Positions
from .rebuild import Staged, difference_batches, reading
from .spark_tasks import ChangedKeys, DifferenceStaging, JoinedRows, ReferringRows, SplitRows
from .stores import JoinStores

_BROADCAST_BYTES = 10 << 20
"""Tables and changes up to about this size are sent to every executor."""
_BROADCAST_CHANGES = 100_000
_SCANNED_PER_READ = 20
"""The number of rows of a distributed scan, joins included, that cost as much as one read by key."""
_FILTERED_PER_READ = 100
"""The number of rows of a distributed scan without a join that cost as much as one read by key."""
_MOST_SELECTED = 100_000
"""The maximum number of left rows that the driver keeps, to join them without tasks."""
DIRECT = 50_000
"""The maximum number of affected left rows that the driver reads by key from tables of any size, at some 45 us each.

With 100,000 rows in the table that takes 2.3 s on LevelDB and 2.5 s on PostgreSQL, tasks take 2.6 and 3.8 s."""
FEW = 1_000
"""The maximum number of changes of each table that the driver keeps; up to here no table is read whole."""


@dataclass(frozen=True, slots=True)
class _StoreStates:
    """The tables of a join at one state of each store."""

    left: ScanPlan
    right: ScanPlan
    result: ScanPlan
    snapshots: Mapping[Storage, SharedSnapshot]

    @property
    def positions(self) -> Positions:
        assert self.left.position is not None
        assert self.right.position is not None
        return Positions(self.left.position, self.right.position)


@dataclass(frozen=True, slots=True)
class _JoinedTable:
    """A table as a DataFrame: its columns under unique names, and one column that is null where there is no row."""

    frame: DataFrame
    names: dict[str, str]
    there: str

    def of(self, field: str) -> Column:
        return sf.col(self.names[field])

    @property
    def is_there(self) -> Column:
        return sf.col(self.there).isNotNull()


class SparkSteps:
    """The large steps of the Spark form; see `LargeSteps`.

    Parameters
    ----------
    spark : SparkSession
        The session whose tasks read, join and stage.
    large : int
        The maximum number of changes of a table that a step takes from its feed; with more, the whole result is
        compared.
    """

    def __init__(self, spark: SparkSession, large: int) -> None:
        self._spark = spark
        self._large = large

    def stage_changes(self, stores: JoinStores, kernel: Kernel, job: WriteJob, changes: Changes) -> Staged | None:
        """Stage the differences by the changes; None if there are more than `large` changes.

        If few left rows are affected, the driver reads them by their keys.
        """
        with collecting_rarely():  # a third of its time otherwise
            staged = self._stage_selected(stores, kernel, job, changes)
        if staged is not None:
            return staged
        with self._state(stores, kernel) as state:
            now = state.positions
            if not now.reach(changes.seen):
                return Staged([], now, Counts())
            if kernel.bound.images_suffice and changes.read(stores, kernel, now, min(FEW, self._large)):
                return self._stage_few(stores, kernel, job, state, changes)
            since = changes.since
            feeds = (
                _FeedInterval(stores.left, stores.join.left.store, kernel.bound.left, since.left, now.left),
                _FeedInterval(stores.right, stores.join.right.store, kernel.bound.right, since.right, now.right),
            )
            if not all(feed.has_at_most(self._large) for feed in feeds):
                return None
            return self._stage(stores, kernel, job, state, self._affected(stores, kernel, state, *feeds), "left")

    def stage_all(self, stores: JoinStores, kernel: Kernel, job: WriteJob) -> Staged:
        """Stage the differences between the whole join and the result."""
        with self._state(stores, kernel) as state:
            left = self._table(stores.join.left.store, state.left, kernel.bound.left, "l")
            staged = self._stage(stores, kernel, job, state, left, "full")
            staged.counts.affected = staged.counts.written
            return staged

    def _stage_selected(self, stores: JoinStores, kernel: Kernel, job: WriteJob, changes: Changes) -> Staged | None:
        """Stage the differences if so few rows are affected that reading them by key is cheaper than scans."""
        direct, left = min(DIRECT, self._large), cache(partial(_rows, stores))  # counted only if needed

        def most(rows_per_read: int) -> int:
            return min(left() // rows_per_read, self._large, _MOST_SELECTED)

        with reading(stores, kernel) as view:
            now = view.positions
            if not now.reach(changes.seen):
                return None
            known = changes.read(stores, kernel, now, direct)
            if not known and not changes.read(stores, kernel, now, most(_SCANNED_PER_READ)):
                return None
            few = kernel.bound.images_suffice and max(len(changes.left.rows), len(changes.right.rows)) <= FEW
            per_read = _FILTERED_PER_READ if few else _SCANNED_PER_READ
            found = rows_to_join(kernel, view.left, changes, direct, partial(most, per_read))
            if found is None:
                return None
            if view.result is None:
                raise TableNotFoundError(stores.join.result.name)
            lefts, rights = found
            counts = Counts(len(lefts))
            if kernel.bound.images_suffice:
                differing = imaged_differences(kernel, view.right, lefts, changes)
            else:
                differing = differences(kernel, view.right, view.result, lefts, rights)
            batches = difference_batches(kernel, differing, counts)
            return Staged([stores.result.stage(job, 0, 0, batches)], now, counts)

    @contextmanager
    def _state(self, stores: JoinStores, kernel: Kernel) -> Iterator[_StoreStates]:
        join, bound = stores.join, kernel.bound
        splits = self._spark.sparkContext.defaultParallelism
        with ExitStack() as stack:
            snapshots: dict[Storage, SharedSnapshot] = {}

            def planned(storage: Storage, table: str, columns: tuple[str, ...]) -> ScanPlan:
                if storage not in snapshots:
                    snapshots[storage] = stack.enter_context(storage.share_snapshot())
                return stack.enter_context(snapshots[storage].plan_scan(table, columns=columns, splits=splits))

            result = planned(stores.result, join.result.name, kernel.columns)  # before the tables
            left = planned(stores.left, join.left.name, bound.left_columns)
            right = planned(stores.right, join.right.name, bound.right_columns)
            bound.require_unchanged(left.specification, right.specification)
            yield _StoreStates(left, right, result, snapshots)

    def _stage_few(
        self, stores: JoinStores, kernel: Kernel, job: WriteJob, state: _StoreStates, changes: Changes
    ) -> Staged:
        """Stage the differences of changes that the driver knows: the changed left rows are joined here."""
        join, bound, splits = stores.join, kernel.bound, self._spark.sparkContext.defaultParallelism
        staged = Staged([], state.positions, Counts())
        left, right = changes.left, changes.right
        images = RightImages.of(kernel, left.rows, right)
        if images.keys:
            where = keys_are(bound.foreign_key, images.keys)
            snapshot = state.snapshots[stores.left]
            with snapshot.plan_scan(join.left.name, where=where, columns=bound.left_columns, splits=splits) as plan:
                splits = len(plan.splits)
                referring = ReferringRows(join.left.store, plan.splits, images)
                staging = DifferenceStaging(join.result.store, bound, job, referring=referring)
                staged = self._staged(self._of_splits(plan.splits), staging, state.positions)
        if left.rows:
            rights = SnapshotRows(state.snapshots[stores.right], stores.right, bound.right)
            found = imaged_differences(kernel, rights, left.rows, changes)
            batches = difference_batches(kernel, found, staged.counts)
            staged.writes.append(stores.result.stage(job, splits, 0, batches))  # no task has this number
            staged.counts.affected += len(left.rows)
        return staged

    def _table(self, store: StoreClient, plan: ScanPlan, spec: TableSpecification, letter: str) -> _JoinedTable:
        names = {name: f"{letter}{place}" for place, name in enumerate(plan.columns)}
        schema = [spark_types.StructField(names[name], spark_type(spec.field(name))) for name in plan.columns]
        there = f"{letter}_there"
        reader = SplitRows(store, plan.splits, tuple(names.values()))
        frame = self._of_splits(plan.splits).mapInArrow(reader, spark_types.StructType(schema))
        return _JoinedTable(frame.withColumn(there, sf.lit(True)), names, there)

    def _of_splits(self, splits: tuple[ScanSplit, ...]) -> DataFrame:
        """Return a DataFrame of the numbers of splits, each in a partition of its own."""
        return self._spark.range(0, len(splits), 1, len(splits))

    def _affected(
        self, stores: JoinStores, kernel: Kernel, state: _StoreStates, left: _FeedInterval, right: _FeedInterval
    ) -> _JoinedTable:
        """Return the left rows to join again, and the keys of left rows that are gone."""
        bound = kernel.bound
        rows = self._table(stores.join.left.store, state.left, bound.left, "l")
        moved, referred = self._changed(kernel, right, "m")
        moved = moved.select(*referred, sf.lit(True).alias("m_there")).distinct()
        refers = _equal(rows, bound.foreign_key, referred) & _lives(rows, bound.left)
        if left.is_empty():  # such as the changes of a hot key: the keys of the left rows need not be shuffled
            frame = rows.frame.join(right.hinted(moved), refers, "left_semi")
            return _JoinedTable(frame, rows.names, rows.there)
        changed, key = self._changed(kernel, left, "c")
        changed = changed.groupBy(*key).agg(sf.max_by("c_present", "c_seq").alias("c_present"))
        same_key = _equal(rows, bound.left.primary_key, key)
        frame = rows.frame.join(left.hinted(changed), same_key, "left").join(right.hinted(moved), refers, "left")
        frame = frame.where(sf.coalesce("c_present", "m_there"))
        own_key = [rows.names[name] for name in bound.left.primary_key]
        gone = changed.where(~sf.col("c_present")).select(
            *(sf.col(a).alias(b) for a, b in zip(key, own_key, strict=True))
        )
        frame = frame.select(*rows.names.values(), rows.there).unionByName(gone, allowMissingColumns=True)
        return _JoinedTable(frame, rows.names, rows.there)

    def _changed(self, kernel: Kernel, feed: _FeedInterval, letter: str) -> tuple[DataFrame, list[str]]:
        """Return the keys of changes that may matter, and the columns that have them."""
        bound, spec = kernel.bound, feed.spec
        columns, watched = (
            (bound.left_columns, bound.left_watched) if letter == "c" else (bound.right_columns, bound.right_watched)
        )
        plan = feed.plan(columns, self._spark.sparkContext.defaultParallelism)
        key = [f"{letter}{place}" for place in range(len(spec.primary_key))]
        schema = [
            spark_types.StructField(one, spark_type(field)) for one, field in zip(key, spec.key_fields, strict=True)
        ]
        schema.append(spark_types.StructField(f"{letter}_seq", spark_types.LongType()))
        schema.append(spark_types.StructField(f"{letter}_present", spark_types.BooleanType()))
        reader = ChangedKeys(
            feed.store,
            plan.splits,
            spec.primary_key,
            watched if bound.join.joiner is None else None,
            tuple(one.name for one in schema),
        )
        return self._of_splits(plan.splits).mapInArrow(reader, spark_types.StructType(schema)), key

    def _stage(
        self, stores: JoinStores, kernel: Kernel, job: WriteJob, state: _StoreStates, left: _JoinedTable, how: str
    ) -> Staged:
        """Join these left rows with the right table and the result, and stage the differences."""
        join, bound = stores.join, kernel.bound
        right = self._table(join.right.store, state.right, bound.right, "r")
        lives = right.frame.where(_lives(right, bound.right))
        old = self._table(join.result.store, state.result, bound.result, "o")
        key = bound.result.primary_key
        refers = _equal(left, bound.foreign_key, [right.names[name] for name in bound.right.primary_key])
        same_key = _equal(left, key, [old.names[name] for name in key])
        rows = left.frame.join(_small(lives, stores.right, join.right.name), refers, "left")
        rows = rows.join(old.frame.hint("merge"), same_key, how)
        joined = None
        if bound.select is None:
            found = [
                *left.names.values(),
                *right.names.values(),
                *old.names.values(),
                left.there,
                right.there,
                old.there,
            ]
            keys = {f"k{place}": sf.coalesce(left.of(name), old.of(name)) for place, name in enumerate(key)}
            rows = rows.select(*found, *(column.alias(name) for name, column in keys.items()))
            places = {name: place for place, name in enumerate(rows.columns)}
            at = [tuple(places[name] for name in side.names.values()) for side in (left, right, old)]
            there = tuple(places[side.there] for side in (left, right, old))
            joined = JoinedRows(bound, at[0], at[1], at[2], there, tuple(places[name] for name in keys))
        else:
            rows = _differences(kernel, rows, left, right, old)
            if how == "full":
                rows = rows.where(sf.col(CHANGE_TYPE).isNotNull())
        return self._staged(rows, DifferenceStaging(join.result.store, bound, job, joined), state.positions)

    def _staged(self, rows: DataFrame, staging: DifferenceStaging, positions: Positions) -> Staged:
        if str(self._spark.conf.get("spark.sql.adaptive.enabled")).lower() != "true":
            rows = rows.coalesce(2 * self._spark.sparkContext.defaultParallelism)  # each task connects to the store
        reports = collect_reports(rows, staging)
        counts = Counts(*(sum(one) for one in zip(*(astuple(report.counts) for report in reports), strict=True)))
        return Staged([one.staged for one in reports if one.staged is not None], positions, counts)


def _rows(stores: JoinStores) -> int:
    """Return about how many rows the left table has; 0 if its store cannot tell."""
    try:
        return stores.left.statistics(stores.join.left.name).rows
    except UnsupportedOperationError:
        return 0


@dataclass(frozen=True, slots=True)
class _FeedInterval:
    """The changes of a table in (since, until]."""

    storage: Storage
    store: StoreClient
    spec: TableSpecification
    since: FeedPosition
    until: FeedPosition

    def is_empty(self) -> bool:
        feed = self.storage.changes(self.spec.name)
        with feed.read(self.since, self.until, columns=self.spec.primary_key[:1]) as changes:
            return next(changes, None) is None

    def has_at_most(self, changes: int) -> bool:
        return changes > 0 and self.storage.changes(self.spec.name).advance(self.since, changes) >= self.until

    def plan(self, columns: tuple[str, ...], splits: int) -> ChangePlan:
        return self.storage.changes(self.spec.name).plan(self.since, self.until, columns=columns, splits=splits)

    def hinted(self, changes: DataFrame) -> DataFrame:
        """Return a DataFrame of the changes with a join hint: Spark cannot know their number."""
        return sf.broadcast(changes) if self.has_at_most(_BROADCAST_CHANGES) else changes.hint("merge")


def _small(frame: DataFrame, storage: Storage, table: str) -> DataFrame:
    """Return a table with a join hint: without one, Spark assumes that the result of `mapInArrow` is small."""
    try:
        small = storage.statistics(table).bytes <= _BROADCAST_BYTES
    except UnsupportedOperationError:
        small = False
    return sf.broadcast(frame) if small else frame.hint("merge")


def _equal(side: _JoinedTable, fields: tuple[str, ...], columns: list[str]) -> Column:
    return reduce(and_, (side.of(field) == sf.col(other) for field, other in zip(fields, columns, strict=True)))


def _lives(side: _JoinedTable, spec: TableSpecification) -> Column:
    """Return whether a row is not softly deleted."""
    soft = spec.table_options.soft_delete
    return sf.lit(True) if soft is None else ~sf.coalesce(side.of(soft), sf.lit(False))


def _differences(
    kernel: Kernel, rows: DataFrame, left: _JoinedTable, right: _JoinedTable, old: _JoinedTable
) -> DataFrame:
    """Return the rows to write, with their kinds of change; the kind is null for unchanged rows.

    `<=>` compares as `kernel.is_same` does: Spark also takes NaN for equal to itself, and -0.0 for equal to 0.0.
    """
    bound = kernel.bound
    assert bound.select is not None
    now = left.is_there & _lives(left, bound.left)
    if bound.join.how == "inner":
        now = now & right.is_there
    was = old.is_there
    new = {name: (left if side == "left" else right).of(field) for name, (side, field) in bound.select.items()}
    differs = reduce(or_, (~column.eqNullSafe(old.of(name)) for name, column in new.items()), sf.lit(False))
    kind = (
        sf.when(now & ~was, RowKind.INSERT.change_type)
        .when(now & differs, RowKind.UPDATE_AFTER.change_type)
        .when(was & ~now, RowKind.DELETE.change_type)
    )
    key = [sf.coalesce(left.of(name), old.of(name)).alias(name) for name in bound.result.primary_key]
    values = [sf.when(now, column).otherwise(old.of(name)).alias(name) for name, column in new.items()]
    return rows.select(*key, *values, kind.alias(CHANGE_TYPE))
