"""Several processes on one folder: clients, hand-over, and what a kill at any moment leaves behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.owner.local_route import LocalRoute
from structable.backends.ordered.engine import Increment, ReadSet, SchemaChangedError, WriteSet
from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    StorageUnavailableError,
    TransactionConflictError,
)
from tests.variants import chosen_seed
from tests.waiting import until

from .support.engines import SPACE, key, open_engine, put, read_all
from .support.processes import SERVE, Process

Run = Callable[[str], Process]


def test_client_reads_and_writes_as_the_owner_does(client: LevelDBEngine) -> None:
    rows = {key(f"{number:05}"): os.urandom(number % 300 + 1) for number in range(5_000)}
    client.commit(None, WriteSet(dict(rows)))
    snapshot = client.begin(False)
    names = sorted(rows)
    assert snapshot.get(names[7]) == rows[names[7]]
    assert snapshot.get(key("none")) is None
    assert snapshot.get_many([*names, key("none")]) == [*(rows[name] for name in names), None]
    assert list(snapshot.scan(SPACE, SPACE + b"\xff")) == sorted(rows.items())
    assert list(snapshot.scan(SPACE, SPACE + b"\xff", reverse=True)) == sorted(rows.items(), reverse=True)
    assert list(snapshot.scan(names[10], names[12])) == [(name, rows[name]) for name in names[10:12]]
    assert list(snapshot.scan(names[12], names[10])) == []
    put(client, "00000", b"new")
    assert snapshot.get(names[0]) == rows[names[0]]
    assert client.get(names[0]) == b"new"
    with pytest.raises(TransactionConflictError):
        client.commit(snapshot, WriteSet({names[0]: None}))
    client.close()


def test_large_values_and_many_keys_travel(client: LevelDBEngine) -> None:
    rows = {key(f"{number}"): os.urandom(3_000_000) for number in range(8)}
    client.commit(None, WriteSet(dict(rows)))
    snapshot = client.begin(True)
    assert snapshot.get_many(sorted(rows)) == [rows[name] for name in sorted(rows)]
    assert dict(snapshot.scan(SPACE, SPACE + b"\xff")) == rows
    many = [key("x" * 1_000 + str(number)) for number in range(2_000)]
    assert snapshot.get_many(many) == [None] * 2_000
    client.close()


def test_scan_left_early_frees_its_connection(client: LevelDBEngine) -> None:
    client.commit(None, WriteSet({key(f"{number:05}"): b"x" * 100 for number in range(5_000)}))
    snapshot = client.begin(True)
    for rows in (1, 20, 40, 1_500):
        scan = snapshot.scan(SPACE, SPACE + b"\xff")
        for _ in range(rows):
            next(scan)
        assert snapshot.get(key("00001")) == b"x" * 100, "other reads of the snapshot go on beside it"
        scan.close()  # type: ignore[attr-defined]
    assert isinstance(client.route, Client)
    assert len(client.route.pool.open) <= 3
    client.close()


def test_snapshot_begins_with_the_call_of_scan(client: LevelDBEngine) -> None:
    client.commit(None, WriteSet({key(f"{number:05}"): b"x" for number in range(100)}))
    snapshot = client.begin(True)
    scans = [snapshot.scan(SPACE, SPACE + b"\xff"), snapshot.scan(SPACE, SPACE + b"\xff", reverse=True)]
    dropped = client.begin(True).scan(SPACE, SPACE + b"\xff")
    put(client, "later", b"x")
    assert [len(list(scan)) for scan in scans] == [100, 100]
    del dropped
    route = client.route
    assert isinstance(route, Client)
    assert len(route.pool.idle) == len(route.pool.open) - 1, "all but the anchor are there for others"
    client.close()


def test_write_sets_travel_whole(client: LevelDBEngine) -> None:
    snapshot = client.begin(False)
    assert snapshot.get(key("n")) is None
    client.commit(None, WriteSet(increments={key("n"): (Increment(b"s", "n", 2), Increment(b"s", "m", -7))}))
    assert client.get(key("n")) == b"-5"
    reads = ReadSet({key("q")}, [(key("m"), key("o"))])
    with pytest.raises(TransactionConflictError):
        client.commit(snapshot, WriteSet({key("a"): b"1"}, reads=reads))
    snapshot = client.begin(False)
    assert snapshot.get(key("n")) == b"-5"
    changes = WriteSet({key("a"): b"1", key("n"): None}, derived={key("i"): b"\x00"}, reads=reads, spaces={SPACE})
    client.commit(snapshot, changes)
    assert read_all(client) == {key("a"): b"1", key("i"): b"\x00"}
    client.close()


def test_schema_change_shows_at_once_everywhere(folder: Path, run: Run, client: LevelDBEngine) -> None:
    other = open_engine(folder)
    snapshot, epoch = client.begin(False), client.epoch
    assert snapshot.get(key("a")) is None
    unread = client.begin(False)
    process = run(
        """
