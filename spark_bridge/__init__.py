"""structable's tables in Apache Spark: `register(spark)`, and then the format "structable" to read and write.

See `docs/spark.md` for the options, and for the promises of a snapshot and a write job.
"""

from structable.spi.needs import needing

with needing("the Spark bridge needs", "spark"):
    import pyspark  # noqa: F401

from .foreach_batch import foreach_batch
from .lookup_join import lookup_join
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
