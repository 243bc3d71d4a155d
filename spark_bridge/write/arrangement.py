"""The tasks that stage the rows of a DataFrame, and the order in which rows reach them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from structable.spark_bridge.base.types import spark_type
from structable.spi import CHANGE_TYPE, FEED_COLUMNS, RowKind, TableSpecification

COMMIT_VERSION = FEED_COLUMNS[1]


class RowOrder(enum.Enum):
    """An order of the rows of a key that no column gives alone."""

    POSITION = enum.auto()
    """As the rows are: by the number of the partition, and then of the row."""
    PREIMAGES_FIRST = enum.auto()
    """Order changes: the row before an update comes before the row after it."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrangement of the rows of a DataFrame.

    Parameters
    ----------
    fields : tuple of str
        The fields to write.
    beside : mapping of str to Column
        Further columns that the tasks need.
    by_key : bool
        Whether all rows of a key come to one task, sorted by key; else they stay where they are.
    order : tuple of str or RowOrder
        With `by_key`, the order of the rows of one key: ascending by these columns, nulls first; any, if empty.
    """

    fields: tuple[str, ...]
    beside: Mapping[str, Column] = field(default_factory=dict)
    by_key: bool = False
    order: tuple[str | RowOrder, ...] = ()

    def apply(self, spec: TableSpecification, frame: DataFrame) -> DataFrame:
        """Return the columns to stage, of a batch DataFrame or of a micro-batch's."""
        given = {one.name: one.dataType for one in frame.schema.fields}
        wanted = {name: spark_type(spec.field(name)) for name in self.fields if name in spec}
        columns = [
            named(name).cast(wanted[name]).alias(name) if wanted.get(name, given[name]) != given[name] else named(name)
            for name in self.fields
        ]
        columns += [column.alias(name) for name, column in self.beside.items()]
        if not self.by_key:
            return frame.select(*columns)
        order = {f"_order_{place}": column for place, column in enumerate(self._order())}
        rows = frame.select(*columns, *(column.alias(name) for name, column in order.items()))
        parts = _partitions(frame)
        key = [named(name) for name in spec.primary_key]
        together = rows.repartition(*key) if parts is None else rows.repartition(parts, *key)
        return together.sortWithinPartitions(*key, *order).select(*self.fields, *self.beside)

    def _order(self) -> list[Column]:
        before = [str(RowKind.UPDATE_BEFORE), RowKind.UPDATE_BEFORE.change_type]
        columns: list[Column] = []
        for one in self.order:
            if isinstance(one, str):
                columns.append(named(one))
            elif one is RowOrder.POSITION:
                columns.append(sf.monotonically_increasing_id())
            else:
                columns.append(~named(CHANGE_TYPE).isin(before))
        return columns


def named(name: str) -> Column:
    """Return the column of exactly this name."""
    return sf.col("`" + name.replace("`", "``") + "`")


def _partitions(frame: DataFrame) -> int | None:
    """Return the number of partitions to shuffle into; None where Spark joins small ones by itself."""
    conf = frame.sparkSession.conf
    if str(conf.get("spark.sql.adaptive.enabled")).lower() == "true":
        return None
    # Each partition is a connection and a staging of its own: for a micro-batch no more than run at once.
    return min(int(str(conf.get("spark.sql.shuffle.partitions"))), frame.sparkSession.sparkContext.defaultParallelism)
