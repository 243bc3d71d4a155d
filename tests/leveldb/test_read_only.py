"""A storage with `read_only=True` leaves no trace in the database folder, and never owns the database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from structable.backends.leveldb import observer
from structable.backends.leveldb.native.checkpoint import copy_checkpoint
from structable.spi import (
    DataCorruptionError,
    Field,
    Range,
    Storage,
    StorageUnavailableError,
    StoreNotFoundError,
    TableSpecification,
    Value,
    col,
    connect,
    read_split,
)

from .support.processes import Process

Run = Callable[[str], Process]
TABLE = TableSpecification("t", [Field.int("k"), Field.string("s"), Field.bytes("b")], ["k"], ["s"])
ROWS = 2_000

WRITER = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}")
"""
HOLD = """
send("ready")
while receive() == "write":
    storage.table("t").upsert({"k": -1, "s": "late"})
    send("done")
storage.close()
"""
DIE_IN_A_JOB = """
import pyarrow as pa
import structable.backends.leveldb.native.database as database
job = storage.begin_write("t", mode="upsert", job_id="dying")
keys, values = pa.array(range(-1000, 0), pa.int32()), pa.array(["job"] * 1000)
staged = storage.stage(job, 0, 0, [pa.record_batch({"k": keys, "s": values})])
original = database.Database.write
def write(self, parts, sync):
    parts = list(parts)
    original(self, parts, sync)
    if sum(map(len, parts)) > 100:
        os.kill(os.getpid(), signal.SIGKILL)
database.Database.write = write
send("ready")
storage.commit_write(job, [staged])
"""


pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def url(folder: Path) -> str:
    """Make a database with table files and a log, closed in good order."""
    url = f"leveldb://{folder}?durability=process&write_buffer=1"
    with connect(url) as storage:
        storage.admin.create(TABLE)
        rows: list[dict[str, Value]] = [{"k": k, "s": "ab"[k % 2], "b": os.urandom(1_000)} for k in range(ROWS)]
        storage.table("t").upsert_many(rows)
    with connect(url) as storage:  # opening moves the log to a table file
        storage.table("t").upsert({"k": 0, "s": "a"})
    return url


def files(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return size, modification time and content of every file in a folder."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found[str(path.relative_to(folder))] = (
            about.st_size,
            about.st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
    return found


def read_everything(storage: Storage, url: str) -> None:
    assert storage.admin.list() == ["t"]
    view = storage.table("t")
    assert view.read((1,)) is not None
    assert view.count([Range.at_least((0,))]) == ROWS
    assert len(list(view.scan_index("s", "a", columns=["k"]))) == ROWS // 2
    with storage.transaction() as transaction:
        assert len(list(transaction.table("t").scan(reverse=True, limit=10))) == 10
    with storage.plan_scan("t", columns=["k"], range=Range.at_least((0,)), splits=3) as plan:
        assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == ROWS
        assert sum(batch.num_rows for split in plan.splits for batch in read_split(url, split, read_only=True)) == ROWS
    list(storage.diagnose())


@pytest.fixture(params=["closed", "killed", "locked away"])
def left(request: pytest.FixtureRequest, url: str, folder: Path, run: Run) -> Iterator[str]:
    """Leave the database as a writer may: closed, killed with a log to recover, or in an unwritable folder."""
    if request.param == "killed":
        process = run(WRITER + HOLD)
        assert process.receive() == "ready"
        process.send("write")
        assert process.receive() == "done"
        process.signal(signal.SIGKILL)
        process.process.wait()
    if request.param == "locked away":
        (folder / "lock").unlink()  # not needed either
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o500 if path.is_dir() else 0o400)
    yield url
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)


def test_nothing_is_written(left: str, folder: Path, temporary: Path) -> None:
    """No file of the folder comes, goes or changes, and no copy stays behind."""
    before = files(folder)
    for _ in range(2):
        with connect(left, read_only=True) as storage:
            read_everything(storage, left)
    assert files(folder) == before
    assert copies(temporary) == []


