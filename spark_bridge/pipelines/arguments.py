"""Checks of declarations; each raises `ValueError` with the argument, its value and the values allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from structable.spi import Field, InvalidSpecificationError, TableSpecification

from .graph import ForeignKeyTable, Node, Pairs, RemoteTable

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,47}\Z")
_SINK_KEYS = ("format", "options", "mode")
_SINK_MODES = ("append", "overwrite", "ignore", "error", "errorifexists")
_MOST_PARTITIONS = 2**31 - 1
"""The maximum number of partitions that Spark can count."""


def checked_name(argument: str, name: object) -> str:
    """Return a name of a pipeline, stream, table or sink."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"{argument} is {name!r}; it must be a letter and at most 47 letters, digits, _ and .")
    return name


def check_count(argument: str, count: object) -> None:
    """Check a count of partitions, or None."""
    if count is None:
        return
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_PARTITIONS:
        raise ValueError(
            f"{argument} is {count!r}; a count of partitions must be a whole number from 1 to {_MOST_PARTITIONS}"
        )


def check_choice(argument: str, given: object, allowed: Collection[str]) -> None:
    """Check one of a few texts."""
    if given not in allowed:
        raise ValueError(f"{argument} is {given!r}; allowed are {', '.join(allowed)}")


def check_flag(argument: str, given: object) -> None:
    """Check a boolean."""
    if not isinstance(given, bool):
        raise ValueError(f"{argument} is {given!r}; it must be True or False")


def check_class(argument: str, given: object, name: str) -> None:
    """Check that an argument is None or of a class of `structable.access`, which is imported only for this."""
    if given is None:
        return
    from structable import access

    if not isinstance(given, getattr(access, name)):
        raise TypeError(f"{argument} is {given!r}; it must be a {name} of structable.access")


def check_function(argument: str, given: object) -> None:
    """Check a function."""
    if not callable(given):
        raise ValueError(f"{argument} is {given!r}; it must be a function")


def checked_columns(argument: str, given: str | Iterable[str] | None, *, empty: bool = False) -> tuple[str, ...] | None:
    """Return the names of columns, each once; None for None."""
    if given is None:
        return None
    ordered = isinstance(given, Iterable) and not isinstance(given, Mapping | Set)
    names = (given,) if isinstance(given, str) else tuple(given) if ordered else ()
    if not ordered or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ValueError(f"{argument} is {given!r}; it must be a list of the names of columns, each once")
    if not names and not empty:
        raise ValueError(f"{argument} is {given!r}; it must name at least one column")
    return names


def checked_pairs(on: str | Sequence[str] | Mapping[str, str]) -> Pairs:
    """Return the pairs of columns that a join compares."""
    if isinstance(on, Mapping):
        left, right = checked_columns("on", list(on)) or (), checked_columns("on", list(on.values())) or ()
        return tuple(zip(left, right, strict=True))
    names = checked_columns("on", on)
    if names is None:
        raise ValueError("on is None; it must be a list of columns, or a mapping of columns of the left to the right")
    return tuple((name, name) for name in names)


def check_target(table: Node) -> None:
    """Check that streams may be sent to a table."""
    if isinstance(table, RemoteTable) and table.write is None:
        raise ValueError(f"table {table.name!r} has no write function; give remote_table(write=...)")
    if isinstance(table, ForeignKeyTable):
        raise ValueError(f"table {table.name!r} is the result of a foreign-key join, and only the join writes to it")


def checked_remote(
    name: str, key: str | Sequence[str], schema: Iterable[Field], read: object, write: object
) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """Return key and schema of a remote table, which has a function."""
    if read is None and write is None:
        raise ValueError(f"remote table {name!r} has neither a read nor a write function; give at least one")
    check_class("read", read, "TableReadFunction")
    check_class("write", write, "TableWriteFunction")
    if not isinstance(schema, Iterable):
        raise TypeError(f"schema is {schema!r}; it must be a list of fields")
    keyed, fields = checked_columns("key", key) or (), tuple(schema)
    try:
        TableSpecification("remote", fields, primary_key=keyed)
    except InvalidSpecificationError as error:
        raise ValueError(f"remote table {name!r}: {error}") from None
    return keyed, fields


def checked_remote_join(table: RemoteTable, on: Pairs, columns: Iterable[str] | None) -> None:
    """Check a join with a remote table, whose schema is known."""
    if table.read is None:
        raise ValueError(f"table {table.name!r} has no read function; give remote_table(read=...)")
    compared = {right for _, right in on}
    if compared != set(table.key):
        raise ValueError(
            f"on compares {', '.join(sorted(compared))}; it must compare the whole key of {table.name!r}, which is "
            f"{', '.join(table.key)}"
        )
    names = [field.name for field in table.schema]
    for column in columns or ():
        if column not in names:
            raise ValueError(f"columns has {column!r}; table {table.name!r} has {', '.join(names)}")


def checked_sink(
    write: Callable[..., object] | Mapping[str, object],
) -> Callable[..., object] | Mapping[str, object]:
    """Return the checked writer of a sink: a function, or the arguments of a DataFrameWriter."""
    if callable(write):
        return write
    if (
        not isinstance(write, Mapping)
        or not set(write) <= set(_SINK_KEYS)
        or not isinstance(write.get("format"), str)
        or not isinstance(write.get("options", {}), Mapping)
    ):
        raise ValueError(
            f"write is {write!r}; it must be a function of a DataFrame and the number of its batch, or a mapping of "
            "format, a text, and, if need be, options, a mapping, and mode"
        )
    check_choice("mode", str(write.get("mode", "append")).lower(), _SINK_MODES)
    return dict(write)
