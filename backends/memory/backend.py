"""`MemoryBackend`: `memory://` is a new, empty store; `memory://name` is one store per process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import ClassVar

from structable.backends.ordered import OrderedStorage
from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, Storage, StorageUrl

from .engine import MemoryEngine
from .versions import VersionedMap

__all__ = ["MemoryBackend"]


class MemoryBackend(Backend):
    """Stores in the memory of this process."""

    scheme: ClassVar[str] = "memory"
    description: ClassVar[str] = "in the memory of this process, gone with it"
    options: ClassVar[Sequence[Option]] = COMMON_OPTIONS

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        """Return a new store, or the one of the URL's name."""
        if url.user is not None or url.path not in ("", "/"):
            raise ValueError(f"{url} is not a memory URL, which is memory:// or memory://name")
        stored = _named(url.hosts) if url.hosts else VersionedMap()
        return OrderedStorage(MemoryEngine(stored), str(url), ddl_timeout=float(options["ddl_timeout"]))


_stores: dict[str, VersionedMap] = {}
_lock = threading.Lock()


def _named(name: str) -> VersionedMap:
    with _lock:
        return _stores.setdefault(name, VersionedMap())
