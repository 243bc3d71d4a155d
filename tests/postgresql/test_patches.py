"""Write jobs of mode patch among other writers, and commits whose answer was lost."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from structable.backends.postgresql.bulk.staged_patch import StagedPatch
from structable.spi import (
    CommitResult,
    Field,
    InvalidFieldError,
    RecordChangedError,
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionConflictError,
    WriteJob,
    connect,
)
from structable.testing.conformance.feed_case import read_between, with_feed
from structable.testing.conformance.patch_case import Arm, patch_batch

from .support.proxy import Cut, Proxy, statement
from .support.shared import Schema
from .support.waiting_commits import commit_behind

ITEMS = TableSpecification(
    "items", [Field.long("id"), Field.long("batch"), Field.string("note"), Field.string("tag")], ["id"], ["tag"]
)


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(ITEMS)
        yield storage


def stage(storage: Storage, job: WriteJob, *arms: Arm, partition: int = 0) -> StagedWrite:
    return storage.stage(job, partition, 0, [patch_batch(ITEMS, arms)])


def begin(storage: Storage, number: int) -> WriteJob:
    return storage.begin_write("items", mode="patch", stream="s", batch=number, on_missing="skip")


def relations(schema: Schema) -> set[str]:
    with psycopg.connect(schema.conninfo) as connection:
        query = "select relname from pg_class where relnamespace = %s::regnamespace and relkind = 'r'"
        return {name for (name,) in connection.execute(query, [schema.name])}


def test_patches_leave_no_tables(storage: Storage, postgresql_schema: Schema) -> None:
    """What the commit makes in the schema goes with it, whether it writes, refuses or fails."""
    before = relations(postgresql_schema)
    storage.table("items").upsert_many([{"id": 1}, {"id": 2}])
    job = storage.begin_write("items", mode="patch", job_id="job")
    with pytest.raises(RecordNotFoundError):
        storage.commit_write(job, [stage(storage, job, ("present", {"id": 9}))])
    with pytest.raises(InvalidFieldError):
        storage.commit_write(
            job, [stage(storage, job, (arm, {"id": 1}), partition=n) for n, arm in enumerate(["present", "delete"])]
        )
    storage.commit_write(job, [stage(storage, job, ("present", {"id": 1, "tag": "t"}))])
    assert relations(postgresql_schema) == before


@pytest.mark.parametrize("cut", list(Cut))
def test_missing_keys_of_a_lost_commit(postgresql_schema: Schema, cut: Cut) -> None:
    """A commit whose answer is lost, and which is found to have succeeded, has counted the missing keys."""
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1})
        job = begin(storage, 1)
        staged = stage(storage, job, *(("present", {"id": key, "batch": 1}) for key in (1, 2, 3)))
        trap = proxy.trap(statement(r"^\s*commit\b"), cut)
        if cut is Cut.BEFORE:
            with pytest.raises(StorageUnavailableError):
                storage.commit_write(job, [staged])
            assert storage.table("items").read((1,), ["batch"]) == {"id": 1, "batch": None}
            assert storage.commit_write(job, [staged]) == CommitResult(True, 2)
        else:
            assert storage.commit_write(job, [staged]) == CommitResult(True, 2)
        trap.wait()
        assert storage.commit_write(job, [staged]) == CommitResult(False, 0)


def test_row_inserted_while_a_patch_waits(storage: Storage, postgresql_schema: Schema) -> None:
    """A patch waits for a writer of its keys, and is judged on what that leaves."""
    table = storage.table("items")
    table.upsert_many([{"id": 1, "note": "old"}, {"id": 2, "note": "old"}])
    arms: list[Arm] = [(arm, {"id": key, "batch": 7}) for key in (1, 2, 3) for arm in ("present", "absent")]
    job = begin(storage, 1)
    staged = stage(storage, job, *arms)
    statements = (
        "delete from items where id = 1",
        "update items set note = 'new' where id = 2",
        "insert into items (id, note) values (3, 'new')",
    )
    assert commit_behind(postgresql_schema, statements, storage, job, staged) == CommitResult(True, 0)
    assert [(row["id"], row["note"], row["batch"]) for row in table.scan()] == [
        (1, None, 7),
        (2, "new", 7),
        (3, "new", 7),
    ]


def test_expected_row_that_comes_back(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is written again while its patch is judged, and so was not locked, is locked before it is changed."""
    table = storage.table("items")
    row: dict[str, Any] = {"id": 1, "note": "old"}
    job = begin(storage, 1)
    staged = stage(storage, job, ("expect", row), ("present", {"id": 1, "note": "old, and new"}))
    ask = StagedPatch._ask
    done: list[str] = []

    def interrupted(patch: StagedPatch, text: str) -> list[tuple[object, ...]]:
        found = ask(patch, text)
        if not done and "for update" in text:
            table.insert(row)
            done.append("inserted")
        elif done == ["inserted"]:
            table.update({"id": 1, "note": "newer"})
            done.append("updated")
        return found

    monkeypatch.setattr(StagedPatch, "_ask", interrupted)
    with pytest.raises(RecordChangedError):
        storage.commit_write(job, [staged])
    assert done == ["inserted", "updated"]
    assert table.read((1,), ["note"]) == {"id": 1, "note": "newer"}


