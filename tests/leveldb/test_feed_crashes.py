"""Tables with change feeds in processes that are killed: each table is what its feed makes of nothing."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from structable.cli.commands.doctor import examine
from structable.spi import DataCorruptionError, FeedPosition, Field, RowKind, Storage, TableSpecification, connect
from tests.waiting import until

from .support.killed_jobs import COUNT_WRITES, OPEN, small_chunks  # noqa: F401 - a fixture
from .support.processes import Process

NEVER = 1_000
LOOKUP = {"changelog-producer": "lookup"}
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
LOG = TableSpecification("log", [Field.long("k"), Field.long("n")], options={"write-mode": "log"})
KILLS = int(os.environ.get("STRUCTABLE_TEST_FAULT_SEEDS", "30")) // 10
_JOB = (
    COUNT_WRITES
    + """
import pyarrow as pa
from structable.spi import *
mode, writes = receive().split()
storage = connect(f"leveldb://{folder}")
job = storage.begin_write("t", mode=mode, job_id="load")
keys = list(range(10, 60))
columns = {"k": keys} if mode == "delete" else {"k": keys, "n": [2] * 50}
if mode == "changes":
    columns["_change_type"] = ["+U"] * 50
staged = [storage.stage(job, partition, 0, [pa.RecordBatch.from_pydict(columns)]) for partition in (1, 0)]
left = int(writes)
storage.commit_write(job, staged)
left = 1000
storage.close()
"""
)
_WRITER = """
import random
from structable.spi import *
number, durability = receive().split()
choose = random.Random(int(number))
storage = connect(f"leveldb://{folder}", durability=durability)
send("ready")
while True:
    key = choose.randrange(40)
    try:
        match choose.randrange(5):
            case 0:
                with storage.transaction() as tx:
                    row = tx.table("t").read((key,))
                    tx.table("t").upsert({"k": key, "n": 1 + (row.n if row else 0)})
                    tx.table("log").insert({"k": key, "n": 1 + (row.n if row else 0)})
                    tx.table("indexed").upsert({"k": key, "n": choose.randrange(5)})
            case 1:
                storage.table("sums").upsert_many([{"k": 0, "n": 1}, {"k": 1, "n": -1}])
            case 2:
                storage.table("t").increment((key,), "n", 3)
            case 3:
                with storage.transaction() as tx:
                    tx.table("t").delete((key,))
                    tx.table("sums").upsert({"k": key % 3, "n": 1})
                    tx.table("indexed").delete((choose.randrange(40),))
            case _:
                storage.table("indexed").upsert_many([{"k": choose.randrange(40), "n": 7} for _ in range(9)])
    except (TransactionConflictError, CommitOutcomeUnknownError):
        continue
