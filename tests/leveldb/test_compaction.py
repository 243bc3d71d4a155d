"""How table files are written, and rewriting them all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from structable.backends.leveldb import engine
from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.native.database import COMPRESSION
from structable.spi import Field, Range, Storage, StorageUnavailableError, TableSpecification, WriteMode, connect
from tests.waiting import until

from .support.processes import Process
from .support.table_files import compressions, table_files

ROWS = TableSpecification(
    "rows", [Field.long("id"), Field.string("text"), Field.long("group")], ["id"], indexes=["group"]
)
COUNT = 12_000
OWNER = """
from structable.spi import connect
storage = connect(f"leveldb://{folder}?durability=process")
send("ready")
receive()
"""


def url_of(folder: Path, options: str = "") -> str:
    return f"leveldb://{folder}?durability=process&write_buffer=1{options}"


def fill(storage: Storage, mark: str = "") -> None:
    """Write rows in no order, so that they go to files of several levels."""
    numbers = [number * 7919 % COUNT for number in range(COUNT)]
    for begin in range(0, COUNT, 1_000):
        storage.table(ROWS.name).upsert_many(
            {"id": number, "text": f"{mark}{number:0100}", "group": number % 100}
            for number in numbers[begin : begin + 1_000]
        )


def rows_of(storage: Storage) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [tuple(row.values()) for row in storage.table(ROWS.name).scan()]
    assert rows == sorted(rows)
    assert storage.table(ROWS.name).count() == len(rows)
    return rows


@pytest.fixture
def old(folder: Path) -> Path:
    """A database that was made before there was a choice, with its files in more than one level."""
    with connect(url_of(folder, "&compression=snappy")) as storage:
        storage.admin.create(ROWS)
        for mark in "abc":
            fill(storage, mark)
    (folder / "database" / COMPRESSION).unlink()
    assert compressions(folder / "database") == {"snappy"}
    return folder


def test_new_databases_have_no_compression(folder: Path) -> None:
    for _ in range(2):
        with connect(url_of(folder)) as storage:
            storage.admin.create_or_update(ROWS)
            fill(storage)
    assert compressions(folder / "database") == {"none"}


@pytest.mark.parametrize("made", ["none", "snappy"])
def test_an_option_says_how_its_owner_writes_and_not_the_next(folder: Path, made: str) -> None:
    """The database keeps the choice that it was made with."""
    other = "snappy" if made == "none" else "none"
    with connect(url_of(folder, f"&compression={made}")) as storage:
        storage.admin.create(ROWS)
    with connect(url_of(folder, f"&compression={other}")) as storage:
        fill(storage)
    assert other in compressions(folder / "database")
    with connect(url_of(folder)) as storage:
        list(storage.compact())
        assert compressions(folder / "database") == {made}


def test_databases_of_before_keep_their_compression(old: Path) -> None:
    with connect(url_of(old)) as storage:
        fill(storage, "d")
        list(storage.compact())
    assert compressions(old / "database") == {"snappy"}


def test_every_file_is_rewritten_and_the_choice_kept(old: Path) -> None:
    """Also where all files lie in one level, which LevelDB itself would leave as they are."""
    before = table_files(old / "database")
    for compression in ("none", "snappy", "none"):
        with connect(url_of(old, f"&compression={compression}")) as storage:
            rows = rows_of(storage)
            list(storage.compact())
            assert compressions(old / "database") == {compression}
            assert not before & (before := table_files(old / "database"))
            assert rows_of(storage) == rows
    with connect(url_of(old)) as storage:
        fill(storage, "d")
    assert compressions(old / "database") == {"none"}


def test_deleted_and_overwritten_rows_take_no_space_afterwards(folder: Path) -> None:
    with connect(url_of(folder)) as storage:
        storage.admin.create(ROWS)
        for mark in "abc":
            fill(storage, mark)
        storage.table(ROWS.name).delete_all(Range.at_least((COUNT // 10,)))
        progress = list(storage.compact())
        assert progress[-1].bytes < progress[0].bytes / 5
        assert len(rows_of(storage)) == COUNT // 10


def test_a_client_asks_the_owner_which_goes_on(old: Path, run: Callable[[str], Process]) -> None:
    """The owner writes as asked from then on; a transaction that is open as it changes over ends, and is repeated."""
    owner = run(
        OWNER
        + """
