"""What is different on a terminal: a question, a progress bar, and no binary data."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import connect
from tests.cli.samples import RUNS, RUNS_ROWS

OnTerminal = Callable[..., tuple[int, str]]


@pytest.fixture
def on_terminal() -> OnTerminal:
    """Run the command on a terminal of its own; type something once it has asked."""

    def run(*args: object, typed: bytes = b"") -> tuple[int, str]:
        ours, theirs = pty.openpty()
        running = subprocess.Popen(
            [sys.executable, "-m", "structable.cli", *(str(arg) for arg in args)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1"},
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


def test_drop_asks(on_terminal: OnTerminal, database: str) -> None:
    code, shown = on_terminal("drop", database, "runs", typed=b"n\n")
    assert code == 1
    assert "Drop table runs with all its rows? [y/N] n" in shown
    assert shown.endswith("structable: table 'runs' is kept\r\n")
    code, shown = on_terminal("drop", database, "runs", typed=b"y\n")
    assert code == 0
    assert shown.endswith("table runs is dropped\r\n")


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
        "structable: arrow is binary and not for a terminal: give --output, or redirect the output\r\n",
    )
