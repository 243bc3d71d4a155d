"""Full disks, folders of other users, damaged files."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import plyvel
import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.native.format import FORMAT_VERSION
from structable.spi import DataCorruptionError, StorageUnavailableError
from tests.waiting import until

from .support.engines import key, open_engine, put, read_all
from .support.processes import Process


def fill_by_commits(engine: LevelDBEngine) -> dict[bytes, bytes]:
    """Commit until it fails; return the number of acknowledged commits."""
    acknowledged: dict[bytes, bytes] = {}
    for number in range(10_000):
        value = os.urandom(50_000)
        try:
            put(engine, number, value)
        except StorageUnavailableError:
            return acknowledged
        acknowledged[key(number)] = value
    raise AssertionError("the disk was never full")


def succeeds(engine: LevelDBEngine) -> bool:
    try:
        put(engine, "healed", b"yes")
    except StorageUnavailableError:
        return False
    return True


@pytest.mark.parametrize("sync", [False, True])
def test_disk_full_loses_nothing_and_heals(small_disk: Path, sync: bool) -> None:
    engine = open_engine(small_disk / "store", sync=sync)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8_000_000))
    acknowledged = fill_by_commits(engine)
    assert acknowledged
    assert read_all(engine) == acknowledged, "reads go on while the disk is full"
    with pytest.raises(StorageUnavailableError, match="cannot be written"):
        put(engine, "more", bytes(50_000))
    assert read_all(engine) == acknowledged
    ballast.unlink()
    until(lambda: succeeds(engine))
    acknowledged[key("healed")] = b"yes"
    assert read_all(engine) == acknowledged
    engine.close()
    again = open_engine(small_disk / "store")
    assert read_all(again) == acknowledged
    again.close()


def test_process_killed_on_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """Refused writes do not come back, either."""
    process = Process(
        """
engine = open_engine(folder)
number = 0
try:
    while True:
        put(engine, number, os.urandom(50_000))
        number += 1
except StorageUnavailableError as error:
    send(number)
receive()
""",
        small_disk / "store",
    )
    count = int(process.receive())
    process.close()
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    engine = open_engine(small_disk / "store")
    assert set(read_all(engine)) == {key(number) for number in range(count)}
    engine.close()


def test_file_size_limit_loses_nothing(folder: Path, run: Callable[[str], Process]) -> None:
    process = run(
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
engine = open_engine(folder)
done = []
refused = 0
for number in range(40):
    try:
        put(engine, number, os.urandom(20_000))
        done.append(key(number))
    except StorageUnavailableError:
        refused += 1
        time.sleep(0.25)
assert sorted(read_all(engine)) == sorted(done), (len(read_all(engine)), len(done))
send(len(done), refused)
engine.close()
send("closed")
"""
    )
    done, refused = map(int, process.receive().split())
    assert done > 15
    assert refused
    assert process.receive() == "closed"
    engine = open_engine(folder)
    assert len(read_all(engine)) == done
    engine.close()


def test_interruption_after_a_failed_write_loses_nothing(folder: Path, run: Callable[[str], Process]) -> None:
    process = run(
        """
import shutil
from structable.backends.leveldb.native import database

WRITES = {database.Database.put.__code__, database.Database.write.__code__}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

class Interruption(BaseException):
    pass

interrupted = 0
for at in range(1, 100):
    place = folder / str(at)
    engine = open_engine(place)
    put(engine, "before", b"")
    calls = 0
    failed = False

    def trace(frame, event, _):
        global calls, failed
        if event == "call" and failed:
            calls += 1
            if calls == at:
                raise Interruption
        failed = failed or event == "exception" and frame.f_code in WRITES
        return trace

    log = max((place / "database").glob("*.log"), key=lambda path: path.stat().st_mtime)
    limit_files(log.stat().st_size + 40)
    sys.settrace(trace)
    try:
        put(engine, "failed", bytes(300))
    except (Interruption, StorageUnavailableError):
        pass
    sys.settrace(None)
    limit_files(resource.RLIM_INFINITY)
    assert failed
    for number in range(3):
        put(engine, number, b"")
    shutil.copytree(place, folder / f"{at} crashed", ignore=shutil.ignore_patterns("*sock*"))
    engine.close()
    copy = open_engine(folder / f"{at} crashed")
    assert {key("before"), key(0), key(1), key(2)} <= set(read_all(copy)), at
    copy.close()
    if calls < at:
        break
    interrupted += 1
send(interrupted)
"""
    )
    assert int(process.receive()) > 3


