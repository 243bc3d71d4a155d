"""`blocking`: the same table for threads, that neither a signal nor a fork leaves locked."""

import asyncio
import contextlib
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from structable.access.batching import Batching
from structable.access.blocking import BlockingTable, blocking
from structable.access.functions import FunctionTable, TableReadFunction, TableWriteFunction
from structable.access.opening import open_table
from structable.spi import (
    Field,
    InvalidFieldError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    TableSpecification,
    TransactionClosedError,
    UpdateMessage,
    col,
    connect,
)
from tests.waiting import until

SPEC = TableSpecification("t", [Field.string("k"), Field.int("v")], primary_key=["k"])


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect("memory://") as storage:
        storage.admin.create(SPEC)
        yield storage


class Remote(TableReadFunction[str, object], TableWriteFunction[str, object]):
    """A remote system that holds its calls back while `gate` is not set."""

    def __init__(self) -> None:
        self.rows: dict[str, object] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.called = 0
        self.opened = self.closed = 0
        self.failure: BaseException | None = None

    async def open(self) -> None:
        self.opened += 1
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.closed += 1
        if self.failure is not None:
            raise self.failure

    async def get(self, key: str) -> object:
        await self._pass()
        return self.rows.get(key)

    async def put(self, key: str, value: object) -> None:
        await self._pass()
        self.rows[key] = value

    async def delete(self, key: str) -> None:
        await self._pass()
        self.rows.pop(key, None)

    def has_called(self, times: int) -> bool:
        return self.called == times

    async def _pass(self) -> None:
        self.called += 1
        while not self.gate.is_set():
            await asyncio.sleep(0.001)


def _over(remote: Remote) -> BlockingTable[str, object]:
    return blocking(open_table(FunctionTable(read=remote, write=remote)))


def test_every_method_waits_for_its_effect(storage: Storage) -> None:
    with blocking(open_table(storage.table("t"))) as table:
        table.put(("a",), {"v": 1})
        table.put_many(((key,), {"v": 2}) for key in "bc")
        table.update(("a",), {"v": 3})
        table.update(("d",), {"v": 4}, {"v": 0})
        table.upsert(("e",), {"v": 5})
        table.upsert_many([(("f",), {"v": 6}), (("g",), {"v": 7})])
        with pytest.raises(RecordNotFoundError):
            table.update(("x",), {"v": 1})
        assert table.update_many([(("x",), UpdateMessage({"v": 1})), (("b",), UpdateMessage({"v": 8}))]) == [("x",)]
        table.delete(("c",))
        table.delete_many(iter([("e",)]))
        table.put(("f",), None)
        row = table.get(("a",))
        assert row is not None
        assert dict(row) == {"k": "a", "v": 3}
        assert table.get(("c",)) is None
        found = table.get_many((key,) for key in "gabx")
        assert {key: row["v"] for (key,), row in found.items()} == {"g": 7, "a": 3, "b": 8}
        table.flush()
        assert table.pending == 0
    assert [(row.key[0], row["v"]) for row in storage.table("t").scan()] == [("a", 3), ("b", 8), ("d", 4), ("g", 7)]


def test_the_verbs_of_tables_wait_too(storage: Storage) -> None:
    with blocking(open_table(storage.table("t"), batching=Batching())) as table:
        for number in range(2_500):
            table.insert((f"{number:04}",), {"v": number})
        with pytest.raises(RecordExistsError):
            table.insert(("0000",), {"v": 1})
        table.increment(("0000",), "v", 7)
        assert table.compare_and_swap(("0000",), "v", 7, 0)
        assert not table.compare_and_swap(("0000",), "v", 7, 1)
        assert table.count() == 2_500
        assert table.count(Range.below((end,)) for end in ("0003", "0005")) == 5
        assert table.count(Range.below(("0010",)), col("v") > 4) == 5
        assert [row["v"] for row in table.scan()] == list(range(2_500))
        found = table.scan(Range.at_least(("0100",)), where=col("v") < 103, columns=iter(["v"]), reverse=True, limit=2)
        assert [row["v"] for row in found] == [102, 101]
        with pytest.raises(InvalidFieldError, match="nope"):
            next(table.scan(columns=["nope"]))


def test_scans_that_are_left_free_their_snapshots(storage: Storage) -> None:
    storage.table("t").upsert_many({"k": str(number)} for number in range(2_000))
    with blocking(open_table(storage.table("t"))) as table:
        for _ in range(40):  # more than may be open at once
            with contextlib.closing(table.scan()) as rows:
                next(rows)
            assert next(table.scan())
        left = table.scan()
        next(left)
    with pytest.raises(TransactionClosedError):  # after the rows that it has fetched
        list(left)
    with pytest.raises(TransactionClosedError):
        next(table.scan())


