"""`HBaseSnapshot`: the committed state at one timestamp of the counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, Pair

from .reader import Reader
from .session import Session

__all__ = ["HBaseSnapshot"]


class HBaseSnapshot(EngineSnapshot):
    """A snapshot, held by the session of this process until it is closed; commits up to its timestamp are visible."""

    scan_from = 501  # one call reads as many; a scan makes at least three

    def __init__(self, reader: Reader, session: Session) -> None:
        self._reader = reader
        self.session = session
        self.holder = object()  # held instead of the snapshot, which ends when it is collected
        self.timestamp = 0
        self.epoch = 0  # the timestamp of the newest schema change in it

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.session.require_alive()
        values: list[bytes | None] = []
        for _, group in groupby(keys, key=lambda key: key[:SPACE_BYTES]):
            values += self._reader.values(list(group), self.timestamp)
        self.session.require_alive()
        return values

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        for pairs in self._reader.pages(begin, end, self.timestamp, reverse=reverse):
            self.session.require_alive()
            yield from pairs
        # Pages omit rows whose versions were removed.
        self.session.require_alive()

    def close(self) -> None:
        self.session.release(self.holder)

    def __del__(self) -> None:
        self.close()
