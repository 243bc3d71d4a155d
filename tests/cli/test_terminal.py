"""What is different on a terminal: a question, a progress bar, and no binary data."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import connect
from tests.cli.support.samples import RUNS, RUNS_ROWS

OnTerminal = Callable[..., tuple[int, str]]


@pytest.fixture
def on_terminal() -> OnTerminal:
    """Run the command on a pseudo-terminal; type a reply once it has asked."""

    def run(*args: object, typed: bytes = b"") -> tuple[int, str]:
        ours, theirs = pty.openpty()
        running = subprocess.Popen(
            [sys.executable, "-m", "structable.cli", *(str(arg) for arg in args)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONUTF8": "1"},
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                break
            if not read:
                break
            shown += read
            if typed and b"[y/N] " in shown:
                os.write(ours, typed)
                typed = b""
        os.close(ours)
        return running.wait(60), shown.decode()

    return run


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Return the URL of a store on disk with some rows."""
    url = f"leveldb://{tmp_path}/database?durability=process"
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many(RUNS_ROWS)
    return url


@pytest.mark.parametrize(
    ("action", "args"),
    [
        ("drop", ("drop", "runs")),
        ("empty", ("delete", "runs", "--all")),
        ("overwrite", ("import", "runs", "x.csv", "--mode", "overwrite")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_destructive_commands_ask_first(
    on_terminal: OnTerminal, database: str, tmp_path: Path, action: str, args: tuple[str, ...]
) -> None:
    (tmp_path / "x.csv").write_text("app,started,attempt\na,1,1\n")
    command, table, *rest = [str(tmp_path / arg) if arg == "x.csv" else arg for arg in args]
    named = f"table runs with 4 rows in {database}"
    code, shown = on_terminal(command, database, table, *rest, typed=b"n\n")
    assert code == 1
    assert f"{action.capitalize()} {named}? [y/N] n" in shown
    assert shown.endswith(f"structable: {named} is kept\r\n")
    with connect(database) as storage:
        assert storage.table("runs").count() == 4
    assert on_terminal(command, database, table, *rest, typed=b"y\n")[0] == 0
    with connect(database) as storage:
        assert not storage.admin.exists("runs") or storage.table("runs").count() < 2


def test_rows_that_do_not_fit_are_shown_field_by_field(on_terminal: OnTerminal, database: str) -> None:
    with connect(database) as storage:
        storage.table("runs").upsert({"app": "wide", "started": 1, "attempt": 1, "status": "x" * 90})
    code, shown = on_terminal("scan", database, "runs")
    assert code == 0
    lines = shown.splitlines()
    assert "row 1" in lines[0]
    assert max(len(line) for line in lines) <= 80 + len("\x1b[2;3m\x1b[0m")
    assert "".join(line.split()[-1] for line in lines if "xxx" in line) == "x" * 90
    assert "started" in on_terminal("scan", database, "runs", "--prefix", "web")[1].splitlines()[0]


def test_copy_shows_its_progress(on_terminal: OnTerminal, database: str, tmp_path: Path) -> None:
    code, shown = on_terminal("copy", database, f"leveldb://{tmp_path}/copy?durability=process")
    assert code == 0
    assert "copy runs (1/1)" in shown
    assert "4 rows are copied" in shown


def test_export_shows_its_progress(on_terminal: OnTerminal, database: str, tmp_path: Path) -> None:
    code, shown = on_terminal("export", database, "runs", tmp_path / "x.parquet")
    assert code == 0
    assert "export runs" in shown
    assert "4 rows of table runs are in" in shown


def test_import_shows_its_progress(on_terminal: OnTerminal, database: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("app,started,attempt\na,1,1\n")
    code, shown = on_terminal("import", database, "runs", tmp_path / "x.csv")
    assert code == 0
    assert "import runs" in shown
    assert "100%" in shown


def test_binary_data_is_not_for_a_terminal(on_terminal: OnTerminal, database: str) -> None:
    assert on_terminal("scan", database, "runs", "--format", "arrow") == (
        2,
        "structable: arrow is binary and cannot be shown on a terminal; give --output, or redirect the output\r\n",
    )
