"""Partitioners: `structable`'s own rule, in Python and as SQL, and the rules of other systems as SQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from structable.spi import Value

STRUCTABLE = "structable"
"""The label of the library's own rule, `partition_of`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A rule by which another system partitions its streams, so that the pipeline can follow it.

    Parameters
    ----------
    label : str
        The rule's name in declarations of streams.
    expression : callable
        Returns the SQL expression of the partition's number, from 0 to count - 1, for the names of the key's columns
        and the count of partitions.

    Raises
    ------
    ValueError
        If the label is empty, or `structable`.
    """

    label: str
    expression: Callable[[Sequence[str], int], str]

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or self.label in ("", STRUCTABLE):
            raise ValueError(
                f"label is {self.label!r}; it must be a text, and not {STRUCTABLE!r}, the library's own rule"
            )
        if not callable(self.expression):
            raise ValueError(f"expression is {self.expression!r}; it must be a function of columns and a count")


def partition_of(values: Sequence[Value], n: int) -> int:
    """Return the partition of a key among `n` by the default partitioner of `partition_by`.

    The partition is the CRC-32 of the key's values as text, with a NUL between each two, modulo `n`. Times count as
    microseconds since 1970, of UTC or without a time zone; bytes as lower-case hexadecimal digits; a null as empty.

    Parameters
    ----------
    values : sequence
        The values of the key, in its order.
    n : int
        The count of partitions.

    Raises
    ------
    ValueError
        If `n` is below 1.
    TypeError
        For a value of a type that no key has, such as a float.
    """
    if n < 1:
        raise ValueError(f"n is {n!r}; a count of partitions must be at least 1")
    return zlib.crc32("\0".join(map(_text, values)).encode()) % n


_SQL_TEXTS = {
    "string": "{}",
    "boolean": "cast({} as string)",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "date"), "cast({} as string)"),
    "timestamp": "cast(unix_micros({}) as string)",
    # unix_micros would convert it by the session's time zone.
    "timestamp_ntz": (
        "cast(datediff(cast({0} as date), date'1970-01-01') * 86400000000 + hour({0}) * 3600000000L + minute({0}) "
        "* 60000000L + cast(extract(second from {0}) * 1000000 as bigint) as string)"
    ),
    "binary": "lower(hex({}))",
}


def partition_sql(columns: Sequence[tuple[str, str]], n: int) -> str:
    """Return `partition_of` as a SQL expression of Spark.

    Parameters
    ----------
    columns : sequence of (str, str)
        The names of the key's columns and their types, as `simpleString` returns them.
    n : int
        The count of partitions.

    Raises
    ------
    TypeError
        For a type that no key has.
    """
    texts = []
    for name, kind in columns:
        if kind not in _SQL_TEXTS:
            raise TypeError(f"column {name!r} is of type {kind}, and a key has {', '.join(_SQL_TEXTS)}")
        quoted = "`" + name.replace("`", "``") + "`"
        texts.append(f"coalesce({_SQL_TEXTS[kind].format(quoted)}, '')")
    return f"cast(pmod(crc32(cast(concat_ws(chr(0), {', '.join(texts)}) as binary)), {n}) as int)"


def _text(value: Value) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case bytes():
            return value.hex()
        case datetime():
            instant = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return str((instant - _EPOCH) // timedelta(microseconds=1))
        case date():
            return value.isoformat()
        case _:
            raise TypeError(f"{value!r} cannot be a value of a key")
