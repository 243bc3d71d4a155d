"""`lookup_join`: a join that reads the rows of the keys that it meets, instead of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from structable.spark_bridge.base.table_ref import TableRef, require_ref
from structable.spark_bridge.base.types import refuse, spark_type
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spi import InvalidFieldError, TableSpecification
from structable.spi.authors import keyless_refusal, not_a_field

from .lookup_rows import How, LookupTask, RowSource, StoreRows

_HOW = ("inner", "left", "semi", "anti")
_MOST_ROWS = 100_000
_RENAME = "choose the columns, or rename one, as in columns={{{!r}: 'new_name'}}"


def lookup_join(
    df: DataFrame,
    ref: TableRef,
    on: str | list[str] | Mapping[str, str],
    columns: list[str] | Mapping[str, str] | None = None,
    how: Literal["inner", "left", "semi", "anti"] | str = "inner",
    *,
    batch: int = 1_000,
    cache_rows: int = 10_000,
) -> DataFrame:
    """Join a DataFrame with a table by its primary key: each task reads the rows of its keys, many at once.

    It suits few rows and a large table. A batch sees the rows that are committed when it is read: the batches of a
    query are not one snapshot, and a task that Spark runs again may see newer rows. A plain join sees one state.

    Parameters
    ----------
    df : DataFrame
        The rows, of a batch or a stream.
    ref : TableRef
        The table.
    on : str, list of str or mapping of str to str
        The columns that hold the key: columns with the names of its fields, or a mapping of columns to fields. They are
        the whole key, each field once, and of exactly its type.
    columns : list of str or mapping of str to str, optional
        The fields to add, or a mapping of fields to their new names; all outside the key, if not given. With `semi` and
        `anti` none is added.
    how : {"inner", "left", "semi", "anti"}
        As in Spark's join. A null in a key equals nothing.
    batch : int
        Rows whose keys are read together, 1 to 100,000.
    cache_rows : int
        Rows, and keys without one, that a task remembers; the least recently used go first. 0 remembers none.

    Returns
    -------
    DataFrame
        The columns of `df` in their order, then the added ones. A row of `df` is given at most once, with `left`
        exactly once. In no order.

    Raises
    ------
    InvalidFieldError
        With all problems of `on` and `columns`. Like every error, it is raised before Spark runs anything.
    TableNotFoundError
        If there is no such table.
    UnsupportedOperationError
        If the table has no key.
    TypeError
        If `ref` is not a `TableRef`.
    ValueError
        For another `how`, `batch` or `cache_rows`, or two columns of one name in the result.
    """
    require_ref(ref, "ref")
    if how not in _HOW:
        raise ValueError(f"how is {how!r}; allowed are {', '.join(_HOW)}")
    _check_number("batch", batch, 1, _MOST_ROWS)
    _check_number("cache_rows", cache_rows, 0, None)
    spec = coordinator_of(df.sparkSession).client.describe(ref.store, ref.name)
    if spec.keyless:
        raise keyless_refusal(spec, "look-up joins")
    keys, added = _key_columns(on), _added_columns(spec, columns)

    def source(fields: tuple[str, ...]) -> RowSource:
        return StoreRows(ref.store, spec, fields, cache_rows)

    return joined(df, spec, keys, added, cast(How, how), source, batch)


def joined(
    df: DataFrame,
    spec: TableSpecification,
    keys: Sequence[tuple[str, str]],
    added: Sequence[tuple[str, str]],
    how: How,
    source: Callable[[tuple[str, ...]], RowSource],
    batch: int,
    rename: str = _RENAME,
) -> DataFrame:
    """Join a DataFrame with rows of a table, which tasks look up in the result of `source(added_fields)`.

    `keys` pairs columns with key fields, `added` pairs fields with their names in the result. `rename` is what an error
    advises against a column that would be there twice. Raises as `lookup_join` does.
    """
    check_join(df, spec, keys, added, how, rename)
    if how in ("semi", "anti"):
        added = []
    names = (*df.columns, *(name for _, name in added))
    fields = {field: column for column, field in keys}
    chosen = tuple(field for field, _ in added)
    places = tuple(df.columns.index(fields[name]) for name in spec.primary_key)
    lookup = LookupTask(source(chosen), spec, places, names, how, batch)
    outer = [
        StructField(name, spark_type(spec.field(field)), how == "left" or field not in spec.primary_key)
        for field, name in added
    ]
    # PySpark looks each column up by its name, as a path of fields: the places are plain names.
    plain = df.toDF(*(f"_{place}" for place in range(len(df.columns))))
    return plain.mapInArrow(lookup, StructType([*df.schema.fields, *outer]))


def check_join(
    df: DataFrame,
    spec: TableSpecification,
    keys: Sequence[tuple[str, str]],
    added: Sequence[tuple[str, str]],
    how: How,
    rename: str,
) -> None:
    """Raise the error of a DataFrame that cannot be joined with a table; `rename` is as in `joined`."""
    refuse(spec.name, [*_key_problems(spec, df.schema, keys), *_added_problems(spec, added)])
    names = [] if how in ("semi", "anti") else [name for _, name in added]
    _check_names(df.sparkSession, names, df.columns, rename)


def _check_number(name: str, value: object, least: int, most: int | None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most:,}"
        raise ValueError(f"{name} is {value!r}; it must be a whole number, {allowed}")


def _key_columns(on: object) -> list[tuple[str, str]]:
    """Return the columns of the key with their fields."""
    if isinstance(on, str):
        return [(on, on)]
    return _pairs("on", on, "a column, a list of columns, or a dict of a column to a key field")


def _added_columns(spec: TableSpecification, columns: object) -> list[tuple[str, str]]:
    """Return the fields to add with their names."""
    if columns is None:
        return [(name, name) for name in spec.field_names if name not in spec.primary_key]
    return _pairs("columns", columns, "a list of fields, or a dict of a field to a new name")


def _pairs(argument: str, given: object, wanted: str) -> list[tuple[str, str]]:
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(given, Mapping):
        pairs = given.items()
    elif isinstance(given, list | tuple):
        pairs = [(name, name) for name in given]
    found = [(one, other) for one, other in pairs if isinstance(one, str) and isinstance(other, str)]
    if not isinstance(given, Mapping | list | tuple) or len(found) < len(given):
        raise ValueError(f"{argument} is {given!r}; it must be {wanted}")
    return found


def _key_problems(
    spec: TableSpecification, schema: StructType, keys: Sequence[tuple[str, str]]
) -> Iterator[InvalidFieldError]:
    names, key = schema.fieldNames(), ", ".join(spec.primary_key)
    for place, (column, field) in enumerate(keys):
        if names.count(column) != 1:
            reason = f"names the column {column!r}, and the DataFrame has {', '.join(names)}"
            yield InvalidFieldError(spec.name, "on", reason)
        if field not in spec.primary_key:
            yield InvalidFieldError(spec.name, "on", f"names the field {field!r}, and the primary key is {key}")
        elif field in [other for _, other in keys[:place]]:
            yield InvalidFieldError(spec.name, "on", f"names the field {field!r} twice")
        elif names.count(column) == 1 and schema[column].dataType != spark_type(spec.field(field)):
            kind, wanted = schema[column].dataType.simpleString(), spark_type(spec.field(field)).simpleString()
            reason = f"names the column {column!r} of type {kind} for the field {field!r} of type {wanted}"
            yield InvalidFieldError(spec.name, "on", f"{reason}; cast it: .cast({wanted!r})")
    for name in spec.primary_key:
        if name not in [field for _, field in keys]:
            yield InvalidFieldError(spec.name, "on", f"lacks the key field {name!r}; give the whole key, {key}")


def _added_problems(spec: TableSpecification, added: Iterable[tuple[str, str]]) -> Iterator[InvalidFieldError]:
    for field, _ in added:
        if field not in spec:
            yield InvalidFieldError(
                spec.name, "columns", f"names {field!r}, which {not_a_field(spec.field_names)} (in exactly this case)"
            )


def _check_names(session: SparkSession, names: Sequence[str], before: Sequence[str], rename: str) -> None:
    exact = str(session.conf.get("spark.sql.caseSensitive")).lower() == "true"
    there = {name if exact else name.lower() for name in before}
    for name in names:
        seen = name if exact else name.lower()
        if seen in there:
            raise ValueError(f"the result would have the column {name!r} twice; {rename.format(name)}")
        there.add(seen)
