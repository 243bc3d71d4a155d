"""`MemoryEngine`: an `Engine` over a `VersionedMap`; a commit holds one lock from validation to the last write."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice

from structable.backends.ordered import (
    BulkApplication,
    BulkCommit,
    Engine,
    EngineSnapshot,
    EngineTraits,
    Pair,
    SharedSplits,
    SplitPlan,
    WriteSet,
)
from structable.backends.ordered.engine import RunLostError, StagedRun, entry_pairs
from structable.backends.ordered.scan.intervals import intersection
from structable.spi import (
    StorageUnavailableError,
    Traffic,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .versions import VersionedMap


class MemorySnapshot(EngineSnapshot):
    """The state of a map after one of its commits."""

    def __init__(self, engine: MemoryEngine, stored: VersionedMap) -> None:
        self._engine = engine
        self._stored = stored
        self.number = self.epoch = 0
        self._open = True
        stored.open_snapshot(self)

    def get(self, key: bytes) -> bytes | None:
        value = self._stored.get(key, self.number)
        # Checked after the read: another thread may close the snapshot during it, and its versions vanish.
        self._require_open()
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        for key in self._stored.keys(begin, end, reverse=reverse):
            value = self.get(key)
            if value is not None:
                yield key, value

    def settled_version(self, feed: bytes) -> int:
        self._require_open()
        return self.number

    def _require_open(self) -> None:
        if not self._open:
            raise TransactionClosedError("the snapshot was closed")
        self._engine.require_open()

    def close(self) -> None:
        self._open = False
        self._stored.close_snapshot(self)


class MemoryEngine(Engine):
    """One connection to a map in this process; the map outlives the connection if it is named."""

    traits = EngineTraits(
        BulkApplication.AT_ONCE,
        process_local=True,
        table_types=True,
        plans_hold_everything=True,
        takes_operands=True,
        keeps_versions=True,
        keeps_entries=True,
        times_ascend=True,
        describes_merges=True,
    )

    def __init__(self, stored: VersionedMap) -> None:
        self._stored = stored
        self._process = os.getpid()
        self.local_signals = stored.signals
        self._closed = False

    @property
    def epoch(self) -> int:
        return self._stored.epoch

    @property
    def closed(self) -> bool:
        return self._closed or os.getpid() != self._process

    def traffic(self) -> Traffic:
        return Traffic(0, 0, 0)  # the store is in this process

    def require_open(self) -> None:
        if self.closed:
            raise StorageUnavailableError("the memory store was closed, or belongs to the process that forked this one")

    def get(self, key: bytes) -> bytes | None:
        self.require_open()
        return self._stored.newest(key)

    def begin(self, read_only: bool) -> MemorySnapshot:
        self.require_open()
        return MemorySnapshot(self, self._stored)

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        self.require_open()
        with self._stored.lock:
            self._stored.discard_unfinished()
            if snapshot is not None:
                assert isinstance(snapshot, MemorySnapshot)
                self._validate(snapshot.number, changes)
            self._apply(changes)

    def _validate(self, since: int, changes: WriteSet) -> None:
        stored = self._stored
        for space in changes.spaces:
            if stored.schema_changes.get(space, 0) > since:
                raise TransactionConflictError("a table's schema was changed since the transaction began")
        for key in changes.writes:
            if stored.changed_since(key, since):
                raise TransactionConflictError("another transaction wrote a row that this one writes")
        for key, steps in changes.increments.items():
            if stored.changed_since(key, since, but=steps[0].__class__):
                raise TransactionConflictError("another transaction wrote a row that this one increments")
        if changes.reads is None:
            return
        intervals = (stored.keys(*interval) for interval in changes.reads.intervals)
        for key in chain(changes.reads.keys, *intervals):
            if stored.changed_since(key, since):
                raise TransactionConflictError("another transaction wrote a row that this one read")

    def _apply(self, changes: WriteSet) -> None:
        stored = self._stored
        merged: dict[type, dict[bytes, bytes]] = {}
        appends = {feed: [*payloads] for feed, payloads in changes.appends.items()}
        for key, steps in changes.increments.items():
            before = stored.get(key, stored.number)
            value = self.upcalls.merge(before, steps)
            self.upcalls.check(key, value, steps)
            merged.setdefault(steps[0].__class__, {})[key] = value
            if appends and (described := self.upcalls.describe(key, before, value, steps)) is not None:
                feed, payload = described
                appends[feed].append(payload)
        parts: list[dict[bytes, bytes | None]] = [changes.writes, changes.derived]
        if appends:
            version, now = stored.number + 1, stored.next_time()
            parts += [entry_pairs(feed, version, now, payloads) for feed, payloads in appends.items()]
        stored.commit(tuple(parts), merged, changes.changed_spaces)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Check and apply all chunks under the lock; the new number makes them visible together."""
        self.require_open()
        with self._stored.lock, closing(MemorySnapshot(self, self._stored)) as latest:
            self._stored.discard_unfinished()
            bulk.check(latest)
            changed: dict[bytes, bytes | None] = {}
            appended: list[bytes] = []
            for chunk in bulk.chunks(latest):
                changed.update(chunk.changes)
                appended += chunk.appends
            changed.update(bulk.completion)
            appends = {bulk.feed: appended} if bulk.feed and appended else {}
            self._apply(WriteSet(derived=changed, appends=appends))

    def share_snapshot(self) -> SharedSplits:
        return _SharedMapSplits(self.begin(True))

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        pairs = self._stored.count_keys(begin, end)
        with closing(self.begin(True)) as snapshot:
            ends = [
                *islice(snapshot.scan(begin, end), _SAMPLE),
                *islice(snapshot.scan(begin, end, reverse=True), _SAMPLE),
            ]
        size = sum(len(key) + len(value) for key, value in ends)
        return pairs, pairs * size // max(1, len(ends))

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        begin, end = (bytes.fromhex(part.decode()) for part in state.split(_MARK)[2:])
        snapshot = _planned(state)
        for part in [(begin, end)] if intervals is None else intersection([(begin, end)], intervals):
            yield from snapshot.scan(*part)

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return _planned(state).get_many(keys)

    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        state = _MARK.join((str(os.getpid()).encode(), str(next(_tokens)).encode()))
        self._stored.runs[state] = (owner, time.time(), list(pairs))
        return state

    def read_run(self, state: bytes) -> Iterator[Pair]:
        _require_this_process(int(state.split(_MARK)[0]))
        run = self._stored.runs.get(state)
        if run is None:
            raise RunLostError("the staged rows are gone")
        return iter(run[2])

    def find_runs(self, owner: str = "") -> list[StagedRun]:
        found = [StagedRun(run[0], state, run[1], True) for state, run in list(self._stored.runs.items())]
        return [run for run in found if owner in ("", run.owner)]

    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        for run in runs:
            self._stored.runs.pop(run.state, None)

    def close(self) -> None:
        """End this connection; a named store stays."""
        self._closed = True


