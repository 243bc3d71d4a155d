"""Runners that are killed at the boundaries of batches and inside them: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structable.migrations import Migrator, State
from structable.spi import connect
from tests.datasets.support.stores import url_of
from tests.migrations.support.clocks import fast
from tests.migrations.support.folders import Scripts, put_runs
from tests.migrations.support.killed import PLACES

ROOT = Path(__file__).parents[2]
ROWS = 130


@pytest.mark.long
@pytest.mark.parametrize("store", ["leveldb", "postgresql"])
def test_killed_at_each_batch(store: str, scripts: Scripts, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with url_of(store, tmp_path, request) as url:
        with connect(url) as storage:
            put_runs(storage, ROWS)
        module = scripts.function("""
        def count(row):
            return {"attempts": row["attempts"] + 10} if row["attempts"] < 10 else None
        """)
        scripts.add(
            "all",
            up=f"""
            op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")
            op.add_index("runs", "n")
            op.rewrite("runs", "{module}:count")
            """,
        )
        killed = 0
        for batch in range(1, 4):
            for place in PLACES:
                command = [sys.executable, "-m", "tests.migrations.support.killed", url, str(scripts.path)]
                ended = subprocess.run(
                    [*command, str(batch), place], cwd=ROOT, capture_output=True, text=True, check=False
                )
                assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
                killed += ended.returncode != 0
        assert killed >= 3
        with connect(url) as storage:
            migrator = Migrator(storage, scripts.path, monotonic=fast)
            migrator.up()
            [status] = migrator.status()
            assert (status.state, status.seen) == (State.DONE, 2 * ROWS)
            with storage.table("runs").scan() as rows:
                found = {row.run: (row.n, row.attempts) for row in rows}
            wanted = {run: (None if run % 10 == 9 else run, run % 5 + 10) for run in range(ROWS)}
            assert found == wanted
            with storage.table("runs").scan_index("n", 7) as rows:
                assert [row.run for row in rows] == [7]
