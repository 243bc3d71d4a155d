"""structable's tables in Apache Spark: `register(spark)`, and then the format "structable" to read and write.

See `docs/spark.md` for the options, and for the promises of a snapshot and a write job. The names are imported when
they are first used: `joins` and `pipelines` need no PySpark. A module never bears the name of an export.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base.options import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS
    from .base.table_ref import TableRef
    from .read.lookup_joins import lookup_join
    from .registration import register
    from .stream.foreach_batches import foreach_batch
    from .write.jobs import WriteSummary
    from .write.part_map import spark_map
    from .write.rows import send_to
    from .write.table_creation import create_table
    from .write.updates import send_update_to

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
    "DEFAULT_GRACE_SECONDS": "base.options",
    "DEFAULT_LEASE_SECONDS": "base.options",
    "TableRef": "base.table_ref",
    "WriteSummary": "write.jobs",
    "create_table": "write.table_creation",
    "foreach_batch": "stream.foreach_batches",
    "lookup_join": "read.lookup_joins",
    "register": "registration",
    "send_to": "write.rows",
    "send_update_to": "write.updates",
    "spark_map": "write.part_map",
}
_WITHOUT_SPARK = {"TableRef"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _WITHOUT_SPARK:
        from structable.spi.authors import needing

        with needing("the Spark bridge needs", "spark"):
            import pyspark  # noqa: F401
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
