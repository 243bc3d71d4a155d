"""import and export in the middle of their work: signals, full disks, writers beside, pipes, the same job twice."""

import contextlib
import os
import random
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from structable.cli.commands import importing
from structable.cli.formats import output
from structable.cli.language.display import Advance
from structable.spi import Field, Storage, TableSpecification, connect
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.support.signals import inherited
from tests.cli.test_transfer import content

ROWS = 40_000
NUMBERS = TableSpecification("numbers", [Field.long("k"), Field.long("n"), Field.string("s")], ["k"])
TOTALS = TableSpecification(
    "totals",
    [Field.long("k"), Field.long("n")],
    ["k"],
    options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)
SIGNALS = [
    (signal.SIGINT, 130, "interrupted"),
    (signal.SIGTERM, 143, "terminated"),
    (signal.SIGHUP, 129, "hung up"),
]


class AtStep(Protocol):
    def __call__(self, step: int, action: Callable[[], object], *, file: int = 1) -> None: ...


@pytest.fixture
def numbers(url: str) -> Iterator[Storage]:
    """Open the store with a table of many batches."""
    with connect(url) as storage:
        storage.admin.create(NUMBERS)
        table = pa.table({"k": range(ROWS), "n": [1] * ROWS, "s": ["x" * 40] * ROWS})
        storage.load("numbers", table)
        yield storage


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> AtStep:
    """Do something once, when a command has taken so many batches of a file, which is half written or read."""

    def arrange(step: int, action: Callable[[], object], *, file: int = 1) -> None:
        left = [step, file]

        @contextlib.contextmanager
        def progress(*described: object) -> Iterator[Advance]:
            left[1] -= 1

            def advance(fraction: float | None, number: int) -> None:
                if left[1] == 0:
                    left[0] -= 1
                    if left[0] == 0:
                        action()

            yield advance

        for module in (importing, output):
            monkeypatch.setattr(module, "progress", progress)

    return arrange