class _SharedMapSplits(SharedSplits):
    """A snapshot that is divided by the number of keys."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        self.snapshot: MemorySnapshot = snapshot

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        snapshot = self.snapshot
        keys = [key for key, _ in snapshot.scan(begin, end)]
        size = max(1, -(-len(keys) // count))
        begins = [begin, *keys[size::size]]
        token = next(_tokens)
        _plans[token] = snapshot
        states = [
            _MARK.join((str(os.getpid()).encode(), str(token).encode(), one.hex().encode(), other.hex().encode()))
            for one, other in zip(begins, [*begins[1:], end], strict=True)
        ]

        def release() -> None:
            _plans.pop(token)

        return SplitPlan(states, release, snapshot.epoch, snapshot.number)

    def release(self) -> None:
        self.snapshot.close()


_SAMPLE = 1_000
_MARK = b":"
_tokens = itertools.count(1)
_plans: dict[int, MemorySnapshot] = {}


def _planned(state: bytes) -> MemorySnapshot:
    process, token, _, _ = state.split(_MARK)
    _require_this_process(int(process))
    snapshot = _plans.get(int(token))
    if snapshot is None:
        raise TransactionClosedError("the plan of this split was closed, and its snapshot with it")
    return snapshot


def _require_this_process(process: int) -> None:
    if process != os.getpid():
        raise UnsupportedOperationError(
            f"the store lives in one process: this split belongs to process {process} and cannot be read in "
            f"{os.getpid()}"
        )
