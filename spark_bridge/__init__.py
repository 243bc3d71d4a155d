"""structable's tables in Apache Spark: `register(spark)`, and then the format "structable" to read and write.

See `docs/spark.md` for the options, and for the promises of a snapshot and a write job. Names are imported at their
first use, so that `pipelines` plans where there is no Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from structable.spi.needs import needing

if TYPE_CHECKING:
    from .batch_functions import foreach_batch
    from .lookup_joins import lookup_join
    from .options import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS
    from .registration import register
    from .sending import WriteSummary, send_to, send_update_to
    from .table_creation import create_table
    from .table_ref import TableRef

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "DEFAULT_LEASE_SECONDS",
    "TableRef",
    "WriteSummary",
    "create_table",
    "foreach_batch",
    "lookup_join",
    "register",
    "send_to",
    "send_update_to",
]

# No module bears the name of a function: once imported, the module would be the package's attribute of that name.
_MODULES = {
    "DEFAULT_GRACE_SECONDS": "options",
    "DEFAULT_LEASE_SECONDS": "options",
    "WriteSummary": "sending",
    "create_table": "table_creation",
    "foreach_batch": "batch_functions",
    "lookup_join": "lookup_joins",
    "register": "registration",
    "send_to": "sending",
    "send_update_to": "sending",
}


def __getattr__(name: str) -> object:
    if name == "TableRef":
        return importlib.import_module(".table_ref", __name__).TableRef
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needing("the Spark bridge needs", "spark"):
        import pyspark  # noqa: F401
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
