"""Engines without tables, their keys, and bulk commits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.routed_engine import DatabaseSettings, RoutedEngine
from structable.backends.ordered.engine import (
    BlindStep,
    BulkChunk,
    BulkCommit,
    EngineSnapshot,
    Increment,
    Upcalls,
    WriteSet,
)

Routed = TypeVar("Routed", bound=RoutedEngine)

SPACE = b"\x00\x00\x00\x10"
FEED = b"\x00\x00\x00\x11"
FED = b"fed"
"""The schema of steps whose rows have images in `FEED`."""


def key(name: object) -> bytes:
    return SPACE + str(name).encode()


def merge(value: bytes | None, steps: Sequence[BlindStep]) -> bytes:
    amounts = [step.amount if isinstance(step, Increment) else int(step.row) for step in steps]
    return str(int(value or b"0") + sum(amounts)).encode()


def describe(key: bytes, before: bytes | None, after: bytes, steps: Sequence[BlindStep]) -> tuple[bytes, bytes] | None:
    if steps[0].schema != FED:
        return None
    return FEED, b"%b: %b to %b" % (key[len(SPACE) :], before or b"nothing", after)


def make_engine(folder: Path, *, sync: bool = False, request_timeout: float = 30.0) -> LevelDBEngine:
    return LevelDBEngine(folder, DatabaseSettings(sync=sync, request_timeout=request_timeout))


def start(engine: Routed, **procedures: Callable[[bytes], bytes]) -> Routed:
    engine.start(
        Upcalls(merge, lambda value, steps, others: True, lambda key, value, steps: None, describe, procedures)
    )
    return engine


def open_engine(folder: Path, *, sync: bool = False, request_timeout: float = 30.0) -> LevelDBEngine:
    return start(make_engine(folder, sync=sync, request_timeout=request_timeout))


def put(engine: LevelDBEngine, name: object, value: bytes) -> None:
    engine.commit(None, WriteSet({key(name): value}))


def read_all(engine: LevelDBEngine) -> dict[bytes, bytes]:
    snapshot = engine.begin(True)
    try:
        return dict(snapshot.scan(SPACE, SPACE + b"\xff"))
    finally:
        snapshot.close()


def read_feed(engine: RoutedEngine, feed: bytes = FEED, since: int = 0) -> list[tuple[int, bytes]]:
    """Return the versions and payloads of a feed, all of which are in order and within the state's version."""
    snapshot = engine.begin(True)
    try:
        newest = snapshot.settled_version(feed)
        found = list(snapshot.entries(feed, since, newest))
        assert found == list(snapshot.entries(feed, since, 1 << 60)), "no state has entries beyond its version"
    finally:
        snapshot.close()
    assert found == sorted(found)
    assert [entry.time for entry in found] == sorted(entry.time for entry in found)
    assert all(len({entry.time for entry in found if entry.version == version}) == 1 for version, *_ in found)
    return [(entry.version, entry.payload) for entry in found]


class Bulk(BulkCommit):
    """A bulk commit of given chunks, each of which may append to a feed; `between` is called after each."""

    def __init__(
        self,
        chunks: Iterable[dict[bytes, bytes | None]],
        between: Callable[[int], None] = lambda _: None,
        feed: bytes | None = None,
        appends: int = 0,
    ) -> None:
        self.feed = feed
        self._appends = appends
        self.decision = {DECISION: b"decided"}
        self.completion = {DECISION: None}
        self.space = SPACE
        self._chunks = chunks
        self._between = between

    def check(self, latest: EngineSnapshot) -> None:
        pass

    def chunks(self, latest: EngineSnapshot) -> Iterator[BulkChunk]:
        for number, chunk in enumerate(self._chunks):
            first = number * self._appends
            yield BulkChunk(chunk, [b"entry %d" % (first + one) for one in range(self._appends)], first)
            self._between(number)


DECISION = b"\x00\x00\x00\x00\x10decision"