reads = []
def body(tx):
    reads.append(tx.table("rows").read((1,)).text)
    if len(reads) == 1:
        send("reading")
        receive()
    reads.append(tx.table("rows").read((2,)).text)
storage.run(body)
send(len(reads))
receive()
rows = {number: f"e{number:0100}" for number in range(12_000)}
storage.table("rows").upsert_many({"id": number, "text": text} for number, text in rows.items())
assert {row.id: row.text for row in storage.table("rows").scan()} == rows
storage.close()
"""
    )
    assert owner.receive() == "ready"
    owner.send()
    assert owner.receive() == "reading"
    with connect(url_of(old, "&compression=none")) as storage:
        assert isinstance(storage.engine.route, Client)  # type: ignore[attr-defined]
        rows = rows_of(storage)
        for progress in storage.compact():
            if progress.fraction < 1:
                storage.table(ROWS.name).update({"id": 7, "text": f"{progress.fraction}"})
        assert compressions(old / "database") == {"none"}
        assert [row for row in rows_of(storage) if row[0] != 7] == [row for row in rows if row[0] != 7]
    owner.send()
    assert owner.receive() == "3", "the transaction was repeated"
    owner.send()
    assert owner.end() == 0
    assert compressions(old / "database") == {"none"}


def test_a_snapshot_outlasts_a_compaction_of_the_same_kind(old: Path) -> None:
    with connect(url_of(old)) as storage, storage.transaction(read_only=True) as tx:
        rows = [row.text for row in tx.table(ROWS.name).scan()]
        fill(storage, "d")
        for _ in storage.compact():
            assert [row.text for row in tx.table(ROWS.name).scan()] == rows


@pytest.mark.parametrize("victim", ["owner", "client"])
def test_a_killed_process_loses_nothing_and_repeating_completes(
    old: Path, run: Callable[[str], Process], monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """A client goes on with the next owner."""
    compacting = """
engine._PART_BYTES = 1 << 16
for progress in connect(f"leveldb://{folder}?durability=process&compression=none").compact():
    if progress.fraction:
        send("compacting")
        receive()