def files_in(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


@pytest.mark.parametrize(("number", "code", "reason"), SIGNALS)
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl.gz", "x.arrow", "x.parquet"])
def test_a_signal_leaves_the_file_as_it_was(
    fails: Fails,
    at_step: AtStep,
    url: str,
    numbers: Storage,
    tmp_path: Path,
    name: str,
    number: int,
    code: int,
    reason: str,
) -> None:
    file = tmp_path / name
    with inherited():
        for before in (None, b"old"):
            if before is not None:
                file.write_bytes(before)
            at_step(2, lambda: signal.raise_signal(number))
            assert fails(code, "export", url, "numbers", file) == reason
            assert files_in(tmp_path) == ([] if before is None else [name])
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize(("number", "code", "reason"), SIGNALS)
def test_a_signal_leaves_no_half_dump(
    structable: Command,
    at_step: AtStep,
    url: str,
    numbers: Storage,
    tmp_path: Path,
    number: int,
    code: int,
    reason: str,
) -> None:
    numbers.admin.create(NUMBERS.evolve(name="others"))
    numbers.load("others", numbers.table("numbers"))
    folder = tmp_path / "backup"
    with inherited():
        for there in (False, True):
            if there:
                folder.mkdir()
            at_step(2, lambda: signal.raise_signal(number), file=2)
            outcome = structable("export", url, "--all", folder)
            assert (outcome.code, outcome.err.splitlines()[-1]) == (code, f"structable: {reason}")
            assert f"{ROWS:,} rows of table numbers are in" in outcome.err
            assert files_in(tmp_path) == []
            assert folder.exists() == there
    at_step(0, lambda: None)
    assert structable("export", url, "--all", folder).code == 0
    assert files_in(folder) == ["numbers.parquet", "numbers.toml", "others.parquet", "others.toml"]


def test_a_dump_that_was_killed_is_not_restored(
    structable: Command, fails: Fails, url: str, numbers: Storage, tmp_path: Path
) -> None:
    assert structable("export", url, "--all", tmp_path / "backup").code == 0
    (tmp_path / "backup" / ".unfinished").touch()
    message = fails(2, "import", f"{url}copy", "--all", tmp_path / "backup")
    assert "backup has the file .unfinished: the export into it was killed, and tables may be missing" in message


@pytest.mark.parametrize("url", ["memory", "leveldb"], indirect=True)
@pytest.mark.parametrize(("number", "code", "reason"), SIGNALS)
def test_a_signal_leaves_no_rows(
    structable: Command,
    at_step: AtStep,
    url: str,
    numbers: Storage,
    tmp_path: Path,
    number: int,
    code: int,
    reason: str,
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("k,n\n" + "".join(f"{key},2\n" for key in range(-ROWS, ROWS)))
    staging = Path(url.removeprefix("leveldb://"), "staging")
    before = content(numbers, "numbers")
    with inherited():
        for step, mode, job in ((1, "upsert", ()), (4, "overwrite", ()), (3, "upsert", ("--job-id", "again"))):
            at_step(step, lambda: signal.raise_signal(number))
            outcome = structable("import", url, "numbers", file, "--mode", mode, "--yes", *job)
            assert outcome == (code, "", f"structable: {reason}\n")
            assert content(numbers, "numbers") == before
            assert not staging.exists() or files_in(staging) == []
        at_step(2, lambda: signal.raise_signal(number))
        outcome = structable("import", url, "made", file, "--create", "--primary-key", "k")
        assert outcome.code == code
        assert numbers.admin.list() == ["numbers"]
    at_step(0, lambda: None)
    assert structable("import", url, "numbers", file, "--job-id", "again").err.startswith(f"{2 * ROWS:,} rows")
    assert numbers.table("numbers").count() == 2 * ROWS


@pytest.mark.parametrize("url", ["memory", "leveldb"], indirect=True)
def test_a_signal_after_the_commit_keeps_the_rows(
    structable: Command, url: str, monkeypatch: pytest.MonkeyPatch, numbers: Storage, tmp_path: Path
) -> None:
    assert structable("export", url, "--all", tmp_path / "backup").code == 0
    file, commit = tmp_path / "backup" / "numbers.parquet", importing.commit

    def commit_and_signal(*given: Any) -> bool:  # noqa: ANN401 - those of `commit`
        done = commit(*given)
        signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(importing, "commit", commit_and_signal)
    with inherited():
        assert structable("import", url, "made", file, "--create", "--primary-key", "k").code == 130
        numbers.admin.drop("numbers")
        assert structable("import", url, "--all", file.parent).code == 130
    assert [numbers.table(name).count() for name in ("made", "numbers")] == [ROWS, ROWS]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.jsonl", "x.arrow", "x.arrows", "x.parquet"])
def test_a_full_disk_leaves_the_file_as_it_was(
    structable: Command, fails: Fails, url: str, numbers: Storage, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    assert structable("export", url, "numbers", file).code == 0
    whole = file.stat().st_size
    file.write_bytes(b"old")
    for size in (0, 10, whole // 2, whole - 1):  # in the header, the rows and the end
        with largest_file(size):
            message = fails(1, "export", url, "numbers", file)
        assert message == f"{file}: File too large"
        assert file.read_bytes() == b"old"
        assert files_in(tmp_path) == [name]
    with largest_file(whole // 2):
        outcome = structable("export", url, "--all", tmp_path / "backup", "--format", "csv")
    assert outcome.code == 1
    assert files_in(tmp_path) == [name]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@every_store
def test_exports_beside_writers_are_one_state(structable: Command, url: str, tmp_path: Path) -> None:
    """Each transfer between rows and tables is in a file, or in a dump, wholly or not at all."""
    names, accounts = ("one", "two"), 500
    with connect(url) as storage:
        for name in names:
            storage.admin.create(TableSpecification(name, [Field.long("k"), Field.long("n"), Field.long("m")], ["k"]))
            storage.table(name).upsert_many({"k": key, "n": 100, "m": 0} for key in range(accounts))
        ended = threading.Event()

        def transfer() -> None:
            chosen = random.Random(1)
            while not ended.is_set():
                giver, taker = chosen.sample(range(accounts), 2)
                with storage.transaction() as transaction:
                    one, two = (transaction.table(name) for name in names)
                    one.increment((giver,), "n", -5)
                    two.increment((taker,), "n", 5)
                    one.increment((giver,), "m", 1)
                    one.increment((taker,), "m", -1)

        writer = threading.Thread(target=transfer)
        writer.start()
        try:
            for number in range(4):
                file, folder = tmp_path / f"{number}.parquet", tmp_path / str(number)
                assert structable("export", url, "one", file).code == 0
                assert structable("export", url, "--all", folder).code == 0
                assert total(file, "m") == 0
                assert sum(total(folder / f"{name}.parquet", "n") for name in names) == 200 * accounts
        finally:
            ended.set()
            writer.join()


def total(file: Path, column: str) -> int:
    found: list[Any] = pq.read_table(file)[column].to_pylist()
    return sum(found)


@every_store
def test_one_job_imported_twice_at_once_counts_once(
    structable: Command, at_step: AtStep, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("k,n\n1,5\n2,7\n")
    again: list[Any] = []
    args = ("import", url, "totals", file, "--job-id", "night")
    with connect(url) as storage:
        storage.admin.create(TOTALS)
        at_step(1, lambda: again.append(structable(*args)))
        first = structable(*args)
        assert (first.code, first.err) == (0, "job night was already committed; nothing was done\n")
        assert (again[0].code, again[0].err) == (0, f"2 rows of {file} are merged into table totals (job night)\n")
        assert content(storage, "totals") == [{"k": 1, "n": 5}, {"k": 2, "n": 7}]
        outcome = structable("import", url, "totals", file, "--job-id", "")
        assert outcome.code == 1
        assert "job_id" in outcome.err


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.arrow", "x.parquet", "x"])
def test_a_pipe_instead_of_a_file(structable: Command, url: str, tmp_path: Path, name: str, create: bool) -> None:
    """As `<(...)` of a shell is one: `--create` reads it twice."""
    written = tmp_path / "written" / (name if "." in name else "x.csv")
    written.parent.mkdir()
    with connect(url) as storage:
        storage.admin.create(NUMBERS)
        storage.table("numbers").upsert_many({"k": key, "n": 1, "s": f"a\tb,{key}"} for key in range(10))
        assert structable("export", url, "numbers", written).code == 0
        pipe = tmp_path / name
        os.mkfifo(pipe)

        def write() -> None:
            with contextlib.suppress(BrokenPipeError):  # of a reader that refuses it
                pipe.write_bytes(written.read_bytes())

        writer = threading.Thread(target=write)
        writer.start()
        form = () if "." in name else ("--format", "csv")
        options = ("--create", "--primary-key", "k") if create else ("--mode", "replace")
        outcome = structable("import", url, "copy" if create else "numbers", pipe, *form, *options)
        writer.join()
        if name == "x.parquet" and not create:
            assert outcome.code == 2
            assert outcome.err == f"structable: {pipe}: parquet is read from a file, not from a pipe\n"
            return
        assert outcome.code == 0, outcome.err
        assert outcome.err.splitlines()[-1].startswith(f"10 rows of {pipe} are in")
        if create:
            assert content(storage, "copy") == content(storage, "numbers")
