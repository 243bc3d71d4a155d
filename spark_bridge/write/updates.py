"""`send_update_to`: partial updates and deletes of a DataFrame to a table, with rows to start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NullType, StructField, StructType

from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.base.types import spark_type, write_problems
from structable.spi import FieldSizeLimitError, InvalidFieldError, TableSpecification, Value, WriteMode
from structable.spi.authors import check_changes, check_mode

from .arguments import Planner, Request, Sending, columns_of
from .arrangement import Arrangement, RowOrder, named
from .folding import DEFAULT, DELETES, UpdateFolding
from .jobs import WriteSummary
from .send_options import SendOptions, order_of


def send_update_to(
    df: DataFrame,
    table: TableRef,
    *,
    default: Mapping[str, Value] | str | None = None,
    nulls: Literal["set", "keep"] | str = "set",
    on_missing: Literal["fail", "drop"] | str = "fail",
    order_by: str | list[str] | None = None,
    unordered: bool = False,
    deletes: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, object] | None = None,
    job_id: str | None = None,
) -> WriteSummary | StreamingQuery:
    """Update rows of a table: as `update(row, default)` and `delete(key)` one by one, in order, by one atomic job.

    Whether there is a row is judged when the job commits: only a key that has none then gets its default. A
    micro-batch takes effect once, as with `send_to`.

    Parameters
    ----------
    df : DataFrame
        The updates: the key, and the fields to change, in the table's types, or ones that are cast to them without
        loss.
    table : TableRef
        The table; it has a primary key.
    default : mapping or str, optional
        The row to start from where there is none: the same for every key, without key fields; or a struct column of
        fields; null means that there is no default. A key field of the struct must be null or equal the row's.
    nulls : {"set", "keep"}
        Whether a null sets the field to null, or leaves it as it is.
    on_missing : {"fail", "drop"}
        The effect of an update that finds no row and has no default: it fails the job, with a RecordNotFoundError that
        has the number of such keys and the first ten, or it is skipped and counted.
    order_by, unordered, name, checkpoint, trigger, job_id
        As in `send_to`.
    deletes : str, optional
        A boolean column, not written: true deletes the key.

    Returns
    -------
    WriteSummary or StreamingQuery
        The summary of the write, or the query that was started.

    Raises
    ------
    ValueError
        For arguments that do not go together; the message names the argument.
    InvalidFieldError
        If the DataFrame or the default does not fit the table, with every difference, before a task runs; or a row
        does not.
    RecordNotFoundError
        If a key has no row, with `on_missing="fail"`; nothing was written.
    """
    options = SendOptions(
        update=True,
        default=default,
        nulls=nulls,
        on_missing=on_missing,
        order_by=order_of(order_by, unordered=unordered),
        unordered=unordered,
        deletes=deletes,
    )
    return Request(df, table, name, checkpoint, trigger, job_id).start(plan_updates(options))


def plan_updates(options: SendOptions) -> Planner:
    """Return the function that plans the writing of updates."""
    default, order, deletes = options.default, options.order_by, options.deletes

    def plan(spec: TableSpecification, schema: StructType, *, streaming: bool) -> Sending:
        check_mode(spec, WriteMode.PATCH)
        column = default if isinstance(default, str) else None
        fields = columns_of(
            spec,
            schema,
            WriteMode.PATCH,
            order=order,
            deletes=deletes,
            beside=() if column is None else [column],
            further=_default_problems(spec, schema, column)
            if column is not None
            else _constant_problems(spec, default),
        )
        beside = dict[str, Column]() if deletes is None else {DELETES: named(deletes)}
        default_fields: tuple[str, ...] = ()
        if column is not None:
            struct = schema[column].dataType
            assert isinstance(struct, StructType)
            default_fields = tuple(struct.fieldNames())
            typed = StructType([StructField(one, spark_type(spec.field(one))) for one in default_fields])
            beside[DEFAULT] = named(column).cast(typed)
        folding = UpdateFolding(
            spec,
            tuple(one for one in fields if one not in spec.primary_key),
            options.nulls == "keep",
            check_changes(spec, default) if isinstance(default, Mapping) else None,
            default_fields,
        )
        inner: tuple[str | RowOrder, ...] = (RowOrder.POSITION,) if order is None else order
        arrangement = Arrangement(fields, beside, by_key=True, order=() if options.unordered else inner)
        return Sending(WriteMode.PATCH, arrangement, folding.fold, "skip" if options.on_missing == "drop" else "fail")

    return plan


def _constant_problems(spec: TableSpecification, default: object) -> Iterator[InvalidFieldError]:
    """Yield the problems of a mapping as the default of every row."""
    for name, value in default.items() if isinstance(default, Mapping) else ():
        try:
            check_changes(spec, {name: value})
        except FieldSizeLimitError as error:
            yield error
        except InvalidFieldError as error:
            yield InvalidFieldError(spec.name, f"default.{name}", error.reason)


def _default_problems(spec: TableSpecification, schema: StructType, column: str) -> Iterator[InvalidFieldError]:
    """Yield the problems of a column as the default of each row."""
    kinds = [one.dataType for one in schema.fields if one.name == column]
    struct = kinds[0] if len(kinds) == 1 else NullType()
    if not isinstance(struct, StructType):
        reason = f"names {column!r}, which must be one struct column of the DataFrame"
        yield InvalidFieldError(spec.name, "default", reason)
        return
    keys = {name: StructField(name, spark_type(spec.field(name))) for name in spec.primary_key}
    for one in struct.fields:
        keys.pop(one.name, None)
    whole = StructType([*struct.fields, *keys.values()])  # the key may be left out
    for problem in write_problems(spec, whole, WriteMode.PATCH):
        yield InvalidFieldError(spec.name, f"{column}.{problem.field}", problem.reason)
