"""`MemoryBackend`: `memory://` is a new, empty store; `memory://name` is one store per process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import ClassVar

from structable.backends.ordered import OrderedStorage
from structable.spi import COMMON_OPTIONS, Backend, Option, OptionValue, Storage, StorageUrl, StoreNotFoundError
from structable.spi.authors import may_create

from .engine import MemoryEngine
from .versions import VersionedMap


class MemoryBackend(Backend):
    """Stores in the memory of this process."""

    scheme: ClassVar[str] = "memory"
    description: ClassVar[str] = "tables in the memory of this process, lost when it ends"
    options: ClassVar[Sequence[Option]] = COMMON_OPTIONS

    def connect(self, url: StorageUrl, options: Mapping[str, OptionValue]) -> Storage:
        """Return a new store, or the store that the URL names. Without `create`, a URL without a name is an error."""
        if url.user is not None or url.path not in ("", "/"):
            raise ValueError(f"{url} is not a memory URL, which is memory:// or memory://name")
        return OrderedStorage(
            MemoryEngine(_stored(url.hosts, create=may_create(options))),
            str(url),
            ddl_timeout=float(options["ddl_timeout"]),
            read_only=bool(options["read_only"]),
        )


_stores: dict[str, VersionedMap] = {}
_lock = threading.Lock()


def _stored(name: str, *, create: bool) -> VersionedMap:
    with _lock:
        if create:
            return _stores.setdefault(name, VersionedMap()) if name else VersionedMap()
        try:
            return _stores[name]
        except KeyError:
            what = f"this process has no memory store named {name!r}" if name else "memory:// is a new store each time"
            raise StoreNotFoundError(f"{what}; connect without create=False or read_only=True to make it") from None
