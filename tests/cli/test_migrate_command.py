"""`structable migrate`: the commands, their output and exit codes."""

import json
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from structable.migrations import Migrator, State
from structable.migrations.errors import MigrationError
from structable.spi import connect
from tests.cli.conftest import Command
from tests.migrations.support.folders import Scripts, put_runs

FILL = 'op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")'


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        put_runs(storage, 40)
    return url


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path / "program")


def test_from_init_to_contract(structable: Command, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "revisions"
    where = ("--folder", folder)
    assert structable("migrate", "init", *where).out == f"folder {folder} is made\n"
    assert structable("migrate", "init", *where).out == f"folder {folder} is there already\n"
    made = structable("migrate", "new", "run_number", *where)
    assert made.out == f"{folder}/0001_run_number.py is written; its operations are for you to write\n"
    script = folder / "0001_run_number.py"
    assert script.read_text().startswith('"""Run number."""\n\n\ndef up(op):\n    # op.create_table, ')
    assert script.read_text().endswith("\n    pass\n")
    script.write_text(f'"""Number."""\ndef up(op):\n    {FILL}\n    op.drop_field("runs", "attempts")\n')
    planned = structable("migrate", "plan", url, *where)
    assert planned.out.splitlines() == [
        "0001 run_number: Number.",
        "  add field runs.n long = json_field(('n',), 'long') of payload "
        "(about 40 rows; waits for open transactions of the table, shortly)",
        "  contract: drop field runs.attempts",
    ]
    rehearsed = structable("migrate", "up", url, "--dry-run", *where)
    assert rehearsed.out.splitlines()[-1].endswith("40 rows computed, 4 of them have no value")
    assert structable("migrate", "status", url, *where).out == "0001 run_number  PENDING\n"
    up = structable("migrate", "up", url, "--threads", "2", *where)
    assert up.code == 0
    assert re.match(r"0001 run_number  READY        20\d\d-\d\d-\d\d   ready   36 of 40", up.out)
    assert up.out.endswith("36 of 40 rows changed, 4 have no value that fits\n")
    assert structable("migrate", "plan", url, *where).out == "nothing to do\n"
    contracted = structable("migrate", "contract", url, "1", *where)
    assert re.match(r"0001 run_number  DONE         20\d\d-\d\d-\d\d   contracted   36 of 40", contracted.out)
    [status] = json.loads(structable("migrate", "status", url, "--format", "json", *where).out)
    assert (status["revision"], status["state"], status["failed"], status["error"]) == (1, "DONE", 4, None)
    assert structable("migrate", "down", url, "0", *where).code == 1
    monkeypatch.setenv("STRUCTABLE_URL", url)
    assert structable("migrate", "contract", "1", *where) == contracted
    assert structable("migrate", "down", *where, "1").code == 0
    assert structable("migrate", "status", *where) == contracted


def test_auto_and_check(structable: Command, url: str, scripts: Scripts) -> None:
    module = scripts.function("""
    from structable.spi import Field, TableSpecification

    SPECIFICATIONS = [TableSpecification("t", [Field.string("k"), Field.int("v")], ["k"], ["v"])]
    """)
    options = ("--target", f"{module}:SPECIFICATIONS", "--folder", scripts.path)
    checked = structable("migrate", "check", url, *options)
    assert (checked.code, checked.out) == (1, "create table t\n")
    assert structable("migrate", "new", "first", url, "--auto", *options).code == 0
    assert structable("migrate", "up", url, "--folder", scripts.path).code == 0
    assert structable("migrate", "check", url, *options) == (0, "nothing differs\n", "")
    again = structable("migrate", "new", "second", url, "--auto", *options, "--format", "json")
    assert (again.code, json.loads(again.out)) == (0, {"file": None})
    assert len(list(scripts.path.iterdir())) == 1
    assert structable("migrate", "new", "third", "--auto", "--folder", scripts.path).code == 2
    sys.modules.pop(module, None)


def test_a_paused_revision(structable: Command, url: str, scripts: Scripts) -> None:
    module = scripts.function("""
    def fail(row):
        raise ValueError("cannot be\\x1b")
    """)
    scripts.add("bad", up=f'op.rewrite("runs", "{module}:fail")')
    failed = structable("migrate", "up", url, "--folder", scripts.path)
    assert failed.code == 1
    assert "table 'runs', row ('app0', 0): ValueError: cannot be\\x1b" in failed.err
    shown = structable("migrate", "status", url, "--folder", scripts.path).out.splitlines()
    assert shown[0].startswith("0001 bad  PAUSED in FILLING 0 %")
    assert shown[1] == "     table 'runs', row ('app0', 0): ValueError: cannot be\\x1b"
    sick = structable("doctor", url)
    assert sick.code == 1
    assert "problem  revision 1: bad is paused: table 'runs', row" in sick.out
    assert structable("migrate", "up", url, "--folder", scripts.path).code == 1
    (scripts.path.parent / f"{module}.py").write_text("def fail(row):\n    return None\n")
    sys.modules.pop(module)
    assert structable("migrate", "resume", url, "--folder", scripts.path).code == 0
    assert structable("migrate", "pause", url, "--folder", scripts.path).out == "no revision is running\n"


def test_an_interrupt_pauses(structable: Command, url: str, scripts: Scripts) -> None:
    scripts.add("number", up=FILL)
    options = ("--folder", str(scripts.path))
    command = [sys.executable, "-m", "structable.cli", "migrate", "up", url, "--rows-per-second", "0.2", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            with connect(url) as storage:
                migrator = Migrator(storage, scripts.path)
                while process.poll() is None and not migrator.status()[0].seen:
                    pass
                process.send_signal(signal.SIGINT)
                assert process.stderr is not None
                assert process.stderr.read() == "structable: interrupted\n"
                assert process.wait() == 130
                [status] = migrator.status()
                assert (status.state, status.resumes, status.error) == (State.PAUSED, State.FILLING, "interrupted")
                assert status.seen == 1  # of 40, which is paid for by waiting
        finally:
            process.kill()
    assert structable("migrate", "resume", url, *options).code == 0
    assert "36 of 40 rows changed" in structable("migrate", "status", url, *options).out


def test_misuse(structable: Command, url: str, tmp_path: Path, scripts: Scripts) -> None:
    absent = structable("migrate", "up", url, "--folder", tmp_path / "none")
    assert (absent.code, absent.out) == (2, "")
    assert "structable migrate init" in absent.err
    (scripts.path / "0002_gap.py").write_text("def up(op): pass\n")
    assert structable("migrate", "status", url, "--folder", scripts.path).code == 2
    assert structable("migrate", "up", "memory://x?unknown=1", "--folder", scripts.path).code == 2
    assert structable("migrate", "status", f"leveldb://{tmp_path}/absent", "--folder", scripts.path).code == 3
    (scripts.path / "0002_gap.py").unlink()
    assert structable("migrate", "up", url, "--to", "7", "--folder", scripts.path).code == 1
    assert structable("migrate", "status", url, "--folder", scripts.path).out == "no revisions\n"
    assert structable("migrate", "new", "Add Region", "--folder", scripts.path).code == 2
    (scripts.path / "0001_exit.py").write_text("import sys\nsys.exit(0)\n")
    exiting = structable("migrate", "up", url, "--folder", scripts.path)
    assert (exiting.code, exiting.err.endswith("0001_exit.py cannot be loaded: SystemExit: 0\n")) == (2, True)
    (scripts.path / "0001_exit.py").unlink()
    target = f"{scripts.function('SPECIFICATIONS = [')}:SPECIFICATIONS"
    broken = structable("migrate", "check", url, "--target", target, "--folder", scripts.path)
    assert (broken.code, broken.out) == (2, "")
    assert "cannot be imported: SyntaxError" in broken.err
    assert structable("migrate", "init", "--folder", next(iter(tmp_path.glob("program/*.py")))).code == 1


@pytest.mark.parametrize("command", ["contract", "down"])
def test_nothing_is_removed_if_the_folder_is_wrong(
    structable: Command, url: str, tmp_path: Path, scripts: Scripts, command: str
) -> None:
    """For a command that says so has done nothing."""
    scripts.add("drop", up='op.drop_field("runs", "attempts")')
    assert structable("migrate", "up", url, "--folder", scripts.path).code == 0
    number = "1" if command == "contract" else "0"
    wrong = structable("migrate", command, url, number, "--folder", tmp_path / "none")
    assert (wrong.code, wrong.out) == (2, "")
    assert "ready" in structable("migrate", "status", url, "--folder", scripts.path).out


def test_a_retired_table_is_said_to_be_kept(structable: Command, url: str, scripts: Scripts) -> None:
    """On standard error, beside JSON too."""
    scripts.add("gone", up='op.drop_table("runs")')
    where = ("--folder", scripts.path, "--format", "json")
    assert structable("migrate", "up", url, *where).code == 0
    contracted = structable("migrate", "contract", url, "1", *where)
    assert "tables that revision 1 drops are kept until" in contracted.err
    assert [one["state"] for one in json.loads(contracted.out)] == ["CONTRACTING"]


def test_a_locked_store_may_be_tried_again(
    structable: Command, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from structable.migrations import MigrationLockedError, migrator

    url = f"memory://{uuid.uuid4().hex}"
    with connect(url):

        class Locked:
            def __init__(self, *args: object) -> None:
                raise MigrationLockedError("host:1", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

        monkeypatch.setattr(migrator, "RunnerLease", Locked)
        locked = structable("migrate", "up", url, "--folder", scripts.path)
    assert locked.code == 4
    assert "host:1 has been running migrations of this store since 2026-01-01 00:00:00 UTC" in locked.err
    assert issubclass(MigrationLockedError, MigrationError)
