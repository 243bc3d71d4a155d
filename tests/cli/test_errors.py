"""Every error is one line without secrets, and an exit code."""

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from structable.cli import errors, tables
from structable.cli.errors import ExitCode, explain_error, one_line, without_secrets
from structable.spi import (
    BackendNotFoundError,
    CommitOutcomeUnknownError,
    DataCorruptionError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionConflictError,
    connect,
)
from tests.cli.conftest import Command, Fails, Outcome
from tests.cli.samples import RUNS

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TableNotFoundError("t"), 3),
        (RecordNotFoundError("t", (1,)), 3),
        (BackendNotFoundError("no backend"), 3),
        (TransactionConflictError("lost"), 4),
        (StorageUnavailableError("gone"), 4),
        (RecordExistsError("t", (1,)), 1),
        (InvalidFieldError("t", "f", "wrong"), 1),
        (CommitOutcomeUnknownError("who knows"), 1),
        (DataCorruptionError("bad"), 1),
        (errors.UsageProblem("wrong"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    message, found = explain_error(error)
    assert found == code
    assert message == (str(error) or "interrupted")


def test_exit_codes_are_documented() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert [code for code in ExitCode if f"| {code.value} |" not in text] == []


def test_operating_system_errors_name_the_file() -> None:
    assert explain_error(OSError(28, "No space left on device", "/x/y"))[0] == "/x/y: No space left on device"


def test_an_unforeseen_error_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, fails: Fails, url: str, structable: Command
) -> None:
    def broken(url: str) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(tables, "open_store", broken)
    message = fails(1, "tables", url)
    assert message == "unexpected ZeroDivisionError: by zero; STRUCTABLE_DEBUG=1 shows the traceback"


def test_messages_are_one_harmless_line() -> None:
    assert one_line("a\n  b\x1b[2J\r\n\ud800") == "a b\\x1b[2J \\ud800"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("db://u:geheim@host/x", "cannot reach db://u:geheim@host/x as u with geheim"),
        ("db://u:ge%20heim@host/x", "login of u with 'ge heim' (ge%20heim) failed"),
        ("db://u:ge@he:im@host/x", "password ge@he:im is wrong"),
        ("db://host/x?password=geheim&a=1", "option password=geheim of db://host/x?password=geheim&a=1"),
        ("db://u:geheim@host/x/y@z", "geheim"),
    ],
)
def test_secrets_are_masked_whatever_repeats_them(url: str, message: str) -> None:
    shown = without_secrets(message, [url, "no url", ""])
    assert "heim" not in shown
    assert "***" in shown


def test_a_user_without_a_password_stays_readable() -> None:
    message = "cannot connect to db://me@host/x?password=***"
    assert without_secrets(message, ["db://me@host/x?password=geheim"]) == message


@pytest.mark.parametrize("place", ["argument", "environment"])
def test_secrets_do_not_reach_the_output(
    fails: Fails, monkeypatch: pytest.MonkeyPatch, place: str, structable: Command
) -> None:
    url = "nosuch://me:geheim@host/x?token=geheim"
    if place == "environment":
        monkeypatch.setenv("STRUCTABLE_URL", url)
    args = [url] if place == "argument" else []
    assert "geheim" not in fails(3, "tables", *args)
    outcome = structable("doctor", *args)
    assert outcome.code == 1
    assert "geheim" not in outcome.out + outcome.err
    assert "geheim" not in fails(2, "tables", "me:geheim@host")
    assert "eim" not in fails(2, "tables", "nosuch://me:geh/eim@host")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["scan"], "no store is given: name its URL first, as in 'structable scan scheme://place', or set STRUCT"),
        (["scan", "runs"], "no store is given"),
        (["scan", "memory://x"], "missing argument 'TABLE'; 'structable scan --help' shows the usage"),
        (["scan", "memory://x", "a", "b"], "unexpected extra argument(s) (b)"),
        (["skan"], "no such command 'skan'"),
        (["scan", "--nope"], "no such option: --nope"),
        (["scan", "memory://x", "t", "--limit"], "option '--limit' requires an argument"),
        (["tables", "memory://x?nope=1"], "backend 'memory' has no option 'nope'; it knows"),
    ],
)
def test_usage_errors(fails: Fails, args: list[str], message: str) -> None:
    assert message in fails(2, *args)


def test_the_environment_names_the_store(structable: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRUCTABLE_URL", url)
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert({"app": "http://x", "started": 1, "attempt": 1})
        assert structable("tables").out == "runs\n"
        assert structable("count", "runs").out == "1\n"
        assert structable("count", "--where", "attempt == 1", "runs").out == "1\n"
        assert structable("count", url, "runs").out == "1\n"
        assert structable("get", "runs", "http://x", 1, 1).code == 0


def test_an_environment_without_a_url(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRUCTABLE_URL", "/data")
    assert "STRUCTABLE_URL is '/data', which is not a storage URL" in fails(2, "tables")


def test_help_and_version(structable: Command) -> None:
    assert "structable" in structable("--version").out
    for args in (["--help"], [], ["scan", "-h"], ["import", "--help"]):
        outcome = structable(*args)
        assert (outcome.code, outcome.err) == (0, "")
        assert "Usage: structable" in outcome.out


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a store on disk with 20,000 rows, which no test changes."""
    url = f"leveldb://{tmp_path_factory.mktemp('database')}?durability=process"
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many(
            {"app": "x" * 50, "started": number, "attempt": 1, "status": "é"} for number in range(20_000)
        )
    return url


def test_a_process_of_its_own(process: Command, database: str) -> None:
    assert process("count", database, "runs") == Outcome(0, "20000\n", "")
    assert (
        process("scan", database, "runs", "--columns", "status", "--limit", 1, "--format", "csv").out == "status\né\n"
    )
    outcome = process("scan", database, "nothing")
    assert outcome == Outcome(3, "", "structable: table 'nothing' does not exist\n")


@pytest.mark.parametrize("format_", ["csv", "table", "arrow"])
def test_a_reader_that_leaves_is_no_error(database: str, format_: str) -> None:
    command = [
        sys.executable,
        "-m",
        "structable.cli",
        "scan",
        database,
        "runs",
        "--format",
        format_,
        "--limit",
        "20000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == ExitCode.READER_GONE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "args",
    [
        ("scan", "runs", "--limit", "1"),
        ("count", "runs"),
        ("export", "runs", "-", "--format", "parquet"),
    ],
)
def test_a_full_disk_behind_standard_output(database: str, args: tuple[str, ...]) -> None:
    command, *rest = args
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "structable.cli", command, database, *rest],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.decode() == "structable: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_full_disk_behind_a_file(process: Command, database: str, format_: str) -> None:
    outcome = process("export", database, "runs", "/dev/full", "--format", format_)
    assert outcome == Outcome(1, "", "structable: /dev/full: No space left on device\n")


def test_interruption_leaves_no_traceback_and_no_file(database: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "structable.cli", "import", database, "runs", str(pipe)]
    # Whoever runs in a shell's background ignores interrupts, and so would the child.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    # Opened for both, it needs no reader yet, and the reader sees no end.
    with running, open(os.open(pipe, os.O_RDWR), "wb", buffering=0) as stream:
        stream.write(b"app,started,attempt\n")
        while running.poll() is None and _unread(stream.fileno()):
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"structable: interrupted\n")


def _unread(descriptor: int) -> int:
    buffer = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, buffer)
    return buffer[0]


def test_a_terminal_that_cannot_show_the_data(database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "structable.cli", "scan", database, "runs", "--columns", "status", "--limit", "1"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert b"\\xe9" in done.stdout
