"""LevelDB's log: what is cut off it, and what is never."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.log import cut_torn_tail, live_tables, log_files, retract
from structable.spi.errors import DataCorruptionError

from .support import Process, key, open_engine, put, read_all

BLOCK = 32768


def crashed(run: Callable[[str], Process], sizes: list[int]) -> None:
    """Leave a log with one record of each size, as a killed process does."""
    process = run(
        f'engine = open_engine(folder)\nfor n, s in enumerate({sizes}): put(engine, n, b"x" * s)\nsay(1); hear()'
    )
    assert process.hear() == "1"
    process.close()


def test_hole_in_the_last_record_is_a_torn_write(folder: Path, run: Callable[[str], Process]) -> None:
    """A machine that crashed while the record was written: its end has arrived, its middle has not."""
    crashed(run, [100, 100, 5 * BLOCK])
    [log] = log_files(folder / "database")
    with open(log, "r+b") as file:
        file.seek(2 * BLOCK)
        file.write(bytes(BLOCK))
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_hole_before_other_records_is_damage(folder: Path, run: Callable[[str], Process]) -> None:
    crashed(run, [100, 5 * BLOCK, *[10_000] * 10])
    [log] = log_files(folder / "database")
    with open(log, "r+b") as file:
        file.seek(2 * BLOCK)
        file.write(bytes(BLOCK))
    before = log.read_bytes()
    with pytest.raises(DataCorruptionError):
        open_engine(folder)
    assert log.read_bytes() == before
    assert not cut_torn_tail(folder / "database")


@pytest.mark.parametrize("torn", [0, 1, 40_000])
def test_retract_cuts_the_failed_batch_alone(folder: Path, run: Callable[[str], Process], torn: int) -> None:
    crashed(run, [100, 60_000, 50_000])
    database = folder / "database"
    [log] = log_files(database)
    if torn:
        os.truncate(log, log.stat().st_size - torn)
    retract(database, [{key(2): b"x" * 50_000}], is_state=False)
    retract(database, [{key(7): b"never written"}], is_state=False)
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_retract_leaves_an_equal_commit_before(folder: Path, run: Callable[[str], Process]) -> None:
    crashed(run, [100, 100])
    retract(folder / "database", [{key(1): b"x" * 100}], is_state=True)
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_manifest_names_the_tables(folder: Path) -> None:
    for turn in range(3):
        engine = open_engine(folder)
        for number in range(500):
            put(engine, f"{turn}-{number}", os.urandom(50))
        engine.close()
    open_engine(folder).close()
    database = folder / "database"
    manifest = (database / "CURRENT").read_text().strip()
    assert {f"{table:06}.ldb" for table in live_tables((database / manifest).read_bytes())} == {
        path.name for path in database.glob("*.ldb")
    }
