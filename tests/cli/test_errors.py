"""Every error is one line without secrets, and an exit code."""

import array
import fcntl
import itertools
import os
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import typer

from structable.cli import main
from structable.cli.app import app
from structable.cli.commands import tables
from structable.cli.commands.examples import EXAMPLES
from structable.cli.language import errors
from structable.cli.language.errors import ExitCode, explain_error, masked, one_line
from structable.spi import (
    BackendNotFoundError,
    CommitOutcomeUnknownError,
    DataCorruptionError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionConflictError,
    connect,
)
from tests.cli.conftest import Command, Fails, Outcome
from tests.cli.support.samples import RUNS
from tests.cli.support.signals import inherited

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
        (InvalidFieldError("t", "f", "wrong"), 2),
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
    def broken(url: str, access: object = None) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(tables, "open_store", broken)
    message = fails(1, "tables", url)
    assert message == "unexpected ZeroDivisionError: by zero; STRUCTABLE_DEBUG=1 shows the traceback"


@pytest.mark.parametrize("outcome", [None, CommitOutcomeUnknownError("who knows")])
def test_an_interrupt_that_a_library_turned_into_an_error(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    fails: Fails,
    url: str,
    outcome: CommitOutcomeUnknownError | None,
) -> None:
    def broken(url: str, access: object = None) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise TypeError("unexpected argument") from outcome

    monkeypatch.setattr(tables, "open_store", broken)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's shell has it ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    if outcome is None:
        assert fails(130, "tables", url) == "interrupted"
    else:
        assert "unexpected TypeError" in fails(1, "tables", url)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_messages_are_one_harmless_line() -> None:
    assert one_line("a\n  b\x1b[2J\r\n\ud800") == "a b\\x1b[2J \\ud800"


PASSWORDS = ["a", "e", "postgres", "db", "u", "host", " ", "%20", "%", "ge%20heim", "ge@he:im", "p'w\"d", "***", "12?3"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("message", ["cannot reach {} as u: a host, an error", "took '{}' for a database", "got ({})"])
def test_passwords_are_masked_in_urls_and_nowhere_else(password: str, message: str) -> None:
    url = f"db://u:{password}@host:9/x"
    shown = masked(message.format(url), ["db://z", url, "no url", ""])
    assert shown == message.format("db://u:***@host:9/x")
    assert masked(message.format(repr(url)[1:-1]), [url]) == message.format("db://u:***@host:9/x")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("at db://u:geheim@host/x, says the driver", "at db://u:***@host/x, says the driver"),
        ("with host=h password=geheim user=u", "with host=h password=*** user=u"),
        ("with password='ge \\' heim' user=u", "with password=*** user=u"),
        (
            "option password=geheim of db://host/x?pass%77ord=geheim&a=1",
            "option password=*** of db://host/x?pass%77ord=***&a=1",
        ),
        ("cannot connect to db://me@host/x?password=***: gone", "cannot connect to db://me@host/x?password=***: gone"),
        (
            "(db://me@host/x?password=***), (db://me@host/x?password=a)",
            "(db://me@host/x?password=***), (db://me@host/x?password=***",
        ),
        ("cannot connect to db://me@host/x?password=***", "cannot connect to db://me@host/x?password=***"),
        ("the password is wrong: use PGPASSWORD", "the password is wrong: use PGPASSWORD"),
        ("table 't' has no row with the key ('mail:a@b',)", "table 't' has no row with the key ('mail:a@b',)"),
    ],
)
def test_passwords_of_urls_of_other_sources(message: str, shown: str) -> None:
    assert masked(message) == shown


@pytest.mark.parametrize("password", ["a", "postgres", "127.0.0.1", "%25"])
def test_no_output_depends_on_the_password(structable: Command, password: str) -> None:
    commands = [
        ["tables", "URL"],
        ["doctor", "URL"],
        ["skan", "URL"],
        ["scan", "URL", "t", "URL"],
        ["tables", "URL?pool_timeout=x"],
        ["tables", "URL?nope=1"],
        ["tables", "URL?password=PASSWORD"],
        ["tables", "URL#x"],
        ["conformance", "URL"],
        ["import", "URL", "t", "URL"],
    ]
    for place in (
        "postgresql://postgres:PASSWORD@127.0.0.1:1/x",
        "hbase://u:PASSWORD@127.0.0.1:1/x",
        "no://u:PASSWORD@h",
    ):
        for command in commands:
            found = set()
            for chosen in (password, "0therwise"):
                filled = [part.replace("URL", place).replace("PASSWORD", chosen) for part in command]
                found.add(structable(*filled))
            assert len(found) == 1, found


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
        (["scan"], "no store is given; name its URL first, as in 'structable scan scheme://place', or set STRUCT"),
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


def test_a_group_without_a_command_shows_its_commands(structable: Command) -> None:
    outcome = structable("migrate")
    assert (outcome.code, "resume" in outcome.out) == (2, True)
    assert outcome.err == "structable: no command is given; 'structable migrate --help' shows the usage\n"


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
    assert "[URL] [TABLE] [FILE]" in structable("import", "--help").out
    assert "{URL1} {URL2} [TABLE]..." in structable("copy", "--help").out
    text = structable("copy", "--help").out
    assert "or not at all. A table that is missing" in " ".join(text.split())
    assert all(len(line.split()) > 4 for line in text.splitlines() if line.rstrip().endswith("A table that"))


