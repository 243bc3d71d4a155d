"""Tables for services: asynchronous, batched, retried, limited, cached and measured. Needs the extra `access`.

`open_table` makes an `AsyncTable` of a table of a store, or of functions over any remote system. Read in this order:
`opening`, `table`, `functions`, `batching`, `caching`, `retrying`, `limiting`, `sending`, `blocking`.
"""

from __future__ import annotations

from structable.spi.authors import needing

with needing("tables for services need", "access"):
    import aiolimiter  # noqa: F401
    import cachetools  # noqa: F401
    import opentelemetry.metrics  # noqa: F401
    import tenacity  # noqa: F401

from .batching import Batching
from .blocking import BlockingTable, blocking
from .caching import Cache
from .functions import FunctionTable, TableReadFunction, TableWriteFunction
from .limiting import RateLimit
from .opening import open_table
from .retrying import Retry
from .sending import send_to, send_update_to
from .table import AsyncTable
from .threads import run_async

__all__ = [
    "AsyncTable",
    "Batching",
    "BlockingTable",
    "Cache",
    "FunctionTable",
    "RateLimit",
    "Retry",
    "TableReadFunction",
    "TableWriteFunction",
    "blocking",
    "open_table",
    "run_async",
    "send_to",
    "send_update_to",
]
