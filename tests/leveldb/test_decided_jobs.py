"""Jobs that were decided when their process was killed, and whose staged rows are lost or damaged before the next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.cli.commands.doctor import examine
from structable.spi import DataCorruptionError, Field, FindingLevel, Storage, TableSpecification, connect

from .support.processes import Process

DECIDE = """
import pyarrow as pa
from structable.backends.leveldb.native.database import Database
from structable.spi import *
storage = connect(f"leveldb://{folder}")
for name in ("whole", "torn"):
    storage.admin.create(TableSpecification(name, [Field.long("k"), Field.long("v")], ["k"], ["v"]))
    storage.table(name).upsert({"k": -1, "v": 0})
job = storage.begin_write("torn", mode="upsert", job_id="load")
rows = pa.RecordBatch.from_pydict({"k": list(range(5000)), "v": list(range(5000))})
staged = [storage.stage(job, 0, 0, [rows])]
real, left = Database.write, int(receive())
def write(self, parts, sync):
    global left
    real(self, parts, sync)
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
Database.write = write
storage.commit_write(job, staged)
"""


def decide(run: Callable[[str], Process], writes: int) -> None:
    """Leave a job whose process was killed after so many writes, the first of which is its decision."""
    process = run(DECIDE)
    process.send(str(writes))
    assert process.process.wait(60) == -9


def damage(folder: Path, kind: str) -> Path:
    [path] = (folder / "staging").glob("*/*.run")
    content = path.read_bytes()
    shutil.copy(path, folder.parent / "saved")
    if kind == "gone":
        path.unlink()
    elif kind == "folder gone":
        shutil.rmtree(path.parent)
    elif kind == "empty":
        os.truncate(path, 0)
    elif kind == "cut":
        os.truncate(path, len(content) // 2)
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    return path


def use_the_other_table(storage: Storage) -> None:
    table = storage.table("whole")
    table.upsert({"k": 7, "v": 8})
    assert table.read((7,)) == {"k": 7, "v": 8}
    assert [row.k for row in table.scan_index("v", 8)] == [7]
    assert storage.admin.list() == ["torn", "whole"]


@pytest.mark.parametrize(("kind", "writes"), [("gone", 1), ("folder gone", 3), ("empty", 2), ("cut", 2), ("bit", 3)])
def test_lost_run_of_a_decided_job_costs_its_table_alone(
    folder: Path, run: Callable[[str], Process], kind: str, writes: int
) -> None:
    decide(run, writes)
    damage(folder, kind)
    url = f"leveldb://{folder}"
    for _ in range(2):
        with connect(url) as storage:
            use_the_other_table(storage)
            for use in (
                lambda: storage.table("torn"),
                lambda: storage.begin_write("torn", mode="upsert", job_id="next"),
                lambda: storage.plan_scan("torn"),
            ):
                with pytest.raises(DataCorruptionError, match=r"'torn'.*'load'.*doctor --repair"):
                    use()
    problems = [one for one in examine(url) if one.level is FindingLevel.PROBLEM]
    assert {one.subject for one in problems} == {"table torn"}
    assert all("'load'" in one.text for one in problems)
    repaired = list(examine(url, repair=True))
    assert not [one for one in repaired if one.level is FindingLevel.PROBLEM]
    assert any("given up" in one.text for one in repaired)
    with connect(url) as storage:
        use_the_other_table(storage)
        table = storage.table("torn")
        found = {row.k for row in table.scan()}
        assert -1 in found
        assert table.count() == len(found) < 5001
        table.upsert({"k": -2, "v": 0})
        assert sorted(row.k for row in table.scan_index("v", 0)) == [-2, -1, *[k for k in (0,) if k in found]]


def test_restored_run_completes_its_job(folder: Path, run: Callable[[str], Process]) -> None:
    decide(run, 3)
    path = damage(folder, "bit")
    with connect(f"leveldb://{folder}") as storage, pytest.raises(DataCorruptionError):
        storage.table("torn")
    os.replace(folder.parent / "saved", path)
    with connect(f"leveldb://{folder}") as storage:
        assert storage.table("torn").count() == 5001
        assert not [one for one in storage.diagnose() if one.level is FindingLevel.PROBLEM]


def test_torn_table_may_be_dropped(folder: Path, run: Callable[[str], Process]) -> None:
    decide(run, 3)
    damage(folder, "gone")
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.drop("torn")
        storage.admin.create(TableSpecification("torn", [Field.long("k")], ["k"]))
        storage.table("torn").upsert({"k": 1})
    with connect(f"leveldb://{folder}") as storage:
        assert [row.k for row in storage.table("torn").scan()] == [1]


def test_damaged_run_is_found_before_the_decision(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(TableSpecification("t", [Field.long("k")], ["k"]))
        job = storage.begin_write("t", mode="upsert", job_id="load")
        staged = [storage.stage(job, 0, 0, [pa.RecordBatch.from_pydict({"k": [1, 2]})])]
        damage(folder, "bit")
        with pytest.raises(DataCorruptionError, match=r"'load'.*'t'"):
            storage.commit_write(job, staged)
        storage.table("t").upsert({"k": 3})
        storage.abort_write(job)
        assert [row.k for row in storage.table("t").scan()] == [3]


def test_repair_leaves_the_job_of_a_successor_alone(folder: Path, run: Callable[[str], Process]) -> None:
    """The torn table was dropped, and its name and the job's id are used again."""
    pa = pytest.importorskip("pyarrow")
    decide(run, 3)
    damage(folder, "gone")
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.drop("torn")
        storage.admin.create(TableSpecification("torn", [Field.long("k")], ["k"]))
        job = storage.begin_write("torn", mode="upsert", job_id="load")
        assert not job.committed
        staged = [storage.stage(job, 0, 0, [pa.RecordBatch.from_pydict({"k": [1, 2]})])]
        assert not [one for one in storage.diagnose() if one.level is FindingLevel.PROBLEM]
        assert not list(storage.repair())
        assert storage.commit_write(job, staged)
        assert storage.table("torn").count() == 2