def test_every_command_shows_valid_examples(structable: Command) -> None:
    commands = typer.main.get_group(app).commands
    assert sorted(EXAMPLES) == sorted(commands)
    for name, examples in EXAMPLES.items():
        shown = " ".join(structable(name, "--help").out.split())
        for example in examples:
            assert example in shown
            words = shlex.split(example)
            words = words[words.index("structable") + 1 :]
            given = list(itertools.takewhile(lambda word: word not in ("|", "<", ">"), words))
            if given[1:]:
                commands[given[0]].make_context(name, given[1:]).close()


EXIT_CODES = [
    (0, ("count", "URL", "runs")),
    (1, ("put", "URL", "runs", "app=etl", "started=10", "attempt=1", "--mode", "insert")),
    (1, ("export", "URL", "runs", "/nowhere/x.csv")),
    (1, ("create", "URL", "different.toml", "--update")),
    (2, ("scan", "URL", "runs", "--where", "cost >")),
    (2, ("scan", "URL", "runs", "--order-by", "cost")),
    (2, ("scan", "URL", "runs", "--nope")),
    (2, ("put", "URL", "runs", "app=etl")),
    (2, ("import", "URL", "runs", "wrong.csv")),
    (2, ("import", "URL", "runs", "none.csv")),
    (2, ("create", "URL", "wrong.toml")),
    (2, ("drop", "URL", "runs")),
    (2, ("tables", "URL?nope=1")),
    (3, ("count", "URL", "nope")),
    (3, ("get", "URL", "runs", "nobody", "1", "1")),
    (3, ("tables", "URLnope")),
    (3, ("tables", "nosuch://x")),
    (4, ("tables", "postgresql://u@127.0.0.1:1/x")),
]


@pytest.mark.parametrize(("code", "args"), EXIT_CODES)
def test_each_exit_code(
    structable: Command,
    storage: Storage,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    args: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("different.toml").write_text('name = "runs"\nprimary_key = ["app"]\n[fields]\napp = "string"\n')
    Path("wrong.toml").write_text('name = "x"\nprimary_key = ["b"]\n[fields]\na = "int"\n')
    Path("wrong.csv").write_text("app,started,attempt\na,b,c\n")
    outcome = structable(*(arg.replace("URL", url) for arg in args))
    assert outcome.code == code
    assert (outcome.err != "") == (code != 0)
    assert storage.table("runs").count() == 4


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


@pytest.mark.parametrize(
    "command",
    [
        *(("scan", "--limit", "20000", "--format", form) for form in ("csv", "table", "arrow")),
        *(("export", "-", "--format", form) for form in ("csv", "json", "arrow", "parquet")),
    ],
    ids=" ".join,
)
def test_a_reader_that_leaves_is_no_error(database: str, command: tuple[str, ...]) -> None:
    name, *rest = command
    arguments = [sys.executable, "-m", "structable.cli", name, database, "runs", *rest]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10 if name == "scan" else 0)
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


@pytest.mark.parametrize(
    ("closed", "args", "code", "message"),
    [
        ("<&-", ("put", "runs", "--json", "-"), 1, "structable: Bad file descriptor\n"),
        (">&-", ("count", "runs"), 1, "structable: Bad file descriptor\n"),
        ("<&- >&-", ("export", "runs", "x.jsonl"), 0, "20,000 rows of table runs are in x.jsonl\n"),
        ("<&- >&- 2>&-", ("export", "runs", "x.jsonl"), 0, ""),
        ("2>&-", ("count", "nothing"), 3, ""),
    ],
)
def test_standard_streams_that_are_closed(
    database: str, tmp_path: Path, closed: str, args: tuple[str, ...], code: int, message: str
) -> None:
    command, *rest = args
    arguments = [sys.executable, "-m", "structable.cli", command, database, *rest]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *arguments]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (code, "", message)
    if command == "export":
        assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 20_000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_full_disk_behind_a_file(process: Command, database: str, format_: str) -> None:
    outcome = process("export", database, "runs", "/dev/full", "--format", format_)
    assert outcome == Outcome(1, "", "structable: /dev/full: No space left on device\n")


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated"), (signal.SIGHUP, 129, b"hung up")],
)
def test_interruption_leaves_no_traceback_and_no_file(
    database: str, tmp_path: Path, number: signal.Signals, code: int, reason: bytes
) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "structable.cli", "import", database, "runs", str(pipe)]
    with inherited():
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # Opened for reading and writing, it needs no reader yet, and the reader sees no end.
    with running, open(os.open(pipe, os.O_RDWR), "wb", buffering=0) as stream:
        stream.write(b"app,started,attempt\n")
        while running.poll() is None and _unread(stream.fileno()):
            time.sleep(0.02)
        running.send_signal(number)
        try:
            out, err = running.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            # Python looks for signals before it reads: one that came just after that look waits for what is read.
            running.send_signal(number)
            out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (code, b"", b"structable: " + reason + b"\n")


def test_interruption_before_there_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.main, "get_command", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.INTERRUPTED


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