"""
    with connect(url_of(old)) as storage:
        rows = rows_of(storage)
    monkeypatch.setattr(engine, "_PART_BYTES", 1 << 16)
    process = run(
        "from structable.backends.leveldb import engine\n" + OWNER + (compacting if victim == "client" else "")
    )
    assert process.receive() == "ready"
    with connect(url_of(old, "&compression=none")) as storage:
        if victim == "client":
            process.send()
            assert process.receive() == "compacting"
            process.close()
        else:
            progress = storage.compact()
            while not next(progress).fraction:
                continue
            process.close()
            *_, last = progress
            assert last.fraction == 1
        assert rows_of(storage) == rows
        list(storage.compact())
        assert rows_of(storage) == rows
    assert compressions(old / "database") == {"none"}


def test_everything_goes_on_during_compactions(old: Path) -> None:
    """Updates, scans, plans, and write jobs, which freeze the state that is read, while two threads compact."""
    done, failures = threading.Event(), list[BaseException]()

    def repeat(work: Callable[[int], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                for number in count():
                    work(number)
                    if done.is_set():
                        return
            except BaseException as error:
                failures.append(error)
                done.set()

        return run

    with connect(url_of(old)) as storage:
        table = storage.table(ROWS.name)
        texts = {row.id: row.text for row in table.scan()}

        def update(number: int) -> None:
            table.update({"id": number % COUNT, "text": f"u{number}"})
            texts[number % COUNT] = f"u{number}"

        def write(number: int) -> None:
            job = storage.begin_write(ROWS.name, mode=WriteMode.UPSERT, job_id=f"job {number}")
            batch = pa.RecordBatch.from_pylist([{"id": COUNT + number, "text": "new"}])
            storage.commit_write(job, [storage.stage(job, 0, 0, [batch])])

        def plan(_: int) -> None:
            with storage.plan_scan(ROWS.name, columns=["id"], splits=2) as plan:
                assert sum(one.num_rows for split in plan.splits for one in storage.read_split(split)) >= COUNT

        def compact(_: int) -> None:
            assert list(storage.compact())[-1].fraction == 1

        threads = [threading.Thread(target=repeat(work)) for work in (update, write, plan, compact, compact)]
        for thread in threads:
            thread.start()
        done.wait(3)
        done.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert {row.id: row.text for row in table.scan(Range.below((COUNT,)))} == texts


def test_closing_ends_a_compaction(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part under way is completed; nothing is lost."""
    monkeypatch.setattr(engine, "_PART_BYTES", 1 << 16)
    storage = connect(url_of(old, "&compression=none"))
    rows = rows_of(storage)
    begun = threading.Event()
    ended: list[BaseException] = []

    def compact() -> None:
        try:
            while True:
                for progress in storage.compact():
                    if progress.fraction:
                        begun.set()
        except StorageUnavailableError as error:
            ended.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    begun.wait()
    storage.close()
    thread.join()
    assert len(ended) == 1
    with connect(url_of(old)) as storage:
        assert rows_of(storage) == rows
        list(storage.compact())
    assert compressions(old / "database") == {"none"}


def test_a_forked_process_leaves_the_compaction_to_its_parent(old: Path, run: Callable[[str], Process]) -> None:
    process = run(
        """
from structable.spi import connect
storage = connect(f"leveldb://{folder}?durability=process&compression=none")
begun = threading.Event()
def compact():
    for _ in storage.compact():
        begun.set()
thread = threading.Thread(target=compact)
thread.start()
begun.wait()
child = os.fork()
if not child:
    with connect(f"leveldb://{folder}?durability=process") as own:
        found = own.table("rows").count()
    os._exit(found != 12_000)
_, status = os.waitpid(child, 0)
thread.join()
send(status)
storage.close()
"""
    )
    assert process.receive() == "0"
    assert process.end() == 0
    assert compressions(old / "database") == {"none"}


def test_a_full_disk_fails_the_compaction_and_loses_nothing(small_disk: Path) -> None:
    with connect(url_of(small_disk / "store")) as storage:
        storage.admin.create(ROWS)
        fill(storage)
        rows = rows_of(storage)
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(20 << 20))
        with pytest.raises(StorageUnavailableError):
            list(storage.compact())
        assert rows_of(storage) == rows
        ballast.unlink()
        until(lambda: compacts(storage))
        assert rows_of(storage) == rows


def compacts(storage: Storage) -> bool:
    try:
        list(storage.compact())
    except StorageUnavailableError:
        return False
    return True


def test_checkpoints_are_written_as_their_database(folder: Path) -> None:
    """Opening one turns the rows of its log into a table file."""
    with connect(url_of(folder, "&compression=snappy")) as storage:
        storage.admin.create(ROWS)
        fill(storage)
        with storage.plan_scan(ROWS.name):
            [checkpoint] = folder.glob("checkpoints/*/state")
            assert compressions(checkpoint) == {"snappy"}
    with connect(url_of(folder, "&compression=none")) as storage:
        list(storage.compact())
        storage.table(ROWS.name).upsert_many({"id": number, "text": "again" * 20} for number in range(1_000))
        with storage.plan_scan(ROWS.name):
            [checkpoint] = folder.glob("checkpoints/*/state")
            assert compressions(checkpoint) == {"none"}
