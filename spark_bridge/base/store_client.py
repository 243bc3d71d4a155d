"""Reaches a store from any process of the application: each process connects separately.

The names of the format's own options are here; every other name is a connection option of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from structable.spi import ScanSplit, Storage, StorageUrl, StoreNotFoundError, connect, mask_url, read_split

if TYPE_CHECKING:
    from pyarrow import RecordBatch

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
"""The names in `READ_OPTIONS` that `spark.readStream` does not take."""
STREAM_READ_OPTIONS = ("maxrowspertrigger",)
"""The names in `READ_OPTIONS` that `spark.read` does not take."""
WRITE_OPTIONS = {"url": "url", "table": "table", "mode": "mode", "jobid": "jobId"}
STREAM_WRITE_OPTIONS = {"url": "url", "table": "table", "mode": "mode", "checkpointlocation": "checkpointLocation"}


@dataclass(frozen=True, slots=True)
class StoreClient:
    """A store's URL and connection options. Picklable, for executors; its text shows no password."""

    url: str = field(repr=False)
    options: tuple[tuple[str, object], ...] = field(default=(), repr=False)

    def connect(self) -> Storage:
        """Connect to the store, which must exist unless the option `create` says otherwise.

        Raises ValueError for an option that neither the bridge nor the backend knows; the message lists the options of
        both.
        """
        options: dict[str, object] = dict(self.options)
        try:
            if "create" not in StorageUrl.parse(self.url).parameters:
                options.setdefault("create", False)  # the table must exist, so a missing store means a mistyped URL
            return connect(self.url, **options)
        except StoreNotFoundError as error:
            reason = str(error).partition("; connect without")[0]
            raise StoreNotFoundError(f"{reason}; Spark creates no stores") from None
        except ValueError as error:
            if not self.options:
                raise
            read, write = (", ".join(names.values()) for names in (READ_OPTIONS, WRITE_OPTIONS))
            raise ValueError(f"{error}; the format itself takes {read} for reading, and {write} for writing") from None

    def read_split(self, split: ScanSplit) -> Iterator[RecordBatch]:
        """Yield the batches of a split that was planned on this store; see `structable.spi.read_split`."""
        return read_split(self.url, split, **dict(self.options))

    def __str__(self) -> str:
        return mask_url(self.url)