def test_nothing_is_made(folder: Path) -> None:
    """A mistyped path, an empty folder and one of other files are no store."""
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError, match="does not exist"):
            connect(f"leveldb://{folder}", **options)
        assert not folder.exists()
    folder.mkdir()
    for names in ((), ("other",)):
        for name in names:
            (folder / name).touch()
        before = files(folder)
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(StoreNotFoundError, match="holds no database"):
                connect(f"leveldb://{folder}", **options)
        assert files(folder) == before


def test_a_file_in_the_place_of_the_folder(folder: Path) -> None:
    folder.touch()
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StorageUnavailableError, match="is not a folder"):
            connect(f"leveldb://{folder}", **options)


def test_temporary_folder_on_another_file_system(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    """Files that cannot be linked are copied."""

    def link(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    before = files(folder)
    with connect(url, read_only=True) as storage:
        read_everything(storage, url)
        assert len(copies(temporary)) >= 1
    assert files(folder) == before


def test_reader_of_a_living_owner(url: str, folder: Path, run: Run) -> None:
    """The reader is the owner's client and sees its commits; its plans leave nothing in the folder."""
    process = run(WRITER + HOLD)
    assert process.receive() == "ready"
    with connect(url, read_only=True) as storage:
        before = files(folder)  # the owner counts its commits from its first client on
        read_everything(storage, url)
        assert files(folder) == before
        process.send("write")
        assert process.receive() == "done"
        assert storage.table("t").read((-1,)) is not None
    with connect(url) as writer, writer.plan_scan("t", columns=["k"]) as plan:
        before = files(folder)
        for split in plan.splits:
            assert sum(batch.num_rows for batch in read_split(url, split, read_only=True)) == ROWS + 1
        assert files(folder) == before


@pytest.mark.parametrize("end", ["close", "kill"])
def test_owner_ends(url: str, folder: Path, run: Run, end: str) -> None:
    """However the owner ends, the reader continues with a copy, and the database is free for the next owner."""
    process = run(WRITER + HOLD)
    assert process.receive() == "ready"
    with connect(url, read_only=True) as storage:
        assert storage.table("t").count() == ROWS
        process.send("write")
        assert process.receive() == "done"
        if end == "kill":
            process.signal(signal.SIGKILL)
        else:
            process.send()
        process.process.wait()
        before = files(folder)
        assert storage.table("t").count() == ROWS + 1
        read_everything(storage, url)
        assert files(folder) == before
        with connect(url) as writer:
            writer.table("t").delete((0,))
            assert writer.table("t").count() == ROWS
        read_everything(storage, url)  # the copy is as it was


def test_owner_in_the_same_process(url: str) -> None:
    """A reader beside an owner in one process does not keep the database open."""
    with connect(url) as writer, connect(url, read_only=True) as storage:
        writer.table("t").upsert({"k": -1})
        assert storage.table("t").count() == ROWS + 1
        writer.close()
        assert storage.table("t").count() == ROWS + 1
        with connect(url) as again:
            again.table("t").delete((-1,))
        with connect(url, read_only=True) as another:
            assert another.table("t").count() == ROWS


def test_job_that_was_decided_and_not_completed(url: str, folder: Path, run: Run) -> None:
    """A reader sees all of it, by completing it in its copy alone; the next owner does so in the database."""
    process = run(WRITER + DIE_IN_A_JOB)
    assert process.receive() == "ready"
    assert process.process.wait() == -signal.SIGKILL
    before = files(folder)
    for _ in range(2):
        with connect(url, read_only=True) as storage:
            assert storage.table("t").count([Range.below((0,))]) == 1000
            assert len(list(storage.table("t").scan_index("s", "job"))) == 1000
            with storage.plan_scan("t", range=Range.below((0,))) as plan:
                assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == 1000
    assert files(folder) == before
    with connect(url) as storage:
        assert storage.table("t").count([Range.below((0,))]) == 1000


def test_damaged_database(url: str, folder: Path) -> None:
    """Damage is reported, and the files stay unchanged."""
    tables = sorted((folder / "database").glob("*.ldb"))
    tables[0].unlink()
    before = files(folder)
    with pytest.raises(DataCorruptionError, match="lost its file"):
        connect(url, read_only=True)
    assert files(folder) == before


def test_copies_of_killed_readers_are_removed(url: str, temporary: Path, run: Run) -> None:
    """A copy lives as long as its reader; the next reader removes those of killed ones."""
    process = run(
        """
from structable.spi import connect
storage = connect(f"leveldb://{folder}", read_only=True)
send("ready")
receive()
"""
    )
    assert process.receive() == "ready"
    with connect(url, read_only=True):
        assert len(copies(temporary)) == 2
    process.signal(signal.SIGKILL)
    process.process.wait()
    assert len(copies(temporary)) == 1
    with connect(url, read_only=True):
        assert len(copies(temporary)) == 1
    assert copies(temporary) == []


def test_copies_go_with_the_process(url: str, temporary: Path) -> None:
    """A reader that is never closed removes its copy at its end; a child that it forks does not."""
    program = f"""
import os
from structable.spi import connect
storage = connect({url!r}, read_only=True)
child = os.fork()
if not child:
    raise SystemExit(0)
os.waitpid(child, 0)
assert storage.table("t").count() == {ROWS}
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
    assert copies(temporary) == []


def copies(temporary: Path) -> list[Path]:
    """Return all copies."""
    return list(temporary.glob("structable-*/checkpoints/*"))


HALF_A_JOB = """
import pyarrow as pa
import structable.backends.leveldb.native.database as database
job = storage.begin_write("t", mode="upsert", job_id="slow")
keys, values = pa.array(range(ROWS), pa.int32()), pa.array(["job"] * ROWS)
staged = storage.stage(job, 0, 0, [pa.record_batch({"k": keys, "s": values})])
original = database.Database.write
def write(self, parts, sync):
    parts = list(parts)
    original(self, parts, sync)
    if sum(map(len, parts)) > 100 and database.Database.write is write:
        database.Database.write = original
        send("half")
        receive()
database.Database.write = write
send("ready")
receive()
storage.commit_write(job, [staged])
send("whole")
receive()
storage.close()
"""


@pytest.mark.parametrize("owner_ends", [False, True])
def test_job_that_the_owner_completes_while_it_is_copied(
    url: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, owner_ends: bool
) -> None:
    """The staged rows are gone when the copy needs them: a second copy is complete."""
    process = run(WRITER + f"ROWS = {ROWS}" + HALF_A_JOB)
    assert process.receive() == "ready"
    copies = 0

    def copy(database: Path, target: Path) -> None:
        nonlocal copies
        copies += 1
        if copies == 1:
            process.send()
            assert process.receive() == "half"
        copy_checkpoint(database, target)
        if copies == 1:
            process.send()
            assert process.receive() == "whole"
            if owner_ends:
                process.send()
                process.process.wait()

    monkeypatch.setattr(observer, "copy_checkpoint", copy)
    with connect(url, read_only=True) as storage, storage.plan_scan("t", columns=["s"], splits=2) as plan:
        assert copies == 2
        found = [s for split in plan.splits for batch in storage.read_split(split) for s in batch["s"].to_pylist()]
        assert found == ["job"] * ROWS
        assert storage.table("t").count(where=col("s") == "job") == ROWS


def test_job_whose_rows_are_lost(url: str, folder: Path, run: Run) -> None:
    """It costs a reader, like the owner, its own table alone."""
    with connect(url) as storage:
        storage.admin.create(TableSpecification("whole", [Field.int("k")], ["k"]))
    process = run(WRITER + DIE_IN_A_JOB)
    assert process.receive() == "ready"
    assert process.process.wait() == -signal.SIGKILL
    [staged] = (folder / "staging").glob("*/*.run")
    staged.unlink()
    before = files(folder)
    with connect(url, read_only=True) as storage:
        assert storage.table("whole").count() == 0
        for use in (storage.table, storage.plan_scan):
            with pytest.raises(DataCorruptionError, match="'dying'"):
                use("t")
    assert files(folder) == before
