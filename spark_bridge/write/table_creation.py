"""`create_table`: a table for the rows of a DataFrame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Literal

from pyspark.sql import DataFrame

from structable.spark_bridge.base.table_ref import TableRef, require_ref
from structable.spark_bridge.base.types import new_specification
from structable.spi import TableAdmin, TableAlreadyExistsError, TableNotFoundError, TableSpecification

_IF_EXISTS = ("error", "ignore", "update")


def create_table(
    df: DataFrame,
    ref: TableRef,
    primary_key: Iterable[str] = (),
    *,
    indexes: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    if_exists: Literal["error", "ignore", "update"] | str = "error",
) -> TableSpecification:
    """Create a table for the rows of a DataFrame, in one step; no row is computed or written.

    Its fields are the columns, in their order and with their types. Those of the key lose nullability, and all others
    may be null. The store must exist, unless the reference has the option `create`.

    Parameters
    ----------
    df : DataFrame
        The DataFrame whose schema the table gets.
    ref : TableRef
        The table.
    primary_key : iterable of str
        The columns of the key, in its order. Without one the table has none, and is `append-only` unless the option
        `write-mode` says otherwise.
    indexes : iterable of str
        The columns to index.
    options : mapping, optional
        Options of the table, such as `{"merge-engine": "aggregation"}`.
    if_exists : {"error", "ignore", "update"}
        The effect if the table exists: an error; no change, whatever its specification; or a change as by
        `create_or_update`, which keeps other columns of the table.

    Returns
    -------
    TableSpecification
        The specification of the table afterwards.

    Raises
    ------
    InvalidFieldError
        With every column whose type no field can have, and what to do instead; nothing was created.
    InvalidSpecificationError
        For a name, a key or an option that no table can have.
    TableAlreadyExistsError
        If there is such a table, with `if_exists="error"`.
    SchemaIncompatibleError
        If it cannot be changed to the DataFrame's schema, with `if_exists="update"`.
    TypeError
        If `ref` is not a `TableRef`.
    ValueError
        For another `if_exists`.
    """
    require_ref(ref, "ref")
    if if_exists not in _IF_EXISTS:
        raise ValueError(f"if_exists is {if_exists!r}; allowed are {', '.join(_IF_EXISTS)}")
    key = primary_key if isinstance(primary_key, str) else tuple(primary_key)  # a string is refused as a whole
    spec = new_specification(ref.name, df.schema, key, indexes, dict(options or {}))
    with ref.store.connect() as storage:
        match if_exists:
            case "error":
                storage.admin.create(spec)
            case "ignore":
                return _existing_or_created(storage.admin, spec)
            case _:
                storage.admin.create_or_update(spec)
        return storage.admin.get_specification(ref.name)


def _existing_or_created(admin: TableAdmin, spec: TableSpecification) -> TableSpecification:
    while True:
        with contextlib.suppress(TableAlreadyExistsError):
            admin.create(spec)
        try:
            return admin.get_specification(spec.name)
        except TableNotFoundError:
            continue  # it was dropped in between