engine = open_engine(folder)
engine.commit(None, WriteSet({key("s"): b"1"}, changed_spaces={SPACE}))
send(engine.epoch)
"""
    )
    assert int(process.receive()) == epoch + 1 == client.epoch == other.epoch
    assert client.begin(True).epoch == epoch + 1
    with pytest.raises(TransactionConflictError):
        unread.get(key("a"))
    with pytest.raises(TransactionConflictError):
        client.commit(snapshot, WriteSet({key("a"): b"1"}, spaces={SPACE}))
    assert client.get(key("s")) == b"1"
    client.close()
    other.close()


def test_get_during_a_schema_change_raises(client: LevelDBEngine) -> None:
    route = client.route
    assert isinstance(route, Client)
    route.shared = memoryview(bytearray(16)).cast("Q")
    client.commit(None, WriteSet({key("s"): b"1"}, changed_spaces={SPACE}))
    with pytest.raises(SchemaChangedError):
        client.get(key("s"))
    client.close()


def test_procedures_run_in_the_owner(folder: Path, run: Run) -> None:
    process = run(
        """
engine = make_engine(folder)
def fail(argument):
    raise InvalidFieldError("table", "field", argument.decode())
start(engine, where=lambda argument: argument + str(os.getpid()).encode(), fail=fail)
send(os.getpid())
receive()
"""
    )
    owner = process.receive()
    engine = open_engine(folder)
    assert engine.delegate("where", b"in ") == b"in " + owner.encode()
    with pytest.raises(InvalidFieldError) as caught:
        engine.delegate("fail", b"because")
    assert (caught.value.table, caught.value.field, caught.value.reason) == ("table", "field", "because")
    assert str(caught.value) == "table 'table', field 'field': because"
    engine.close()


def test_long_procedure_outlasts_the_time_out(folder: Path, run: Run) -> None:
    process = run(
        """
engine = make_engine(folder)
def slow(argument):
    time.sleep(2.5)
    return b"done"
start(engine, slow=slow)
send("ready")
receive()
"""
    )
    assert process.receive() == "ready"
    engine = open_engine(folder, request_timeout=1.5)
    assert engine.delegate("slow", b"") == b"done"
    engine.close()


def test_hand_over_when_the_owner_closes(folder: Path, run: Run) -> None:
    process = run(SERVE)
    assert process.receive() == "ready"
    engines = [open_engine(folder), open_engine(folder)]
    assert engines[0].membership is engines[1].membership, "one process, one membership"
    engine = engines[0]
    put(engine, "a", b"1")
    begun, fresh = engine.begin(False), engine.begin(False)
    assert begun.get(key("a")) == b"1"
    process.send()
    assert process.end() == 0
    with pytest.raises(TransactionConflictError):
        begun.get(key("a"))
    with pytest.raises(TransactionConflictError):
        engine.commit(fresh, WriteSet({key("a"): b"2"}))
    assert engine.get(key("a")) == b"1"
    assert isinstance(engine.route, LocalRoute)
    put(engines[1], "b", b"2")
    assert read_all(engine) == {key("a"): b"1", key("b"): b"2"}
    for engine in engines:
        engine.close()


def test_commit_that_got_no_answer_is_looked_up(folder: Path, run: Run) -> None:
    """The owner ends between the commit and its answer, or before the commit."""
    refusals: list[tuple[bool, bool, type[Exception], str]] = [
        (True, False, Exception, ""),
        (False, False, StorageUnavailableError, "nothing was committed"),
        (False, True, TransactionConflictError, "has ended, and the transaction's snapshot with it"),
    ]
    for arrives, checked, error, reason in refusals:
        process = run(
            f"""
import structable.backends.leveldb.owner.connection as served
original = served.ServedConnection.commit
def commit(self, frame):
    if {arrives}:
        original(self, frame)
    os.kill(os.getpid(), signal.SIGKILL)
