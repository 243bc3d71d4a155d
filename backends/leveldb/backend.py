"""The LevelDB backend: `leveldb:///absolute/folder`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from structable.backends.ordered.feeds.splits import reads_changes
from structable.backends.ordered.scan.splits import read_table_split
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, ScanSplit, Storage, StorageUrl
from structable.spi.authors import may_create

from .engine import LevelDBEngine
from .native.database import DatabaseOptions
from .observer import ObservingEngine
from .routed_engine import DatabaseSettings, RoutedEngine

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_MEBIBYTE = 1 << 20


class LevelDBBackend(Backend):
    """Tables in a folder of this machine; any number of its processes may use it at once."""

    scheme: ClassVar[str] = "leveldb"
    description: ClassVar[str] = "tables in a folder of this machine, used by any number of its processes"
    options: ClassVar[tuple[Option, ...]] = (
        *COMMON_OPTIONS,
        Option(
            "durability",
            "machine",
            "what a commit survives: a crash of the machine (with a sync of the log), or of every process (without)",
            choices=("machine", "process"),
        ),
        Option(
            "request_timeout",
            30.0,
            "seconds to wait for the process that owns the database, or for the next owner",
            minimum=0.1,
        ),
        Option(
            "block_cache",
            64,
            "MiB of memory for blocks of table files, in the owning process",
            minimum=1,
            maximum=1 << 20,
        ),
        Option(
            "write_buffer", 16, "MiB of memory for new rows before they become a table file", minimum=1, maximum=1024
        ),
        Option("open_files", 1000, "table files to keep open", minimum=20, maximum=50_000),
        Option(
            "compression",
            "",
            "how the owning process writes table files; left out, as the database was made or last compacted, which is "
            "without compression for new ones",
            choices=("none", "snappy"),
        ),
    )

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        return OrderedStorage(
            _engine(url, options),
            str(url),
            ddl_timeout=float(options["ddl_timeout"]),
            read_only=bool(options["read_only"]),
        )

    def read_split(
        self, url: StorageUrl, options: Mapping[str, OptionValue], split: ScanSplit
    ) -> Iterator[RecordBatch]:
        if reads_changes(split):
            return super().read_split(url, options, split)
        return read_table_split(_engine(url, options), split)  # not started: a split has its own files


def _engine(url: StorageUrl, options: Mapping[str, OptionValue]) -> RoutedEngine:
    if url.hosts or url.user is not None or not url.path.startswith("/") or not url.path.strip("/"):
        raise ValueError(f"{url} names no folder; write leveldb:///absolute/folder, with three slashes")
    if "\x00" in url.path:
        raise ValueError(f"{str(url)!r} has a NUL in its path")
    engine = ObservingEngine if options["read_only"] else LevelDBEngine
    settings = DatabaseSettings(
        sync=options["durability"] == "machine",
        request_timeout=float(options["request_timeout"]),
        database=DatabaseOptions(
            write_buffer=int(options["write_buffer"]) * _MEBIBYTE,
            block_cache=int(options["block_cache"]) * _MEBIBYTE,
            open_files=int(options["open_files"]),
            compression=str(options["compression"]) or None,
        ),
        create=may_create(options),
    )
    return engine(Path(url.path), settings)