def test_read_only_file_system(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with_store = place / "store"
    engine = open_engine(with_store)
    put(engine, "a", b"1")
    engine.close()
    mounted = subprocess.run(["mount", "--bind", place, place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        for folder in (with_store, place / "new"):
            with pytest.raises(StorageUnavailableError, match="Read-only file system"):
                open_engine(folder)
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    engine = open_engine(with_store)
    assert engine.get(key("a")) == b"1"
    engine.close()


def test_folder_of_another_user(folder: Path, run: Callable[[str], Process]) -> None:
    if os.getuid():
        pytest.skip("only root can become another user")
    folder.mkdir()
    folder.chmod(0o755)
    for parent in list(folder.parents)[:3]:
        parent.chmod(0o755)
    process = run(
        """
os.setuid(65534)
try:
    open_engine(folder)
except StorageUnavailableError as error:
    send(error)
"""
    )
    assert re.search("Permission denied|belongs to user 0", process.receive())
    assert os.listdir(folder) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(StorageUnavailableError, match="file"):
            open_engine(path)
    assert (tmp_path / "file").read_text() == "hello"


def test_foreign_files_are_refused_and_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(DataCorruptionError, match=r"letter\.txt"):
        open_engine(folder)
    assert os.listdir(folder) == ["letter.txt"]


def test_foreign_file_beside_a_database_does_no_harm(folder: Path) -> None:
    engine = open_engine(folder)
    put(engine, "a", b"1")
    engine.close()
    (folder / "letter.txt").write_text("dear")
    (folder / "database" / "letter.txt").write_text("dear")
    engine = open_engine(folder)
    assert engine.get(key("a")) == b"1"
    engine.close()


def test_foreign_leveldb_is_refused(folder: Path) -> None:
    database = plyvel.DB(str(folder), create_if_missing=True)
    database.put(b"theirs", b"1")
    database.close()
    before = sorted(os.listdir(folder))
    with pytest.raises(DataCorruptionError, match="not structable's"):
        open_engine(folder)
    assert sorted(os.listdir(folder)) == before


def test_foreign_leveldb_in_our_place_is_refused(folder: Path) -> None:
    (folder / "database").mkdir(parents=True)
    database = plyvel.DB(str(folder / "database"), create_if_missing=True)
    database.put(b"theirs", b"1")
    database.close()
    with pytest.raises(DataCorruptionError, match="not structable's"):
        open_engine(folder)


def test_newer_format_is_refused(folder: Path) -> None:
    engine = open_engine(folder)
    put(engine, "a", b"1")
    engine.close()
    database = plyvel.DB(str(folder / "database"))
    database.put(b"\x00\x00\x00\x00\x00\x01format", b"structable %d" % (FORMAT_VERSION + 1))
    database.close()
    with pytest.raises(DataCorruptionError, match="newer"):
        open_engine(folder)


def test_database_that_another_program_has_open(folder: Path, run: Callable[[str], Process]) -> None:
    open_engine(folder).close()
    process = run('import plyvel; database = plyvel.DB(str(folder / "database")); send("open"); receive()')
    assert process.receive() == "open"
    with pytest.raises(StorageUnavailableError, match="another program"):
        open_engine(folder)
    process.close()
    open_engine(folder).close()


def newest(folder: Path, pattern: str) -> Path:
    return max((folder / "database").glob(pattern), key=lambda path: path.name)


def test_torn_log_after_a_crash_loses_the_torn_record_alone(folder: Path, run: Callable[[str], Process]) -> None:
    process = run(
        'engine = open_engine(folder)\nfor n in range(10): put(engine, n, b"x" * 100)\nsend("ready"); receive()'
    )
    assert process.receive() == "ready"
    process.close()
    log = newest(folder, "*.log")
    os.truncate(log, log.stat().st_size - 50)
    engine = open_engine(folder)
    assert set(read_all(engine)) == {key(number) for number in range(9)}
    engine.close()


def test_log_cut_off_after_an_orderly_close_is_noticed(folder: Path) -> None:
    engine = open_engine(folder)
    for number in range(10):
        put(engine, number, b"x" * 100)
    engine.close()
    log = newest(folder, "*.log")
    os.truncate(log, log.stat().st_size - 50)
    with pytest.raises(DataCorruptionError, match="was cut off"):
        open_engine(folder)


def test_damage_inside_the_log_is_noticed(folder: Path) -> None:
    engine = open_engine(folder)
    for number in range(10):
        put(engine, number, b"x" * 100)
    engine.close()
    log = newest(folder, "*.log")
    content = bytearray(log.read_bytes())
    content[300] ^= 255
    log.write_bytes(content)
    with pytest.raises(DataCorruptionError, match="damaged"):
        open_engine(folder)


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "gone"])
def test_damaged_or_lost_files_are_noticed(
    folder: Path, run: Callable[[str], Process], pattern: str, damage: str
) -> None:
    """Also after a crash, without a note of the right sizes and checksums."""
    process = run('engine = open_engine(folder)\nput(engine, 1, b"x")\nsend("ready"); receive()')
    assert process.receive() == "ready"
    process.close()
    path = newest(folder, pattern)
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(b"")
    else:
        path.write_bytes(os.urandom(path.stat().st_size))
    with pytest.raises(DataCorruptionError):
        open_engine(folder)


@pytest.mark.parametrize("damage", ["garbage", "gone"])
def test_damaged_table_file_is_noticed(folder: Path, damage: str) -> None:
    engine = open_engine(folder)
    for number in range(2_000):
        put(engine, number, os.urandom(100))
    engine.close()
    open_engine(folder).close()  # moves the log's rows to a table file
    path = newest(folder, "*.ldb")
    if damage == "gone":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[1_000:90_000] = os.urandom(89_000)
        path.write_bytes(content)
    with pytest.raises(DataCorruptionError):
        read_all(open_engine(folder))


def test_everything_is_open_to_its_user_alone(folder: Path) -> None:
    engine = open_engine(folder / "below")
    for path in (folder, folder / "below", *(folder / "below").iterdir()):
        mode = path.lstat().st_mode
        private = stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)
        assert not private or not mode & 0o077, path
    engine.close()
    assert not (folder / "below" / "socket").exists()