served.ServedConnection.commit = commit
engine = open_engine(folder)
send("ready")
receive()
"""
        )
        assert process.receive() == "ready"
        engine = open_engine(folder)
        if arrives:
            put(engine, "a", b"arrived")
        else:
            snapshot = engine.begin(False)
            with pytest.raises(error, match=reason):
                engine.commit(snapshot if checked else None, WriteSet({key("b"): b"lost"}))
        assert read_all(engine) == {key("a"): b"arrived"}
        engine.close()


WRITER = """
import itertools, random
engine = open_engine(folder)
send("ready")
acknowledged = 0
try:
    for number in itertools.count():
        try:
            snapshot = engine.begin(False)
            count = int(snapshot.get(key("count")) or b"0")
            mine = key(f"{os.getpid()}-{number}")
            engine.commit(snapshot, WriteSet({key("count"): b"%d" % (count + 1), mine: b"x" * 200}))
        except (TransactionConflictError, StorageUnavailableError):
            time.sleep(random.random() * 0.003)
            continue
        send(number)
except BaseException as error:
    send("failed", repr(error))
    raise
"""


def test_kill_at_any_moment_loses_no_acknowledged_commit(folder: Path, run: Run) -> None:
    """Processes commit as fast as they can, the owner is killed again and again, and others join."""
    seed = chosen_seed("kills of the owner")
    chance = random.Random(seed)
    acknowledged: set[bytes] = set()
    failures: list[str] = []
    lock = threading.Lock()

    def listen(process: Process) -> None:
        while line := process.receive():
            with lock:
                if line.isdigit():
                    acknowledged.add(key(f"{process.process.pid}-{line}"))
                else:
                    failures.append(line)

    processes: list[Process] = []
    listeners: list[threading.Thread] = []

    def start() -> None:
        process = run(WRITER)
        assert process.receive() == "ready"
        processes.append(process)
        listeners.append(threading.Thread(target=listen, args=(process,)))
        listeners[-1].start()

    for _ in range(3):
        start()
    for _ in range(5):
        before = len(acknowledged)
        until(lambda before=before: len(acknowledged) > before + 40 or bool(failures))  # type: ignore[misc]
        time.sleep(chance.random() * 0.05)
        processes.pop(0).signal(signal.SIGKILL)
        start()
    for process in processes:
        process.signal(signal.SIGKILL)
    for listener in listeners:
        listener.join()
    assert not failures, f"seed {seed}"
    engine = open_engine(folder)
    rows = read_all(engine)
    engine.close()
    count = int(rows.pop(key("count")))
    assert acknowledged <= set(rows), f"seed {seed}"
    assert count == len(rows), "each commit was applied once and whole"
    assert len(acknowledged) <= count <= len(acknowledged) + 8, "only commits in flight at a kill may be unacknowledged"


def test_stopped_owner_times_out(folder: Path, run: Run) -> None:
    process = run(SERVE)
    assert process.receive() == "ready"
    engine = open_engine(folder, request_timeout=1.0)
    put(engine, "a", b"1")
    snapshot = engine.begin(False)
    assert snapshot.get(key("a")) == b"1"
    process.signal(signal.SIGSTOP)
    with pytest.raises(CommitOutcomeUnknownError, match="has not answered for 1 seconds"):
        engine.commit(snapshot, WriteSet({key("a"): b"2"}))
    with pytest.raises(StorageUnavailableError, match="has not answered for 1 seconds"):
        engine.get(key("a"))
    with pytest.raises(StorageUnavailableError):
        put(engine, "a", b"3")
    with pytest.raises(StorageUnavailableError, match=f"process {process.process.pid}"):
        open_engine(folder / ".." / folder.name, request_timeout=0.5).get(key("a"))
    process.signal(signal.SIGCONT)
    until(lambda: _readable(engine))
    engine.close()


def _readable(engine: LevelDBEngine) -> bool:
    try:
        return engine.get(key("a")) in (b"1", b"2")
    except StorageUnavailableError:
        return False


def test_processes_that_open_at_once_agree_on_one_owner(folder: Path, run: Run) -> None:
    script = """
