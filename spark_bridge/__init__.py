"""structable's tables in Apache Spark: `register(spark)`, and then the format "structable" to read and write.

See `docs/spark.md` for the options, and for the promises of a snapshot and a write job. The names are imported when
they are first used: `joins` and `pipelines` need no PySpark. A module never bears the name of an export.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .foreach_batches import foreach_batch
    from .lookup_joins import lookup_join
    from .options import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS
    from .part_map import spark_map
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
    "spark_map",
]

_MODULES = {
    "DEFAULT_GRACE_SECONDS": "options",
    "DEFAULT_LEASE_SECONDS": "options",
    "TableRef": "table_ref",
    "WriteSummary": "sending",
    "create_table": "table_creation",
    "foreach_batch": "foreach_batches",
    "lookup_join": "lookup_joins",
    "register": "registration",
    "send_to": "sending",
    "send_update_to": "sending",
    "spark_map": "part_map",
}
_WITHOUT_SPARK = {"TableRef"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _WITHOUT_SPARK:
        from structable.spi.imports import needing

        with needing("the Spark bridge needs", "spark"):
            import pyspark  # noqa: F401
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
