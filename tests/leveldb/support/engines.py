"""Engines without tables, their keys, and bulk commits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.settings import Settings
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, Increment, Step, Upcalls, WriteSet

SPACE = b"\x00\x00\x00\x10"


def key(name: object) -> bytes:
    return SPACE + str(name).encode()


def merge(value: bytes | None, steps: Sequence[Step]) -> bytes:
    amounts = [step.amount if isinstance(step, Increment) else int(step.row) for step in steps]
    return str(int(value or b"0") + sum(amounts)).encode()


def make_engine(folder: Path, *, sync: bool = False, request_timeout: float = 30.0) -> LevelDBEngine:
    return LevelDBEngine(folder, Settings(sync=sync, request_timeout=request_timeout))


def start(engine: LevelDBEngine, **procedures: Callable[[bytes], bytes]) -> LevelDBEngine:
    engine.start(Upcalls(merge, lambda value, steps, others: True, procedures))
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


class Bulk(BulkCommit):
    """A bulk commit of given chunks; `between` is called after each."""

    def __init__(
        self, chunks: Iterable[dict[bytes, bytes | None]], between: Callable[[int], None] = lambda _: None
    ) -> None:
        self.decision = {DECISION: b"decided"}
        self.completion = {DECISION: None}
        self.space = SPACE
        self._chunks = chunks
        self._between = between

    def check(self, latest: EngineSnapshot) -> None:
        pass

    def chunks(self, latest: EngineSnapshot) -> Iterator[dict[bytes, bytes | None]]:
        for number, chunk in enumerate(self._chunks):
            yield chunk
            self._between(number)


DECISION = b"\x00\x00\x00\x00\x10decision"
