"""Runners that are killed at the boundaries of batches and inside them: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import random
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
from tests.migrations.support.programs import UP, Process, models_of, require_rows

ROOT = Path(__file__).parents[2]
ROWS = 130
MANY = int(os.environ.get("STRUCTABLE_TEST_MIGRATED_ROWS", "600"))
KILLS = int(os.environ.get("STRUCTABLE_TEST_MIGRATION_KILLS", "2"))
SEED = int(os.environ.get("STRUCTABLE_TEST_SEED", "7"))


def run_killed(url: str, scripts: Scripts, rows: int, batch: int, place: str) -> bool:
    """Run migrations in a process that kills itself; return whether it came to that."""
    command = [sys.executable, "-m", "tests.migrations.support.killed", url, str(scripts.path)]
    command += [str(rows), str(batch), place]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


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
                killed += run_killed(url, scripts, 20, batch, place)
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


@pytest.mark.long
@pytest.mark.parametrize(
    "store", ["leveldb", "postgresql", pytest.param("hbase", marks=pytest.mark.xdist_group("datasets_on_hbase"))]
)
def test_killed_while_two_versions_write(
    store: str, scripts: Scripts, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(SEED)
    with url_of(store, tmp_path, request) as url, connect(url) as storage:
        models = models_of(put_runs(storage, MANY), 3)
        scripts.add("new", up=UP)
        size = max(20, min(2_000, MANY // (5 * KILLS)))
        killed = 0
        with Process(url, models[0], "attempts", SEED), Process(url, models[1], "attempts", SEED + 1):
            killed += run_killed(url, scripts, size, 1, "inside")  # the revision is expanded
            with Process(url, models[2], "tries", SEED + 2):
                for _ in range(KILLS - 1):
                    killed += run_killed(url, scripts, size, dice.randint(1, 12), dice.choice(PLACES))
                migrator = Migrator(storage, scripts.path, monotonic=fast)
                migrator.up()
        assert killed == KILLS, migrator.status()
        assert migrator.status()[0].state is State.READY
        require_rows(storage, models, "attempts", "tries")
        migrator.contract(1)
        require_rows(storage, models, "tries")
