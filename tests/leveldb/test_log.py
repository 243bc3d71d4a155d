"""LevelDB's log: torn ends are cut off, other damage never."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.native.logs import log_files, records, roll_back, sync_logs
from structable.backends.leveldb.native.manifest import manifest_state
from structable.backends.leveldb.owner import database_handle
from structable.spi import DataCorruptionError, Field, StoreNotFoundError, TableSpecification, connect

from .support.engines import key, open_engine, put, read_all
from .support.processes import Process

BLOCK = 32768


def crashed(run: Callable[[str], Process], sizes: list[int], *, sync: bool = True) -> None:
    """Leave a log with one record of each size, as a killed process does."""
    script = f"engine = open_engine(folder, sync={sync})\nfor n, s in enumerate({sizes}): put(engine, n, b'x' * s)"
    process = run(script + "\nsend(1); receive()")
    assert process.receive() == "1"
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


@pytest.mark.parametrize("size", [20_000, 100_000])
@pytest.mark.parametrize("page", range(1, 4))
def test_any_page_of_the_last_record_may_be_a_hole(
    folder: Path, run: Callable[[str], Process], size: int, page: int
) -> None:
    crashed(run, [100, size])
    [log] = log_files(folder / "database")
    with open(log, "r+b") as file:
        file.seek(log.stat().st_size // 4096 * 4096 - page * 4096)
        file.write(bytes(4096))
    for _ in range(2):
        engine = open_engine(folder)
        assert set(read_all(engine)) == {key(0)}
        engine.close()


def test_garbage_of_many_headers_is_read_once(folder: Path, run: Callable[[str], Process]) -> None:
    """A record may begin at each of them: following each must not copy the rest of the log."""
    crashed(run, [100, 100])
    [log] = log_files(folder / "database")
    first_part = bytes(6) + b"\x02"
    block = (first_part * (BLOCK // len(first_part))).ljust(BLOCK, b"\0")
    content = log.read_bytes()
    left = BLOCK - len(content)
    log.write_bytes(content + (first_part * (left // len(first_part))).ljust(left, b"\0") + 255 * block)
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_hole_that_ends_with_a_block_hides_no_records(folder: Path, run: Callable[[str], Process]) -> None:
    """LevelDB takes zeros where a record should begin for the end of a block."""
    crashed(run, [100] * 1_000)
    [log] = log_files(folder / "database")
    begin = next(start for start, _, _ in records(log.read_bytes()) if start > BLOCK - 8192)
    with open(log, "r+b") as file:
        file.seek(begin)
        file.write(bytes(BLOCK - begin))
    with pytest.raises(DataCorruptionError, match=rf"damaged at byte {begin:,}"):
        open_engine(folder)


def test_commits_that_were_not_synced_end_at_the_first_gap(folder: Path, run: Callable[[str], Process]) -> None:
    crashed(run, [*[100] * 10, 5 * BLOCK, *[100] * 10], sync=False)
    [log] = log_files(folder / "database")
    with open(log, "r+b") as file:
        file.seek(2 * BLOCK)
        file.write(bytes(4096))
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(number) for number in range(10)}
    put(engine, "new", b"1")
    engine.close()
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(number) for number in (*range(10), "new")}
    engine.close()


def test_torn_edit_of_the_manifest(folder: Path, run: Callable[[str], Process]) -> None:
    """A manifest is synced after each edit: the last one counts only if it is whole."""
    crashed(run, [100, 100])
    manifest = folder / "database" / (folder / "database" / "CURRENT").read_text().strip()
    with open(manifest, "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\1\2\3\4\5\0\1torn")
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_creation_that_was_cut_short_begins_anew(folder: Path) -> None:
    (folder / "database").mkdir(parents=True)
    (folder / "creating").touch()
    for name in ("CURRENT", "MANIFEST-000001", "000003.log", "LOG"):
        (folder / "database" / name).write_bytes(b"half")
    with pytest.raises(StoreNotFoundError):
        connect(f"leveldb://{folder}", create=False)
    engine = open_engine(folder)
    put(engine, 1, b"x")
    engine.close()
    assert not (folder / "creating").exists()
    with connect(f"leveldb://{folder}", create=False):
        pass


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


@pytest.mark.parametrize("torn", [0, 1, 40_000])
def test_rollback_cuts_the_failed_batch_alone(folder: Path, run: Callable[[str], Process], torn: int) -> None:
    crashed(run, [100, 60_000, 50_000])
    database = folder / "database"
    [log] = log_files(database)
    if torn:
        os.truncate(log, log.stat().st_size - torn)
    roll_back(database, [{key(2): b"x" * 50_000}], is_state=False)
    roll_back(database, [{key(7): b"never written"}], is_state=False)
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(0), key(1)}
    engine.close()


def test_rollback_leaves_an_equal_commit_before(folder: Path, run: Callable[[str], Process]) -> None:
    crashed(run, [100, 100])
    roll_back(folder / "database", [{key(1): b"x" * 100}], is_state=True)
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
    assert {f"{table:06}.ldb" for table in manifest_state((database / manifest).read_bytes()).tables} == {
        path.name for path in database.glob("*.ldb")
    }


def test_a_synced_commit_syncs_earlier_unsynced_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB syncs its newest log alone: a crash that tears an earlier one must not take a synced commit with it."""
    synced: list[Path] = []

    def sync(path: Path) -> None:
        synced.append(path)
        sync_logs(path)

    monkeypatch.setattr(database_handle, "sync_logs", sync)
    spec = TableSpecification("t", [Field.long("k"), Field.long("n")], ["k"])
    url = f"leveldb://{tmp_path}/store"
    with connect(url, durability="process") as fast, connect(url, durability="machine") as safe:
        safe.admin.create(spec)
        safe.table("t").upsert({"k": 0, "n": 0})
        synced.clear()
        safe.table("t").upsert({"k": 0, "n": 1})
        assert not synced, "there was nothing to sync"
        for number in range(1, 4):
            fast.table("t").upsert({"k": number, "n": 0})
            safe.table("t").increment((number,), "n")
            assert len(synced) == number
            safe.table("t").upsert({"k": number, "n": 2})
            assert len(synced) == number