def test_threads_share_batches(storage: Storage) -> None:
    batching = Batching(max_size=8, max_delay=None)
    with blocking(open_table(storage.table("t"), batching=batching)) as table, ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            # Without a delay each of these waits until all eight are there.
            assert list(pool.map(lambda number: table.put((str(number),), {"v": number}), range(8))) == [None] * 8
    assert storage.table("t").count() == 8


def test_it_starts_with_the_first_call_and_close_is_idempotent() -> None:
    remote = Remote()
    before = set(threading.enumerate())
    table = _over(remote)
    assert set(threading.enumerate()) <= before
    table.put("a", 1)
    assert (remote.opened, remote.closed) == (1, 0)
    for _ in range(3):
        table.close()
        assert (remote.opened, remote.closed) == (1, 1)
        assert set(threading.enumerate()) <= before
    uses: list[Callable[[], object]] = [lambda: table.get("a"), table.flush, table.__enter__]
    for use in uses:
        with pytest.raises(TransactionClosedError):
            use()


def test_table_that_was_never_used_opens_nothing() -> None:
    remote = Remote()
    table = _over(remote)
    table.close()
    assert (remote.opened, remote.closed) == (0, 0)
    with pytest.raises(TransactionClosedError):
        table.get("a")


def test_leaving_flushes(storage: Storage) -> None:
    batching = Batching(max_size=None, max_delay=3600.0)
    with blocking(open_table(storage.table("t"), batching=batching)) as table:
        writer = threading.Thread(target=table.put, args=(("a",), {"v": 1}))
        writer.start()
        until(lambda: table.pending == 1)
    writer.join()
    assert storage.table("t").count() == 1


def test_calls_under_way_end_when_another_thread_closes() -> None:
    remote = Remote()
    table = _over(remote)
    remote.gate.clear()
    with ThreadPoolExecutor(9) as pool:
        puts = [pool.submit(table.put, str(number), number) for number in range(4)]
        until(lambda: remote.called == 4)
        closers = [pool.submit(table.close) for _ in range(4)]
        remote.gate.set()
        assert [put.result() for put in puts] == [None] * 4
        assert [close.result() for close in closers] == [None] * 4
    assert remote.closed == 1
    assert len(remote.rows) == 4


def test_calls_that_race_with_close_end_too() -> None:
    for _ in range(50):
        remote = Remote()
        table = _over(remote)
        table.get("a")
        outcomes: list[str] = []

        def write(number: int, table: BlockingTable[str, object] = table, outcomes: list[str] = outcomes) -> None:
            try:
                while True:
                    table.put(str(number), number)
            except TransactionClosedError:
                outcomes.append("closed")

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        table.close()
        for writer in writers:
            writer.join()
        assert outcomes == ["closed"] * 4


def test_failure_to_open_is_raised_on_entering_and_by_calls() -> None:
    remote = Remote()
    remote.failure = OSError("down")
    table = _over(remote)
    with pytest.raises(OSError, match="down"):
        table.get("a")
    with pytest.raises(OSError, match="down"):
        table.put("a", 1)
    table.close()
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="down"), _over(remote):
        pass
    assert set(threading.enumerate()) <= before


def test_failure_to_close_is_raised_once_and_the_thread_has_ended() -> None:
    remote = Remote()
    before = set(threading.enumerate())
    table = _over(remote)
    table.put("a", 1)
    remote.failure = OSError("down")
    with pytest.raises(OSError, match="down"):
        table.close()
    table.close()
    assert set(threading.enumerate()) <= before


def test_failure_of_the_body_goes_before_that_of_leaving() -> None:
    remote = Remote()
    with pytest.raises(KeyError) as caught, _over(remote):  # noqa: PT012
        remote.failure = OSError("down")
        raise KeyError("body")
    assert "down" in caught.value.__notes__[0]


def test_function_cannot_wait_for_the_table_that_calls_it() -> None:
    class Circular(TableReadFunction[str, object]):
        table: BlockingTable[str, object]

        async def get(self, key: str) -> object:
            if key == "a":
                return self.table.get("b")
            self.table.close()
            return None

    function = Circular()
    with blocking(open_table(FunctionTable(read=function))) as function.table:
        for key in "ac":
            with pytest.raises(RuntimeError, match="a function that"):
                function.table.get(key)


def test_calls_run_in_the_context_of_their_caller() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")

    class Seen(TableReadFunction[str, object]):
        async def get(self, key: str) -> object:
            return request.get()

    with blocking(open_table(FunctionTable(read=Seen()))) as table:
        request.set("mine")
        assert table.get("a") == "mine"


@pytest.mark.parametrize("table", [None, 3, "t"])
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(TypeError, match="AsyncTable"):
        blocking(table)  # type: ignore[arg-type]


