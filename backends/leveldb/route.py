"""`Route`: the way from an engine to its database: a `LocalRoute` in the owner, a `Client` in every other process.

Both read the version and the time of the newest commit to change feeds under `VERSION_KEY`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, WriteSet
from structable.spi import StorageUnavailableError

VERSION_KEY = bytes(5) + b"\x04version"
"""The key of the engine's own record that each commit to a feed writes."""
_STAMP = struct.Struct(">QQ")
OWNER_ENDED = "the process that owned the database has ended, and the transaction's snapshot with it"
Procedures = Mapping[str, Callable[[bytes], bytes]]


class Route(ABC):
    """Access to the database. Methods have the contracts of the `Engine` methods of the same names."""

    get: Callable[[bytes], bytes | None]
    """Returns the newest value of a key."""
    begin: Callable[[bool], EngineSnapshot]
    """Returns the newest committed state."""
    commit: Callable[[EngineSnapshot | None, WriteSet, bool], None]
    """Applies a write set; the last argument is whether it must survive a crash of the machine."""

    @abstractmethod
    def commit_bulk(self, bulk: BulkCommit) -> None: ...

    @abstractmethod
    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes: ...

    @abstractmethod
    def checkpoint(self, plan: str) -> None:
        """Make a hard-link copy of the database for a plan."""

    @abstractmethod
    def compact(self, compression: str | None, keys: Sequence[bytes]) -> bool:
        """Rewrite every table file that holds one of these sorted keys, and the files above, in the keys' interval.

        A given compression is recorded and used for new table files from now on. Returns whether it has changed.
        """

    @abstractmethod
    def committed(self, client: bytes, connection: int, sequence: int) -> bool: ...


class NoRoute(Route):
    """The route of an engine that was not started, was closed, or was inherited through a fork: rejects every call."""

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        self._reason = reason
        self._lasting = lasting
        self.get = self.begin = self.commit = self._refuse

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        error = StorageUnavailableError(self._reason)
        error.lasting = self._lasting
        raise error

    commit_bulk = delegate = checkpoint = compact = committed = _refuse


def pack_stamp(version: int, time: int) -> bytes:
    """Return the version and the time of a commit in stored form."""
    return _STAMP.pack(version, time)


def unpack_stamp(stored: bytes | None) -> tuple[int, int]:
    """Return the version and the time of a commit; zeros if there was none yet."""
    if stored is None:
        return 0, 0
    version, time = _STAMP.unpack(stored)
    return version, time
