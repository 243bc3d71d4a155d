"""The names of the format's own options; every other name is a connection option of the store."""

from __future__ import annotations

__all__ = ["READ_OPTIONS", "WRITE_OPTIONS"]

# Spark passes option names in lower case, however the user wrote them.
READ_OPTIONS = {
    "url": "url",
    "table": "table",
    "columns": "columns",
    "splits": "splits",
    "leaseseconds": "leaseSeconds",
    "graceseconds": "graceSeconds",
}
WRITE_OPTIONS = {"url": "url", "table": "table", "mode": "mode", "jobid": "jobId"}
