"""`open_table`: makes a table for services, from a table of a store or from functions."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from opentelemetry.metrics import Meter

from structable.spi import Key, Row, StructuredTable
from structable.spi.authors import shown

from .batching import Batching
from .caching import Cache
from .function_source import FunctionSource
from .functions import FunctionTable
from .layers import Layers
from .limiting import RateLimit
from .metrics import Instruments
from .retrying import Retry
from .sources import Source
from .structured import StructuredSource
from .table import AsyncTable

K = TypeVar("K")
V = TypeVar("V")


@overload
def open_table(
    source: StructuredTable,
    *,
    name: str | None = None,
    batching: Batching | None = None,
    read_retry: Retry | None = None,
    write_retry: Retry | None = None,
    rate_limit: RateLimit | None = None,
    cache: Cache | None = None,
    threads: int = 16,
    meter: Meter | None = None,
) -> AsyncTable[Key, Row]: ...


@overload
def open_table(
    source: FunctionTable[K, V],
    *,
    name: str | None = None,
    batching: Batching | None = None,
    read_retry: Retry | None = None,
    write_retry: Retry | None = None,
    rate_limit: RateLimit | None = None,
    cache: Cache | None = None,
    threads: int = 16,
    meter: Meter | None = None,
) -> AsyncTable[K, V]: ...


def open_table(
    source: StructuredTable | FunctionTable[Any, Any],
    *,
    name: str | None = None,
    batching: Batching | None = None,
    read_retry: Retry | None = None,
    write_retry: Retry | None = None,
    rate_limit: RateLimit | None = None,
    cache: Cache | None = None,
    threads: int = 16,
    meter: Meter | None = None,
) -> AsyncTable[Any, Any]:
    """Return a table for an asyncio program. It belongs to the event loop of its first call.

    Parameters
    ----------
    source : StructuredTable or FunctionTable
        The auto-commit view `storage.table(name)`, whose schema is read at once, or functions over a remote system.
    name : str, optional
        The name in errors and metrics: by default the table's, or the class of the write function, else of the read
        function.
    batching : Batching, optional
        Gathers single calls; without it each is made by itself.
    read_retry, write_retry : Retry, optional
        Repeat failed reads, and failed writes. Without them nothing is repeated here; the auto-commit view repeats
        conflicts itself.
    rate_limit : RateLimit, optional
        Limits of calls a second.
    cache : Cache, optional
        Keeps rows that were read or put.
    threads : int
        The maximum number of calls of a StructuredTable at a time, at least 1; functions need no threads.
    meter : opentelemetry.metrics.Meter, optional
        The meter to report to; by default the meter `structable` of the program's SDK, and none without an SDK.

    Raises
    ------
    TypeError
        If an argument is of another type.
    ValueError
        If `threads` is not a whole number of at least 1.
    UnsupportedOperationError
        If the table has no key, or belongs to a transaction.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads is {shown(threads)}; it must be a whole number of at least 1")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is {shown(name)}; it must be a str")
    for argument, policy, wanted in (
        ("batching", batching, Batching),
        ("read_retry", read_retry, Retry),
        ("write_retry", write_retry, Retry),
        ("rate_limit", rate_limit, RateLimit),
        ("cache", cache, Cache),
    ):
        if policy is not None and not isinstance(policy, wanted):
            raise TypeError(f"{argument} is {shown(policy)}; it must be a {wanted.__name__}")
    made: Source
    if isinstance(source, StructuredTable):
        made = StructuredSource(source, name, threads)
    elif isinstance(source, FunctionTable):
        made = FunctionSource(source, name)
    else:
        raise TypeError(f"source is {shown(source)}; it must be storage.table(name) or a FunctionTable")
    layers = Layers(
        made,
        Instruments(made.name, meter),
        batching=batching,
        read_retry=read_retry,
        write_retry=write_retry,
        rate_limit=rate_limit,
        cache=cache,
    )
    return AsyncTable(made, layers)