send("ready")
receive()
engine = open_engine(folder)
engine.commit(None, WriteSet(increments={key("n"): (Increment(b"", "n", 1),)}))
send(type(engine.route).__name__)
receive()
engine.close()
"""
    processes = [run(script) for _ in range(5)]
    for process in processes:
        assert process.receive() == "ready"
    for process in processes:
        process.send()
    assert sorted(process.receive() for process in processes) == ["Client"] * 4 + ["LocalRoute"]
    for process in processes:
        process.send()
        assert process.end() == 0
    engine = open_engine(folder)
    assert engine.get(key("n")) == b"5"
    engine.close()


def test_path_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("down" * 20)
    process = Process(SERVE, folder)
    assert process.receive() == "ready"
    engine = open_engine(folder)
    assert isinstance(engine.route, Client)
    parent = Path(engine.route.pool.path).parent
    assert len(str(parent)) < 80
    assert parent.stat().st_mode & 0o777 == 0o700
    process.signal(signal.SIGKILL)
    put(engine, "a", b"1")
    assert not parent.exists(), "the next owner removes what a killed one left"
    second = Path(engine.folder.read_owner()[0]).parent  # type: ignore[index]
    engine.close()
    assert not second.exists()
    process.close()


def test_fork_must_connect_anew(folder: Path) -> None:
    engine = open_engine(folder)
    put(engine, "a", b"1")
    snapshot = engine.begin(False)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            with pytest.raises(StorageUnavailableError):
                engine.get(key("a"))
            with pytest.raises(StorageUnavailableError):
                engine.begin(True)
            with pytest.raises(StorageUnavailableError):
                snapshot.get(key("a"))
            assert engine.closed
            engine.close()
            snapshot.close()
            anew = open_engine(folder)
            assert isinstance(anew.route, Client)
            put(anew, "b", b"from the child")
            anew.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert snapshot.get(key("a")) == b"1"
    assert engine.get(key("b")) == b"from the child"
    engine.close()


def test_child_of_a_dead_owner_does_not_keep_the_database(folder: Path, run: Run) -> None:
    process = run(
        """
engine = open_engine(folder)
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
send(child)
receive()
"""
    )
    child = int(process.receive())
    process.signal(signal.SIGKILL)
    engine = open_engine(folder, request_timeout=10)
    assert isinstance(engine.route, LocalRoute)
    engine.close()
    os.kill(child, signal.SIGKILL)


def test_snapshots_of_a_client_that_ends_are_freed(folder: Path, run: Run) -> None:
    engine = open_engine(folder)
    process = run(
        """
engine = open_engine(folder)
snapshots = [engine.begin(False) for _ in range(5)]
for snapshot in snapshots:
    snapshot.get(key("a"))
send("ready")
receive()
"""
    )
    assert process.receive() == "ready"
    server = engine.membership.server  # type: ignore[union-attr]
    assert server is not None
    [session] = server.service.sessions
    assert len(session.snapshots) == 5
    process.signal(signal.SIGKILL)
    until(lambda: not server.service.sessions)
    assert not session.snapshots
    engine.close()


def test_markers_go_with_their_clients(folder: Path, run: Run) -> None:
    assert run(SERVE).receive() == "ready"
    client = open_engine(folder)
    put(client, "a", b"1")
    client.close()
    engine = open_engine(folder)
    snapshot = engine.begin(True)
    assert list(snapshot.scan(b"\x00\x00\x00\x00\x00\x03", b"\x00\x00\x00\x00\x00\x04")) == []
    engine.close()


def test_closing_while_others_read_is_safe(folder: Path) -> None:
    """No thread may be inside LevelDB when the database is deleted: that would crash the process."""
    for _ in range(10):
        engine = open_engine(folder)
        engine.commit(None, WriteSet({key(number): b"x" * 100 for number in range(1_000)}))
        begun = threading.Barrier(5)

        def read(engine: LevelDBEngine = engine, begun: threading.Barrier = begun) -> None:
            begun.wait()
            with contextlib.suppress(StorageUnavailableError):
                while True:
                    engine.get(key(7))
                    snapshot = engine.begin(False)
                    for _ in snapshot.scan(SPACE, SPACE + b"\xff"):
                        pass
                    snapshot.close()

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        engine.close()
        for thread in threads:
            thread.join()


USED_TOO_LATE = """
import atexit, sys
def use():
    for call in (lambda: table.read((1,)), lambda: storage.run(lambda tx: tx.table("t").count()), storage.admin.list):
        try:
            call()
        except StorageUnavailableError as error:
            again = any("after 1 attempt " not in note for note in getattr(error, "__notes__", ()))
            print("tried again" if again else "closed", flush=True)
    storage.close()
    with connect(url) as late:
        late.table("t").upsert({"k": 2})
    print("late", flush=True)
atexit.register(use)  # before structable's own, and so called after it
from structable.spi import Field, StorageUnavailableError, TableSpecification, connect
url = f"leveldb://{sys.argv[1]}"
with connect(url) as made:
    made.admin.create_or_update(TableSpecification("t", [Field.long("k")], ["k"]))
storage = connect(url, read_only=sys.argv[2] == "reader")
table = storage.table("t")
"""


@pytest.mark.parametrize("role", ["owner", "reader"])
def test_storage_used_after_the_end_is_closed(folder: Path, role: str) -> None:
    """It retries nothing; another storage can be connected."""
    command = [sys.executable, "-c", USED_TOO_LATE, str(folder), role]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["closed"] * 3 + ["late"]), ended.stderr
