"""`SQLiteBackend`: `sqlite:///absolute/file.db`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from structable.backends.ordered import OrderedStorage
from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, Storage, StorageUrl

from .database import Database
from .engine import SQLiteEngine


class SQLiteBackend(Backend):
    """Stores in one SQLite file, for several processes of one machine."""

    scheme: ClassVar[str] = "sqlite"
    description: ClassVar[str] = "in one SQLite file, for several processes of one machine"
    options: ClassVar[Sequence[Option]] = (
        *COMMON_OPTIONS,
        Option("lock_timeout", 30.0, "seconds to wait while another process commits", minimum=0),
        Option("durability", "machine", "the crash that a commit survives", choices=("machine", "process")),
    )

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        """Open the file, or create it."""
        if url.user is not None or url.hosts or url.path in ("", "/") or url.path.endswith("/"):
            raise ValueError(f"{url} is not an SQLite URL, which is sqlite:///absolute/file.db")
        engine = SQLiteEngine(Database(Path(url.path), options))
        return OrderedStorage(
            engine, str(url), ddl_timeout=float(options["ddl_timeout"]), read_only=bool(options["read_only"])
        )
