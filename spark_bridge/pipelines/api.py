"""`Pipeline`: declares sources and tables, and plans. Only a run needs Spark and opens stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from structable.spark_bridge.base.table_ref import TableRef, require_ref
from structable.spi import Field, Value
from structable.spi.authors import needing

from .arguments import (
    check_choice,
    check_class,
    check_count,
    check_flag,
    check_function,
    checked_columns,
    checked_name,
    checked_remote,
)
from .declarations import Declarations
from .graph import ForeignKeyTable, LoadedStream, RemoteTable, StoreTable, TableFeed
from .partitioners import Partitioner
from .plan import Plan, Settings, plan_nodes
from .streams import Stream, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from structable.access import Cache, RateLimit, Retry, TableReadFunction, TableWriteFunction
    from structable.spark_bridge.joins.definition import Joiner

    from .running import PipelineRun


class Pipeline:
    """Streams and tables in one graph: declared here, planned without Spark, then run by it.

    Streams, tables and sinks share one space of names: a letter and at most 47 letters, digits, underscores and dots.

    Parameters
    ----------
    name : str
        The pipeline's name, which is part of the names of its write jobs.
    default_partitions : int, optional
        The partition count of intermediate streams that no input or output determines. By default the largest count of
        all inputs and outputs, at most `partition_cap`.
    partition_cap : int, optional
        The limit of that default; None for no limit.
    on_mismatch : {"error", "repartition"}
        Whether the plan reports joins whose streams differ in counts, keys or partitioners, or inserts
        `<input>.auto`, a `partition_by`, behind inputs.
    intermediate_store : str, optional
        The URL of the store for streams between two stages; by default the store of the nearest table upstream.

    Raises
    ------
    ValueError
        For a name or a value that is not allowed.
    """

    def __init__(
        self,
        name: str,
        *,
        default_partitions: int | None = None,
        partition_cap: int | None = 256,
        on_mismatch: Literal["error", "repartition"] | str = "error",
        intermediate_store: str | None = None,
    ) -> None:
        checked_name("the pipeline's name", name)
        check_count("default_partitions", default_partitions)
        check_count("partition_cap", partition_cap)
        check_choice("on_mismatch", on_mismatch, ("error", "repartition"))
        if intermediate_store is not None and (
            not isinstance(intermediate_store, str) or "://" not in intermediate_store
        ):
            raise ValueError(f"intermediate_store is {intermediate_store!r}; it must be the URL of a store")
        self._settings = Settings(
            name, default_partitions, partition_cap, on_mismatch == "repartition", intermediate_store
        )
        self._declared = Declarations(name)

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._settings.name

    def source(
        self,
        name: str,
        load: Callable[[SparkSession], DataFrame],
        *,
        key: str | Sequence[str] | None = None,
        partitions: int | None = None,
        partitioner: str | Partitioner | None = None,
        order: str | Sequence[str] | None = None,
    ) -> Stream:
        """Declare an outer stream.

        Parameters
        ----------
        name : str
            Its name.
        load : callable
            Returns the DataFrame for a SparkSession. Planning never calls it.
        key : str or sequence of str, optional
            The columns by which the outer stream is partitioned.
        partitions : int, optional
            The count of its partitions.
        partitioner : str or Partitioner, optional
            The rule by which it is partitioned: a label, or a rule, which this call registers with the pipeline.
        order : str or sequence of str, optional
            The columns that order the rows of a key.

        Raises
        ------
        ValueError
            For a name that is used already, or a value that is not allowed.
        """
        check_function("load", load)
        check_count("partitions", partitions)
        node = LoadedStream(
            name=checked_name("name", name),
            load=load,
            key=checked_columns("key", key),
            partitions=partitions,
            partitioner=self._declared.label(partitioner),
            order=checked_columns("order", order),
        )
        return Stream(self._declared, self._declared.add(node))

    def changes(self, name: str, ref: TableRef, *, partitions: int | None = None) -> Stream:
        """Declare the change feed of a table as a stream. Its key is the primary key, its order `_commit_version`."""
        require_ref(ref, "ref")
        check_count("partitions", partitions)
        node = TableFeed(name=checked_name("name", name), ref=ref, partitions=partitions)
        return Stream(self._declared, self._declared.add(node))

    def table(
        self,
        name: str,
        ref: TableRef,
        *,
        access: Literal["lookup", "broadcast"] | str = "lookup",
        cache: Cache | None = None,
        copartition: bool = True,
        side_inputs: Iterable[Stream] = (),
    ) -> Table:
        """Declare a table of a store.

        Parameters
        ----------
        name : str
            Its name in the pipeline.
        ref : TableRef
            The table.
        access : {"lookup", "broadcast"}
            The way in which joins read it: by the keys of each batch of rows, or as a whole once a micro-batch.
        cache : Cache, optional
            Of `structable.access`: rows that each Python worker keeps between lookups.
        copartition : bool
            Whether the streams that feed the table, and the streams joined with it, must be partitioned alike.
        side_inputs : iterable of Stream
            Streams that are written to it, as by `send_to`, in separate queries, which are read first.

        Raises
        ------
        ValueError
            For a name that is used already, or a value that is not allowed.
        """
        require_ref(ref, "ref")
        check_choice("access", access, ("lookup", "broadcast"))
        check_class("cache", cache, "Cache")
        if cache is not None and access != "lookup":
            raise ValueError(
                f"cache is given, and access is {access!r}: only lookups use a cache; leave one of them out"
            )
        check_flag("copartition", copartition)
        if not isinstance(side_inputs, Iterable):
            raise TypeError(f"side_inputs is {side_inputs!r}; it must be a list of streams")
        given = tuple(self._declared.stream(stream, "side_inputs") for stream in side_inputs)
        node = StoreTable(
            name=checked_name("name", name),
            ref=ref,
            access=access,
            cache=cache,
            copartition=copartition,
            side_inputs=given,
        )
        return Table(self._declared, self._declared.add(node))

    def remote_table(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        schema: Sequence[Field],
        read: TableReadFunction[tuple[Value, ...], Mapping[str, Value]] | None = None,
        write: TableWriteFunction[tuple[Value, ...], Mapping[str, Value]] | None = None,
        read_retry: Retry | None = None,
        write_retry: Retry | None = None,
        rate_limit: RateLimit | None = None,
        cache: Cache | None = None,
    ) -> Table:
        """Declare a table of another system, behind functions of `structable.access`.

        The functions get keys as tuples in the order of `key`. They must be picklable, and are opened in each worker.
        Writes take effect at least once.

        Raises
        ------
        ValueError
            For a name that is used already, a call without any function, or a schema that no table can have.
        """
        named = checked_name("name", name)
        keyed, fields = checked_remote(named, key, schema, read, write)
        for argument, retry in (("read_retry", read_retry), ("write_retry", write_retry)):
            check_class(argument, retry, "Retry")
        check_class("rate_limit", rate_limit, "RateLimit")
        check_class("cache", cache, "Cache")
        node = RemoteTable(
            name=named,
            key=keyed,
            schema=fields,
            read=read,
            write=write,
            read_retry=read_retry,
            write_retry=write_retry,
            rate_limit=rate_limit,
            cache=cache,
        )
        return Table(self._declared, self._declared.add(node))

    def foreign_key_join(
        self,
        name: str,
        left: Table,
        right: Table,
        on: Mapping[str, str] | Iterable[str],
        *,
        how: Literal["inner", "left"] | str = "inner",
        select: Mapping[str, str] | None = None,
        joiner: Joiner | None = None,
        result_fields: Iterable[Field] | None = None,
        result: TableRef,
    ) -> Table:
        """Declare the result of a foreign-key join of two tables; the pipeline must feed at least one of them.

        Each micro-batch that writes to one of them then brings the result up to date, in a step after these writes. The
        arguments are as for `structable.spark_bridge.joins.ForeignKeyJoin`. Only the join writes to the result.

        Raises
        ------
        ValueError
            For a name that is used already, a remote table, or a definition that no tables could have.
        """
        from structable.spark_bridge.joins.definition import ForeignKeyJoin

        checked_name("name", name)
        numbers, refs = [], []
        for argument, table in (("left", left), ("right", right)):
            numbers.append(self._declared.table(table, argument))
            side = self._declared.nodes[numbers[-1]]
            if not isinstance(side, StoreTable | ForeignKeyTable):
                raise ValueError(f"{argument} is the remote table {side.name!r}, which has no change feed")
            refs.append(side.ref)
        join = ForeignKeyJoin(
            name,
            refs[0],
            refs[1],
            (on,) if isinstance(on, str) else on,
            how,  # type: ignore[arg-type]  # ForeignKeyJoin checks it
            select=select,
            joiner=joiner,
            result_fields=result_fields,
            result=result,
        )
        node = ForeignKeyTable(name=name, left=numbers[0], right=numbers[1], join=join)
        return Table(self._declared, self._declared.add(node))

    def plan(self, strict: bool = True) -> Plan:
        """Plan the pipeline: partition counts, groups, stages and steps. No store is opened.

        Parameters
        ----------
        strict : bool
            Whether problems raise an error; otherwise the plan lists them in `problems`.

        Raises
        ------
        PlanError
            With every problem, its streams, and its cure.
        """
        return plan_nodes(self._settings, self._declared.nodes, self._declared.partitioners, strict=strict)

    def start(self, spark: SparkSession, checkpoint: str, trigger: Mapping[str, object] | None = None) -> PipelineRun:
        """Start the pipeline: a streaming query for each stage, after all side inputs were read to their present end.

        Parameters
        ----------
        spark : SparkSession
            A session of this process.
        checkpoint : str
            The folder of the checkpoints and of their plan.
        trigger : mapping, optional
            The arguments of `DataStreamWriter.trigger`.

        Returns
        -------
        PipelineRun
            The run; if one stage fails, all stages are stopped.

        Raises
        ------
        PlanError
            With every problem of the plan or of the tables in the stores; nothing was started.
        PlanChangedError
            If this plan cannot continue from the plan of the checkpoint.
        ValueError
            If `checkpoint` or `trigger` is not what it must be.
        """
        run: PipelineRun = _running().start(self.plan(), spark, checkpoint, trigger)
        return run

    def run_available(self, spark: SparkSession, checkpoint: str) -> None:
        """Read everything that exists now: each stage to its present end, in order of dependence.

        Raises the errors of `start`, and the error of the first stage that fails.
        """
        _running().run_available(self.plan(), spark, checkpoint)

    def run_batch(self, spark: SparkSession, run_id: str | None = None) -> None:
        """Run the pipeline once on batch DataFrames: every `load` returns one.

        Parameters
        ----------
        spark : SparkSession
            A session of this process.
        run_id : str, optional
            The id in the names of the jobs. For 7 days, a repeated run with the same id writes only what is missing.

        Raises
        ------
        PlanError
            As from `start`, and if a source is a stream.
        """
        _running().run_batch(self.plan(), spark, run_id)


def _running() -> ModuleType:
    with needing("running a pipeline needs", "spark"):
        import_module("pyspark")
    return import_module(f"{__package__}.running")