def test_patches_among_other_writers(postgresql_url: str) -> None:
    """Each key of each patch is judged on the row before it, whatever others insert, change and delete meanwhile.

    The feed shows it: a patch that names a key as `present` and as `absent` leaves, in one version, either a change of
    the row that keeps the rest of it, or a new row; and each number of missing keys is that of the keys left out.
    """
    keys, patches = range(12), 30
    with connect(postgresql_url) as storage, connect(postgresql_url) as other:
        storage.admin.create(with_feed(ITEMS))
        done = threading.Event()

        def disturb(seed: int) -> int:
            chance, table = random.Random(seed), other.table("items")
            for number in itertools.count():
                if done.is_set():
                    return number
                key = chance.choice(keys)
                try:
                    match chance.randrange(4):
                        case 0:
                            table.delete((key,))
                        case 1:
                            table.insert({"id": key, "note": f"{seed} {number}"})
                        case 2:
                            table.update_many([{"id": key, "tag": f"{seed} {number}"}, {"id": (key + 1) % 12}])
                        case _:
                            table.upsert({"id": key, "tag": "u"})
                except (RecordExistsError, TransactionConflictError):
                    continue
            raise AssertionError("unreachable")

        results: dict[int, CommitResult] = {}
        with ThreadPoolExecutor(3) as pool:
            disturbing = [pool.submit(disturb, seed) for seed in range(3)]
            try:
                for number in range(patches):
                    job = begin(storage, number)
                    both: list[Arm] = [
                        (arm, {"id": key, "batch": number} | ({"note": "put"} if arm == "absent" else {}))
                        for key in keys[:8]
                        for arm in ("present", "absent")
                    ]
                    alone: list[Arm] = [("present", {"id": key, "batch": number}) for key in keys[8:]]
                    staged = [stage(storage, job, *part, partition=n) for n, part in enumerate((both, alone))]
                    while (result := committed(storage, job, staged)) is None:
                        pass
                    results[number] = result
            finally:
                done.set()
            assert all(one.result() > 0 for one in disturbing)
        versions: dict[int | None, list[tuple[RowKind, dict[str, Any]]]] = {}
        for change in read_between(storage, "items"):
            versions.setdefault(change.version, []).append((change.kind, dict(change.row)))
        last: dict[int, dict[str, Any]] = {}
        seen: list[Any] = []
        for changes in versions.values():
            if len({row["id"] for _, row in changes}) >= 8:  # other writers change two keys at most
                (number,) = {row["batch"] for kind, row in changes if not kind.retracts}
                seen.append(number)
                expected = {key: {"id": key, "note": "put", "tag": None, **last.get(key, {})} for key in keys[:8]}
                found = {row["id"]: row for kind, row in changes if not kind.retracts}
                # A row that was inserted after the patch had looked for it is no conflict, as it is none of `update`.
                expected |= {key: last[key] for key in keys[8:] if key in last and key in found}
                assert found == {key: {**row, "batch": number} for key, row in expected.items()}
                assert results[number] == CommitResult(True, 12 - len(found))
            for kind, row in changes:
                if kind is RowKind.DELETE:
                    del last[row["id"]]
                elif not kind.retracts:
                    last[row["id"]] = row
        assert seen == list(range(patches))


def committed(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> CommitResult | None:
    """Commit a job; None after a conflict."""
    try:
        return storage.commit_write(job, staged)
    except TransactionConflictError:
        return None


def test_columns_beyond_a_byte(storage: Storage) -> None:
    """The set of named columns may have any number of bits."""
    names = [f"f{place}" for place in range(70)]
    wide = TableSpecification("wide", [Field.long("id"), *map(Field.int, names)], ["id"])
    storage.admin.create(wide)
    storage.table("wide").upsert_many([{"id": key, **dict.fromkeys(names, 0)} for key in range(70)])
    job = storage.begin_write("wide", mode="patch", job_id="wide")
    arms: list[Arm] = [("present", {"id": key, names[key]: 1}) for key in range(70)]
    assert storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(wide, arms)])])
    for row in storage.table("wide").scan():
        assert [name for name in names if row[name] == 1] == [names[int(str(row["id"]))]]


def test_partitions_of_other_columns(storage: Storage) -> None:
    """Partitions may have different columns, in any order; the key is where it is in each."""
    table = storage.table("items")
    table.upsert_many([{"id": key, "note": "old", "tag": "old"} for key in (1, 2)])
    job = begin(storage, 1)
    parts: list[dict[str, pa.Array[Any]]] = [
        {"note": pa.array(["a"]), "id": pa.array([1], pa.int64()), "_arm": pa.array(["present"])},
        {"_arm": pa.array(["present", "absent"]), "id": pa.array([2, 1], pa.int64())},
        {"tag": pa.array(["b"]), "_arm": pa.array(["absent"]), "id": pa.array([3], pa.int64())},
        {"id": pa.array([4], pa.int64()), "_arm": pa.array(["delete"])},
    ]
    staged = [storage.stage(job, place, 0, [pa.record_batch(one)]) for place, one in enumerate(parts)]
    assert storage.commit_write(job, staged) == CommitResult(True, 0)
    assert [(row["id"], row["note"], row["tag"]) for row in table.scan()] == [
        (1, "a", "old"),
        (2, "old", "old"),
        (3, None, "b"),
    ]


def test_rows_that_an_older_structable_staged(storage: Storage) -> None:
    """It told whether some row of any arm does not name all columns, and not which ones changes name."""
    table = storage.table("items")
    table.upsert({"id": 1, "note": "old", "tag": "old"})
    job = begin(storage, 1)
    staged = stage(storage, job, ("present", {"id": 1, "note": "new"}), ("absent", {"id": 2, "tag": "new"}))
    older = replace(staged, state=json.dumps([*json.loads(staged.state)[:-4], True]).encode())
    assert storage.commit_write(job, [older]) == CommitResult(True, 0)
    assert [(row["id"], row["note"], row["tag"]) for row in table.scan()] == [(1, "new", "old"), (2, None, "new")]
