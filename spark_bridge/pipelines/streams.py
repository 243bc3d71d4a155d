"""The handles of a pipeline's streams and tables; each method of a stream declares a further one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from structable.spark_bridge.write.send_options import SendOptions, order_of
from structable.spi import Value

from .arguments import (
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_target,
    checked_columns,
    checked_name,
    checked_pairs,
    checked_remote_join,
    checked_sink,
)
from .declarations import Declarations
from .graph import Map, Merge, Node, PartitionBy, RemoteTable, RowFilter, Send, Sink, StreamJoin, TableJoin
from .partitioners import Partitioner
from .windows import JoinWindow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table of a pipeline, to send streams to and to join them with."""

    declared: Declarations
    number: int

    def __repr__(self) -> str:
        return f"Table({self.declared.nodes[self.number].name!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream of a pipeline. Each method declares a further stream, and takes its name.

    A stream without a name gets one when the pipeline is planned: the nearest given name upstream, the operation and a
    number. Name the streams that are written or joined: their names are kept in checkpoints and tables.
    """

    declared: Declarations
    number: int

    def __repr__(self) -> str:
        return f"Stream({self.declared.nodes[self.number].name or self.number!r})"

    def map(self, fn: Callable[[DataFrame], DataFrame], rekeys: bool = False, *, name: str | None = None) -> Stream:
        """Apply a function from DataFrame to DataFrame, without state and deterministic.

        It must keep the columns of key and order. With `rekeys=True` it changes the key's values: the key is unknown.
        """
        check_function("fn", fn)
        check_flag("rekeys", rekeys)
        return self._then(Map(name=name, inputs=(self.number,), function=fn, rekeys=rekeys))

    def filter(self, condition: str | Callable[[DataFrame], Column], *, name: str | None = None) -> Stream:
        """Keep the rows for which a condition holds: SQL, or a function of the DataFrame that returns a Column."""
        if not callable(condition) and (not isinstance(condition, str) or not condition.strip()):
            raise ValueError(f"condition is {condition!r}; it must be SQL text, or a function of a DataFrame")
        return self._then(RowFilter(name=name, inputs=(self.number,), condition=condition))

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """Add the rows of other streams, of the same columns."""
        if not others:
            raise ValueError("merge has no other stream; give at least one")
        return self._then(Merge(name=name, inputs=self._inputs(*others)))

    def partition_by(
        self,
        key: str | Sequence[str],
        *,
        partitions: int | None = None,
        partitioner: str | Partitioner | None = None,
        name: str | None = None,
    ) -> Stream:
        """Partition the stream by columns: an intermediate stream.

        Parameters
        ----------
        key : str or sequence of str
            The columns.
        partitions : int, optional
            The count of partitions; without it the plan decides.
        partitioner : str or Partitioner, optional
            The rule; by default the rule of the streams with which this one is joined.
        name : str, optional
            Its name.
        """
        keyed = checked_columns("key", key)
        if keyed is None:
            raise ValueError("key is None; it must be the names of the columns to partition by")
        check_count("partitions", partitions)
        label = self.declared.label(partitioner)
        return self._then(
            PartitionBy(name=name, inputs=(self.number,), key=keyed, partitions=partitions, partitioner=label)
        )

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        window: JoinWindow,
        how: Literal["inner", "left", "right", "full"] | str = "inner",
        name: str | None = None,
    ) -> Stream:
        """Join with another stream, by columns and within a window.

        `on` lists columns of both, or maps columns of this stream to columns of the other. The result has each listed
        column once.
        """
        if not isinstance(window, JoinWindow):
            raise ValueError(f"window is {window!r}; it must be a JoinWindow, without which the state would only grow")
        check_choice("how", how, ("inner", "left", "right", "full"))
        pairs = checked_pairs(on)
        same = not isinstance(on, Mapping)
        return self._then(
            StreamJoin(name=name, inputs=self._inputs(other), on=pairs, same_names=same, window=window, how=how)
        )

    def join_table(
        self,
        table: Table,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        columns: str | Sequence[str] | None = None,
        how: Literal["inner", "left"] | str = "inner",
        prefix: str = "",
        name: str | None = None,
    ) -> Stream:
        """Join with the rows of a table at the time when the micro-batch is processed.

        Parameters
        ----------
        table : Table
            The table.
        on : str, sequence of str or mapping of str to str
            The whole primary key: its columns, or a mapping from columns of this stream to columns of the table. A null
            matches nothing.
        columns : str or sequence of str, optional
            The table's columns in the result; by default all outside of the key.
        how : {"inner", "left"}
            Whether a row without a match is left out, or has nulls.
        prefix : str
            The prefix of the table's columns in the result.
        name : str, optional
            Its name.
        """
        number = self.declared.table(table, "table")
        check_choice("how", how, ("inner", "left"))
        if not isinstance(prefix, str):
            raise ValueError(f"prefix is {prefix!r}; it must be a text")
        pairs, chosen = checked_pairs(on), checked_columns("columns", columns, empty=True)
        node = self.declared.nodes[number]
        if isinstance(node, RemoteTable):
            checked_remote_join(node, pairs, chosen)
        return self._then(
            TableJoin(name=name, inputs=(self.number,), table=number, on=pairs, columns=chosen, how=how, prefix=prefix)
        )

    def send_to(
        self,
        table: Table,
        *,
        mode: Literal["upsert", "changes", "replace", "insert"] | str = "upsert",
        order_by: str | list[str] | None = None,
        unordered: bool = False,
        deletes: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Write the rows to a table, as `structable.spark_bridge.send_to`; returns the stream after the write."""
        order = order_of(order_by, unordered=unordered)
        options = SendOptions(mode=mode, order_by=order, unordered=unordered, deletes=deletes)
        return self._send(table, options, name)

    def send_update_to(
        self,
        table: Table,
        *,
        default: Mapping[str, Value] | str | None = None,
        nulls: Literal["set", "keep"] | str = "set",
        on_missing: Literal["fail", "drop"] | str = "fail",
        order_by: str | list[str] | None = None,
        unordered: bool = False,
        deletes: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Update rows of a table, as `structable.spark_bridge.send_update_to`; returns the stream after the write."""
        options = SendOptions(
            update=True,
            default=default,
            nulls=nulls,
            on_missing=on_missing,
            order_by=order_of(order_by, unordered=unordered),
            unordered=unordered,
            deletes=deletes,
        )
        return self._send(table, options, name)

    def sink(
        self,
        name: str,
        write: Callable[[DataFrame, int], object] | Mapping[str, object],
        *,
        partitions: int | None = None,
    ) -> None:
        """Write the rows elsewhere, at least once: by `write(DataFrame, batch_id)`, or by a DataFrameWriter.

        The latter is a mapping of `format`, `options` and `mode`. `partitions` is the partition count of the target.
        """
        check_count("partitions", partitions)
        self._then(
            Sink(
                name=checked_name("name", name), inputs=(self.number,), write=checked_sink(write), partitions=partitions
            )
        )

    def _send(self, table: Table, options: SendOptions, name: str | None) -> Stream:
        number = self.declared.table(table, "table")
        check_target(self.declared.nodes[number])
        return self._then(Send(name=name, inputs=(self.number,), table=number, options=options))

    def _inputs(self, *others: Stream) -> tuple[int, ...]:
        return self.number, *(self.declared.stream(other, "the other stream") for other in others)

    def _then(self, node: Node) -> Stream:
        return Stream(self.declared, self.declared.add(node))
