"""A plan's snapshot is freed once, when its hold ends, and by the process that took it."""

import subprocess
import sys
from pathlib import Path

from structable.spi import SnapshotHold


def test_frees_the_snapshot_once() -> None:
    released: list[str] = []
    hold = SnapshotHold(lambda: released.append("released"))
    assert not hold.closed
    hold.close()
    hold.close()
    del hold
    assert released == ["released"]


def test_frees_the_snapshot_when_nobody_refers_to_it() -> None:
    released: list[str] = []
    hold = SnapshotHold(lambda: released.append("released"))
    del hold
    assert released == ["released"]


def test_forked_process_does_not_free_its_parents_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    code = f"""
import os, pathlib, sys
from structable.spi import SnapshotHold
snapshot = pathlib.Path({str(snapshot)!r})
snapshot.touch()
hold = SnapshotHold(snapshot.unlink)
other = SnapshotHold(snapshot.unlink)
child = os.fork()
if child == 0:
    hold.close()
    del hold
    sys.exit()  # with the finalizers of an ordinary end
assert os.waitpid(child, 0)[1] == 0
assert snapshot.exists()
hold.close()
assert not snapshot.exists()
snapshot.touch()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not snapshot.exists()
