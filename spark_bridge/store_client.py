"""Reaches a store from any process of the application: each process connects separately."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from structable.spi import ScanSplit, Storage, StorageUrl, StoreNotFoundError, connect, mask_url, read_split

from .option_names import READ_OPTIONS, WRITE_OPTIONS

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["StoreClient"]


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
