"""The numbers of changes in their commit: how an entry is found by one, and what older software left without them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.backends.ordered import table as tables
from structable.backends.ordered.codec import change_records
from structable.backends.ordered.codec.change_records import (
    EncodedChange,
    count_records,
    first_number,
    pack_numbered,
    pack_whole,
    unpack_records,
)
from structable.backends.ordered.engine import Pair
from structable.backends.ordered.feeds.source import entry_with
from structable.backends.ordered.jobs import rows as job_rows
from structable.backends.ordered.schema.job_records import JobProgress
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Change, Field, RowKind, Storage, TableSpecification

from .crashing import Crash, CrashingEngine, recovered

SPEC = TableSpecification("log", [Field.int("n"), Field.bytes("body")], options={"write-mode": "log"})


def made(engine: MemoryEngine | None = None) -> Storage:
    storage = OrderedStorage(engine or MemoryEngine(VersionedMap()), "memory://")
    storage.admin.create(SPEC)
    return storage


def records(count: int, size: int = 0) -> list[EncodedChange]:
    return [(RowKind.INSERT, b"keys" + bytes([number % 251]), bytes(size)) for number in range(count)]


@pytest.mark.parametrize("shape", ["equal", "growing", "shrinking", "random", "few and many"])
def test_entries_are_found_by_number_in_few_steps(shape: str) -> None:
    generator = random.Random(shape)
    sizes = {
        "equal": [256] * 4_000,
        "growing": list(range(1, 1_000)),
        "shrinking": list(range(1_000, 0, -1)),
        "random": [generator.randrange(1, 1_000) for _ in range(1_000)],
        "few and many": [1_000, *[1] * 2_000, *[1_000] * 100],
    }[shape]
    begins = list(accumulate(sizes[:-1], initial=0))
    asked: list[int] = []

    def entry_of(chunk: int) -> bytes | None:
        asked.append(chunk)
        if chunk >= len(sizes):
            return None
        count = sizes[chunk] | (1 << 31 if chunk else 0)
        return count.to_bytes(4, "little") + begins[chunk].to_bytes(8, "little")

    for place in [0, 1, len(sizes) - 1, *(generator.randrange(len(sizes)) for _ in range(50))]:
        for number in (begins[place], begins[place] + sizes[place] - 1):
            asked.clear()
            assert entry_with(number, entry_of) == place
            assert len(asked) <= (3 if shape == "equal" else 40)
    for number in (begins[-1] + sizes[-1], 1 << 40, (1 << 63) - 1):
        asked.clear()
        assert entry_with(number, entry_of) == len(sizes) - 1
        assert len(asked) <= 60
    assert entry_with(0, lambda chunk: None) == entry_with(5, lambda chunk: None) == 0


@pytest.mark.parametrize("first", [0, 7, None])
def test_records_are_numbered_through_their_entries(first: int | None) -> None:
    packed = pack_numbered(records(1_000, 300), first)
    assert len(packed) > 3
    begin, number = first or 0, first or 0
    for place, entry in enumerate(packed):
        assert first_number(entry) == (None if first is None or (place == 0 and not first) else number)
        whole = list(unpack_records(b"keys", entry))
        assert len(whole) == count_records(entry)
        for skipped in (0, 1, len(whole) - 1, len(whole), len(whole) + 5):
            assert list(unpack_records(b"keys", entry, skipped)) == whole[skipped:]
        number += len(whole)
    assert number == begin + 1_000
    assert pack_numbered([]) == []


def numbered(storage: Storage) -> list[tuple[int | None, object]]:
    return [(change.number, change.row["n"]) for change in storage.changes("log").read()]


def test_entries_of_older_software_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_records, "_NUMBERED_BYTES", 100)
    monkeypatch.setattr(tables, "pack_numbered", lambda some: pack_whole(some, 100))
    storage = made()
    for _ in range(2):
        storage.table("log").insert_many([{"n": n, "body": b"x" * 40} for n in range(10)])
    feed = storage.changes("log")
    everything: list[Change] = list(feed.read())
    assert [change.number for change in everything] == [*range(10)] * 2
    assert everything[0].version is not None
    since = feed.position(everything[0].version)
    for number in range(12):
        assert list(feed.read(since, after=number)) == everything[min(number, 9) + 1 :]


@pytest.mark.parametrize("older", [False, True], ids=["now", "older progress"])
def test_crash_between_any_two_writes_of_a_job(monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    """Order and numbers are those of a job that was not interrupted, with the progress of older software too."""
    monkeypatch.setattr(job_rows, "_CHUNK_ROWS", 2)
    if older:
        encode = JobProgress.encode
        monkeypatch.setattr(
            JobProgress, "encode", lambda self, schema: encode(JobProgress(self.end, self.entries, None), schema)
        )
    halves = [[5, 3, 3, 9], [3, 1, 3]]
    for writes in range(1, 9):
        stored = VersionedMap()
        storage = made(CrashingEngine(stored, writes))
        job = storage.begin_write("log", mode="insert", job_id="job")
        staged = [
            storage.stage(job, number, 0, [pa.record_batch({"n": pa.array(halves[number], pa.int32())})])
            for number in (1, 0)
        ]
        try:
            finished = bool(storage.commit_write(job, staged))
        except Crash:
            finished = False
            storage = recovered(stored)
        assert numbered(storage) == list(enumerate([*halves[0], *halves[1]]))
        assert not storage.commit_write(job, staged)
        if finished:
            return
    pytest.fail("the job never ended by itself")


class CountingEngine(MemoryEngine):
    """Counts the runs that are read at once."""

    reading = most = 0

    def read_run(self, state: bytes) -> Iterator[Pair]:
        self.reading += 1
        self.most = max(self.most, self.reading)
        yield from super().read_run(state)
        self.reading -= 1


def test_runs_of_a_job_are_read_one_after_the_other() -> None:
    """A job of any number of partitions has one of them open."""
    engine = CountingEngine(VersionedMap())
    storage = made(engine)
    job = storage.begin_write("log", mode="insert", job_id="job")
    staged = [
        storage.stage(job, number, 0, [pa.record_batch({"n": pa.array([number, number], pa.int32())})])
        for number in range(5)
    ]
    storage.commit_write(job, staged)
    assert [n for _, n in numbered(storage)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert engine.most == 1


def test_progress_of_older_software() -> None:
    storage = made()
    with storage.transaction() as transaction:
        schema: TableSchema = transaction.table("log").binding.schema  # type: ignore[attr-defined]
    for progress in (JobProgress(b"end", 3, None), JobProgress(b"end", 3, 7), JobProgress(b"", 0, 0)):
        assert JobProgress.decode(progress.encode(schema), schema) == progress
    assert JobProgress.decode(b"\0\0\0\3end", schema) == JobProgress(b"end", 3, None)
    assert JobProgress.decode(b"", schema) == JobProgress()
