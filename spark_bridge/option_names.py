"""The names of the format's own options; every other name is a connection option of the store."""

from __future__ import annotations

__all__ = ["BATCH_READ_OPTIONS", "READ_OPTIONS", "STREAM_READ_OPTIONS", "STREAM_WRITE_OPTIONS", "WRITE_OPTIONS"]

# Spark passes option names in lower case, however the user wrote them.
READ_OPTIONS = {
    "url": "url",
    "table": "table",
    "columns": "columns",
    "splits": "splits",
    "pushdown": "pushdown",
    "statistics": "statistics",
    "leaseseconds": "leaseSeconds",
    "graceseconds": "graceSeconds",
    "readchangefeed": "readChangeFeed",
    "startingversion": "startingVersion",
    "startingtimestamp": "startingTimestamp",
    "endingversion": "endingVersion",
    "endingtimestamp": "endingTimestamp",
    "netchanges": "netChanges",
    "maxrowspertrigger": "maxRowsPerTrigger",
}
BATCH_READ_OPTIONS = (
    "endingversion",
    "endingtimestamp",
    "netchanges",
    "leaseseconds",
    "graceseconds",
    "pushdown",
    "statistics",
)
"""Those of `READ_OPTIONS` that `spark.readStream` does not take."""
STREAM_READ_OPTIONS = ("maxrowspertrigger",)
"""Those of `READ_OPTIONS` that `spark.read` does not take."""
WRITE_OPTIONS = {"url": "url", "table": "table", "mode": "mode", "jobid": "jobId"}
STREAM_WRITE_OPTIONS = {"url": "url", "table": "table", "mode": "mode", "checkpointlocation": "checkpointLocation"}