def test_forgotten_table_ends_with_a_warning() -> None:
    remote = Remote()
    before = set(threading.enumerate())
    table = _over(remote)
    table.put("a", 1)
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del table
        gc.collect()
        until(lambda: remote.closed == 1)
    until(lambda: before.issuperset(threading.enumerate()))


class Interrupted(BaseException):
    """As KeyboardInterrupt, which ends pytest."""


def _interrupted(function: Callable[[], object], when: Callable[[], bool]) -> None:
    """Call a function, and have a signal's handler raise in it once it waits."""

    def handle(signum: int, frame: object) -> None:
        raise Interrupted

    handler = signal.signal(signal.SIGUSR1, handle)
    main = threading.get_ident()

    def interrupt() -> None:
        until(when)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(Interrupted):  # noqa: PT012
            function()
            threading.Event().wait(60)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, handler)


def test_interrupted_wait_leaves_the_call_and_the_table_alone() -> None:
    remote = Remote()
    with _over(remote) as table:
        for number in range(30):
            remote.gate.clear()
            calls = remote.called + 1
            _interrupted(partial(table.put, "a", number), partial(remote.has_called, calls))
            remote.gate.set()
            assert table.get("a") == number
    assert remote.closed == 1


def test_interrupted_close_can_be_repeated() -> None:
    remote = Remote()
    before = set(threading.enumerate())
    table = _over(remote)
    table.get("b")
    remote.gate.clear()
    _interrupted(partial(table.put, "a", 1), partial(remote.has_called, 2))
    _interrupted(table.close, lambda: table._closed)
    remote.gate.set()
    table.close()
    assert remote.rows == {"a": 1}
    assert remote.closed == 1
    assert set(threading.enumerate()) <= before


def test_signals_at_any_moment_leave_nothing_locked() -> None:
    remote = Remote()
    fired = threading.Event()
    due = threading.Event()
    main = threading.get_ident()
    delay = 0.0

    def kill() -> None:
        while due.wait():
            due.clear()
            if delay < 0:
                return
            time.sleep(delay)
            signal.pthread_kill(main, signal.SIGUSR1)

    def interrupt(signum: int, frame: object) -> None:
        fired.set()
        raise Interrupted

    killer = threading.Thread(target=kill)
    killer.start()
    handler = signal.signal(signal.SIGUSR1, interrupt)
    gc.disable()  # a destructor in which the exception is raised would swallow it
    try:
        for number in range(300):
            table = _over(remote)
            fired.clear()
            delay = 0.00002 * (number % 50)
            with contextlib.suppress(Interrupted):
                due.set()
                while not fired.is_set():
                    table.put("a", number)
                    table.get("a")
            assert fired.is_set()
            table.close()
    finally:
        gc.enable()
        delay = -1.0
        due.set()
        killer.join()
        signal.signal(signal.SIGUSR1, handler)
    assert remote.opened == remote.closed


FORKED = """
import os, sys
from structable.access.blocking import blocking
from structable.access.functions import FunctionTable, TableReadFunction
from structable.access.opening import open_table

class Echo(TableReadFunction):
    async def get(self, key):
        return key

early, used = (blocking(open_table(FunctionTable(read=Echo()))) for _ in range(2))
used.get("parent")
child = os.fork()
if not child:
    assert early.get("a") == "a"
    early.close()
    try:
        used.get("a")
    except RuntimeError as error:
        assert "forked" in str(error), error
    else:
        os._exit(3)
    used.close()
    del used
    os._exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert (early.get("b"), used.get("c")) == ("b", "c")
early.close()
used.close()
print("done")
"""


def test_fork_leaves_the_parents_table_and_an_unused_one_usable() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", FORKED], check=True, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("done\n", "")


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from structable.access.blocking import blocking
from structable.access.functions import FunctionTable, TableReadFunction
from structable.access.opening import open_table

signal.signal(signal.SIGINT, signal.default_int_handler)

class Slow(TableReadFunction):
    async def get(self, key):
        if key == "slow":
            print("waits", flush=True)
            while not released.is_set():
                await asyncio.sleep(0.01)
        return key

released = threading.Event()
with blocking(open_table(FunctionTable(read=Slow()))) as table:
    try:
        table.get("slow")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    released.set()
    print(table.get("next"), flush=True)
"""


def test_control_c_in_a_waiting_program_is_a_keyboard_interrupt() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate()
    assert (process.returncode, output, errors) == (0, "interrupted\nnext\n", "")


def test_program_that_forgets_to_close_ends() -> None:
    program = INTERRUPTED.replace(
        "with blocking(open_table(FunctionTable(read=Slow()))) as table:",
        "table = blocking(open_table(FunctionTable(read=Slow())))\nif True:",
    )
    program = program.replace('table.get("slow")', "raise KeyboardInterrupt")
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "interrupted\nnext\n"