"""


def fold(storage: Storage, table: str, until: FeedPosition) -> dict[int, int]:
    """Return what the changes of a table make of no rows, each of which must change what is there."""
    rows: dict[int, int] = {}
    last = 0
    with storage.changes(table).read(until=until) as changes:
        for change in changes:
            assert change.version is not None
            assert change.version >= last
            last = change.version
            key, n = change.row["k"], change.row["n"]
            assert isinstance(key, int)
            assert isinstance(n, int)
            if change.kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                assert rows.pop(key) == n
            else:
                assert key not in rows
                rows[key] = n
    return rows


def require_folded(storage: Storage, *tables: str) -> None:
    for table in tables:
        with storage.transaction(read_only=True) as tx:
            position = tx.position(table)
            assert {row["k"]: row["n"] for row in tx.table(table).scan()} == fold(storage, table, position)


def require_logged(storage: Storage) -> None:
    """Check that a log has a row for each commit that wrote one, and the commit what the row says."""
    written: dict[int | None, list[object]] = {}
    with storage.changes("log").read() as changes:
        for change in changes:
            assert change.number == len(written.setdefault(change.version, []))
            written[change.version].append(dict(change.row))
    assert written
    with storage.changes("t").read() as changes:
        made = [(change.version, dict(change.row)) for change in changes if not change.kind.retracts]
    rows = {version: row for version, row in made if version in written}
    assert {version: [row] for version, row in rows.items()} == written


def create(storage: Storage, table: str, indexes: tuple[str, ...] = (), **options: str) -> None:
    fields = [Field.long("k"), Field.long("n")]
    options = {name.replace("_", "-"): value for name, value in options.items()}
    storage.admin.create(TableSpecification(table, fields, ["k"], indexes, {**LOOKUP, **options}))


def submit(run: Callable[[str], Process], mode: str, writes: int = NEVER) -> int:
    process = run(_JOB)
    process.send(f"{mode} {writes}")
    return process.process.wait(60)


@pytest.mark.parametrize("writes", range(6))
@pytest.mark.parametrize(
    ("mode", "indexes", "options"),
    [("upsert", ("n",), {}), ("delete", (), {}), ("changes", (), SUMS)],
)
def test_killed_job_appends_once(
    folder: Path,
    run: Callable[[str], Process],
    writes: int,
    mode: str,
    indexes: tuple[str, ...],
    options: dict[str, str],
) -> None:
    """Killed after any of its writes (the decision, three chunks, the completion), and submitted again."""
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(
            TableSpecification("t", [Field.long("k"), Field.long("n")], ["k"], indexes, {**LOOKUP, **options})
        )
        storage.table("t").upsert_many([{"k": key, "n": key % 3} for key in range(40)])
        before = storage.changes("t").latest()
    assert submit(run, mode, writes) == (-9 if writes < 5 else 0)
    with connect(f"leveldb://{folder}") as storage:
        require_folded(storage, "t")
        with storage.changes("t").read(before) as changes:
            versions = {change.version for change in changes}
        assert len(versions) == (1 if writes else 0), "the changes of a job have one version"
        storage.table("t").upsert({"k": -1, "n": 5})
        require_folded(storage, "t")


@pytest.mark.parametrize("writes", range(8))
def test_killed_job_of_a_log_appends_once(folder: Path, run: Callable[[str], Process], writes: int) -> None:
    """Its rows are numbered and in order, though some of its five chunks are written after the crash."""
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(LOG.evolve(name="t"))
    assert submit(run, "insert", writes) == (-9 if writes < 7 else 0)
    with connect(f"leveldb://{folder}") as storage:
        found = [(change.number, change.row["k"]) for change in storage.changes("t").read()]
    assert found == ([*enumerate([*range(10, 60)] * 2)] if writes else [])
    assert submit(run, "insert") == 0
    with connect(f"leveldb://{folder}") as storage:
        changes = list(storage.changes("t").read())
    assert [(change.number, change.row["k"]) for change in changes] == [*enumerate([*range(10, 60)] * 2)]
    assert len({change.version for change in changes}) == 1


def test_job_killed_again_in_each_recovery(folder: Path, run: Callable[[str], Process]) -> None:
    with connect(f"leveldb://{folder}") as storage:
        create(storage, "t")
        storage.table("t").upsert_many([{"k": key, "n": 9} for key in range(40)])
        before = storage.changes("t").latest()
    assert submit(run, "upsert", 1) == -9
    for _ in range(3):
        assert run(OPEN).process.wait(60) == -9
    assert run(OPEN).process.wait(60) == 0, "only the completion was missing"
    with connect(f"leveldb://{folder}") as storage:
        require_folded(storage, "t")
        with storage.changes("t").read(before) as changes:
            kinds = [change.kind for change in changes]
    assert len(kinds) == 2 * 30 + 20


@pytest.mark.parametrize("durability", ["process", "machine"])
def test_three_processes_are_killed_at_random(folder: Path, run: Callable[[str], Process], durability: str) -> None:
    """Whichever it is, the owner or a client, and the next owner goes on: versions never go back."""
    url = f"leveldb://{folder}"
    choose = random.Random(durability)
    with connect(url) as storage:
        create(storage, "t")
        create(storage, "indexed", ("n",))
        storage.admin.create(
            TableSpecification("sums", [Field.long("k"), Field.long("n")], ["k"], options={**LOOKUP, **SUMS})
        )
        storage.admin.create(LOG)
    newest = 0
    number = 0

    def write() -> Process:
        nonlocal number
        number += 1
        process = run(_WRITER)
        process.send(f"{number} {durability}")
        return process

    writers = [write() for _ in range(3)]
    for process in writers:
        assert process.receive() == "ready"
    for _ in range(KILLS):
        with connect(url, read_only=True) as storage:
            begun = storage.changes("t").latest().version
            until(lambda: storage.changes("t").latest().version > begun + choose.randrange(200))  # noqa: B023
            require_folded(storage, "t", "indexed", "sums")
            assert begun >= newest
            newest = storage.changes("t").latest().version
        victim = choose.randrange(3)
        writers[victim].signal(signal.SIGKILL)
        writers[victim].process.wait(60)
        writers[victim] = write()
        assert writers[victim].receive() == "ready"
    for process in writers:
        process.close()
    with connect(url) as storage:
        require_folded(storage, "t", "indexed", "sums")
        require_logged(storage)
        assert storage.changes("t").latest().version >= newest
        storage.table("sums").upsert({"k": 0, "n": 1})
        require_folded(storage, "t", "indexed", "sums")


@pytest.mark.parametrize("writes", [1, 2, 4])
@pytest.mark.parametrize("restored", [False, True])
def test_job_that_recovery_cannot_complete(
    folder: Path, run: Callable[[str], Process], writes: int, restored: bool
) -> None:
    """Its rows are lost, and come back after other commits, or it is given up: either way its version is kept."""
    url = f"leveldb://{folder}"
    with connect(url) as storage:
        create(storage, "t", ("n",))
        create(storage, "other")
        storage.table("t").upsert_many([{"k": key, "n": key % 3} for key in range(40)])
        before = storage.changes("t").latest()
    assert submit(run, "upsert", writes) == -9
    saved = folder.parent / "saved"
    (folder / "staging").rename(saved)
    with connect(url) as storage:
        storage.table("other").upsert({"k": 1, "n": 1})
        for use in (lambda: storage.changes("t"), lambda: storage.table("t")):
            with pytest.raises(DataCorruptionError, match="doctor --repair"):
                use()
        newest = storage.changes("other").latest().version
        with storage.changes("other").read() as changes:
            *_, theirs = (change.version or 0 for change in changes)
    if restored:
        rmtree(folder / "staging", ignore_errors=True)
        saved.rename(folder / "staging")
    else:
        assert [one for one in examine(url, repair=True) if "given up" in one.text]
    with connect(url) as storage:
        require_folded(storage, "t", "other")
        with storage.changes("t").read(before) as changes:
            own = {change.version or 0 for change in changes}
        assert len(own) == (1 if restored or writes > 1 else 0)
        assert all(before.version < version < theirs for version in own)
        assert storage.changes("t").latest().version >= newest
        storage.table("t").upsert({"k": -1, "n": 5})
        require_folded(storage, "t", "other")


def test_interrupted_commits_append_all_or_nothing(folder: Path, run: Callable[[str], Process]) -> None:
    """A signal's handler raises at random moments of the main thread, while another thread commits as well."""
    script = """
import random
from structable.spi import *
storage = connect(f"leveldb://{folder}")
choose = random.Random(3)
def interrupt(_, frame):
    signal.setitimer(signal.ITIMER_REAL, 0.02)  # Python drops what is raised in a __del__
    while frame is not None:
        if frame.f_code is work.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back
def work(until, thread):
    while time.monotonic() < until:
        try:
            with storage.transaction() as tx:
                tx.table("t").upsert({"k": choose.randrange(20), "n": choose.randrange(99)})
                tx.table("sums").upsert({"k": 1, "n": 1})
            storage.table("t").increment((choose.randrange(20),), "n", 1)
        except (TransactionConflictError, StorageUnavailableError):
            continue
signal.signal(signal.SIGALRM, interrupt)
other = threading.Thread(target=work, args=(time.monotonic() + 4, 1))
other.start()
end, interrupted = time.monotonic() + 4, 0
while time.monotonic() < end or interrupted <= 20:
    try:
        signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-4, 3e-3))
        work(max(end, time.monotonic() + 1), 0)
    except KeyboardInterrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
other.join()
send(interrupted)
storage.close()
"""
    with connect(f"leveldb://{folder}") as storage:
        create(storage, "t")
        storage.admin.create(
            TableSpecification("sums", [Field.long("k"), Field.long("n")], ["k"], options={**LOOKUP, **SUMS})
        )
    process = run(script)
    assert int(process.receive()) > 20
    assert process.process.wait(60) == 0
    with connect(f"leveldb://{folder}") as storage:
        require_folded(storage, "t", "sums")
