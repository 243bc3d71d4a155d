"""Exceptions from a signal handler at any point of a call: a process runs interrupted calls, and then checks the store.

CPython runs handlers in the main thread, at the entry of a function, after a call, and at a jump backwards. A trace
function numbers those points of the frames of structable and of the backend, and raises at one of them. It does not
raise between `with` and its block, nor on the way out of the block: no handler ever runs there, as long as `__enter__`
and `__exit__` are C, and where they are Python their entries and calls are points themselves.
"""

from __future__ import annotations

import dis
import faulthandler
import functools
import gc
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, TypeAlias

from structable.spi import (
    Field,
    Isolation,
    Range,
    RecordExistsError,
    Storage,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
    Value,
    connect,
)

LEFT = TableSpecification("left", [Field.long("k"), Field.long("n"), Field.string("s")], ["k"], ["s"])
RIGHT = TableSpecification("right", LEFT.fields, ["k"], ["s"])
TraceFunction: TypeAlias = Callable[[FrameType, str, Any], "TraceFunction | None"]
"""The type of the argument of `sys.settrace`."""

_WATCHDOG_SECONDS = 20.0
_MOVING = 100_000
"""A row with this key and the number of the state is deleted and inserted in the next."""
_ROWS_OF_A_JOB = range(600, 620)
_OVERTAKEN = (TransactionConflictError, RecordExistsError)
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_METHOD", "CALL_FUNCTION"})


class InterruptedByTestError(BaseException):
    """The exception of the handler; like Ctrl-C's, not an `Exception`."""


@functools.cache
def _points(code: CodeType) -> frozenset[int]:
    """Return the offsets of instructions before which a handler may run.

    The exception after a call is raised as if by the call, and here by the next instruction, which needs the same
    handlers: it has others where the result is returned out of a `with` block or a `try`.
    """
    bytecode: Any = dis.Bytecode(code)  # typeshed lacks the entries

    def handlers(offset: int) -> list[int]:
        return [entry.target for entry in bytecode.exception_entries if entry.start <= offset < entry.end]

    found = set()
    call: int | None = None
    for instruction in bytecode:
        if instruction.opname == "CACHE":
            continue
        is_after_call = call is not None and handlers(call) == handlers(instruction.offset)
        if is_after_call or instruction.opname == "JUMP_BACKWARD":
            found.add(instruction.offset)
        call = instruction.offset if instruction.opname in _CALLS else None
    return frozenset(found)


class _Tracer:
    """Counts the points that a call passes, and raises at one of them."""

    def __init__(self, packages: frozenset[str], at: int) -> None:
        self._packages = packages
        self._at = at
        self.passed = 0
        self.where = ""

    def enter(self, frame: FrameType, event: str, _: object) -> TraceFunction | None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in self._packages or module.startswith("structable.testing.conformance"):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._pass(frame)
        return self.step

    def step(self, frame: FrameType, event: str, _: object) -> TraceFunction:
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            self._pass(frame)
        return self.step

    def _pass(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self._at:
            self.where = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}:{frame.f_lineno}"
            raise InterruptedByTestError


def _write(storage: Storage, number: int) -> None:
    """Go from one state to the next by changing both tables, with writes of every kind."""
    with storage.transaction() as transaction:
        for name in ("left", "right"):
            table = transaction.table(name)
            table.upsert({"k": 1, "n": number, "s": "abc"[number % 3]})
            table.delete((_MOVING + number - 1,))
            table.insert({"k": _MOVING + number, "n": number, "s": "abc"[number % 3]})
            table.increment((2,), "n")


def _read(storage: Storage, number: int) -> None:
    transaction = storage.transaction(Isolation.SERIALIZABLE)
    table = transaction.table("left")
    table.read((1,))
    list(itertools.islice(table.scan(), 2))
    list(table.scan_index("s", "a"))
    table.multi_read([(1,), (2,)])
    transaction.rollback()


def _commit_alone(storage: Storage, number: int) -> None:
    table = storage.table("left")
    table.upsert({"k": 500 + number % 3, "n": number, "s": "a"})
    table.increment((510,), "n")
    table.read((510,))
    table.delete((500 + number % 3,))
    list(table.scan(Range.prefix((1,))))


def _run_job(storage: Storage, number: int) -> None:
    from structable.spi.arrow import rows_to_batches

    rows: list[dict[str, Value]] = [{"k": key, "n": number, "s": "abc"[number % 3]} for key in _ROWS_OF_A_JOB]
    job = storage.begin_write("right", mode="upsert", job_id=f"job {number}")
    storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(RIGHT, rows, list(rows[0])))])


def _change_schema(storage: Storage, number: int) -> None:
    storage.admin.create_or_update(TableSpecification(f"made{number}", LEFT.fields, ["k"], ["s"]))
    storage.admin.drop(f"made{number}")


def _plan(storage: Storage, number: int) -> None:
    plans = [storage.plan_scan("left", splits=2)]
    with suppress(UnsupportedOperationError), storage.share_snapshot() as shared:
        plans += [shared.plan_scan(name) for name in ("left", "right")]
    for plan in plans:
        for split in plan.splits:
            list(storage.read_split(split))
        plan.close()


WORK: dict[str, Callable[[Storage, int], None]] = {
    "transaction": _write,
    "reads": _read,
    "auto-commit": _commit_alone,
    "job": _run_job,
    "schema change": _change_schema,
    "plan": _plan,
}
"""The calls of a process, by name; the number is different each time."""


class _Witness:
    """Checks after an interruption that the store is in a valid state, and continues."""

    def __init__(self, storage: Storage, url: str) -> None:
        self._storage = storage
        self.other = connect(url)
        self._numbers = itertools.count(1)

    def look(self) -> int:
        """Check everything, and return the number of the state."""
        number = self._storage.run(self._check_rows, read_only=True)
        self._check_conflict()
        self._let_others_commit()
        return number

    def _check_rows(self, transaction: Transaction) -> int:
        tables = {name: {row.k: (row.n, row.s) for row in transaction.table(name).scan()} for name in ("left", "right")}
        for name, rows in tables.items():
            for mark in "abc":
                found = sorted(row.k for row in transaction.table(name).scan_index("s", mark))
                assert found == sorted(key for key, (_, s) in rows.items() if s == mark), (
                    f"the index of {name} is wrong"
                )
        left, right = tables["left"], tables["right"]
        number = left[1][0]
        assert right[1][0] == number, f"half a transaction: {left[1]}, {right[1]}"
        for rows in (left, right):
            assert rows[2][0] == number, f"state {number} after {rows[2][0]} increments"
            assert [key for key in rows if key >= _MOVING] == [_MOVING + number], f"state {number} has the rows {rows}"
        of_job = {right[key] for key in _ROWS_OF_A_JOB if key in right}
        assert len(of_job) <= 1, f"half a job: {of_job}"
        assert not of_job or all(key in right for key in _ROWS_OF_A_JOB), "half a job"
        assert isinstance(number, int)
        return number

    def _check_conflict(self) -> None:
        number = next(self._numbers)
        first, second = self._storage.transaction(), self._storage.transaction()
        for transaction in (first, second):
            transaction.table("left").read((900,))
        first.table("left").upsert({"k": 900, "n": number, "s": "x"})
        first.commit()
        try:
            with second:
                second.table("left").upsert({"k": 900, "n": -number, "s": "x"})
        except TransactionConflictError:
            return
        raise AssertionError("two transactions wrote one row and did not conflict")

    def _let_others_commit(self) -> None:
        failures: list[BaseException] = []

        def commit(storage: Storage, key: int) -> None:
            try:
                storage.run(lambda transaction: transaction.table("left").increment((key,), "n"))
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=commit, args=(storage, key))
            for key, storage in ((901, self._storage), (902, self.other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def drain(self, transactions: int) -> None:
        """Open more transactions one after another than any pool has connections."""
        for _ in range(transactions):
            transaction = self._storage.transaction()
            transaction.table("left").read((1,))
            transaction.rollback()
        with self._storage.transaction() as first, self._storage.transaction() as second:
            assert first.table("left").read((1,)) == second.table("left").read((1,))


def _prepared(storage: Storage, url: str) -> _Witness:
    for spec in (LEFT, RIGHT):
        storage.admin.create(spec)
        storage.table(spec.name).upsert({"k": 2, "n": 0, "s": "a"})
    with storage.transaction() as transaction:
        for name in ("left", "right"):
            transaction.table(name).upsert({"k": 1, "n": 0, "s": "a"})
            transaction.table(name).insert({"k": _MOVING, "n": 0, "s": "a"})
    return _Witness(storage, url)


def _collect() -> None:
    """Release the references of interrupted frames, and the transactions that they left open."""
    sys.last_value = sys.last_traceback = None
    gc.collect()


def interrupt_at_points(storage: Storage, url: str, name: str, rounds: int, step: int | None) -> Iterator[object]:
    """Interrupt work at every `step`-th of its points, or at about `rounds` of them; yield each, then their number."""
    work = WORK[name]
    packages = frozenset({"structable", type(storage).__module__.partition(".")[0]})
    witness = _prepared(storage, url)
    unraisable: list[object] = []
    sys.unraisablehook = lambda what: unraisable.append(what.exc_value)
    counter = itertools.count(1_000_000)

    def one(at: int) -> _Tracer:
        # The transaction's number is the next state; the numbers of other work are never repeated.
        number = witness.look() + 1 if work is _write else next(counter)
        tracer = _Tracer(packages, at)
        came_out = False
        faulthandler.dump_traceback_later(_WATCHDOG_SECONDS, exit=True)
        try:
            sys.settrace(tracer.enter)
            try:
                work(storage, number)
            finally:
                sys.settrace(None)
        except InterruptedByTestError:
            came_out = True
        except _OVERTAKEN:
            # The store was still executing a commit whose caller had been interrupted.
            assert work is _write
            return tracer
        except BaseException as error:
            error.add_note(f"interrupted at point {at}, {tracer.where}")
            raise
        if tracer.where and not came_out:
            swallowed = any(isinstance(error, InterruptedByTestError) for error in unraisable)
            assert swallowed, f"the interruption at point {at}, {tracer.where}, did not come out"
        _collect()
        unraisable.clear()
        try:
            witness.look()
            if work is _change_schema:
                witness.other.admin.drop(f"made{number}")
        except BaseException as error:
            error.add_note(f"after an interruption at point {at}, {tracer.where}")
            raise
        return tracer

    *_, points = [one(0).passed for _ in range(3)]
    gc.freeze()
    for at in range(1, points + 1, step or max(1, points // rounds)):
        where = one(at).where
        if where:  # a call may have fewer points
            yield where
    witness.drain(60)
    witness.other.close()
    faulthandler.cancel_dump_traceback_later()
    yield points


def interrupt_by_signals(storage: Storage, url: str, seconds: float, seed: int) -> Iterator[object]:
    """Commit for some seconds, randomly interrupted by a timer, while another thread commits; count the results."""
    witness = _prepared(storage, url)
    chance = random.Random(seed)
    is_armed = is_over = False
    failures: list[BaseException] = []

    def interrupt(*_: object) -> None:
        if is_armed:
            raise InterruptedByTestError

    def commit_beside() -> None:
        try:
            for number in itertools.count():
                if is_over:
                    return
                with suppress(TransactionConflictError), storage.transaction() as transaction:
                    transaction.table("left").upsert({"k": 910 + number % 5, "n": number, "s": "abc"[number % 3]})
                time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    beside = threading.Thread(target=commit_beside)
    beside.start()
    signal.signal(signal.SIGALRM, interrupt)
    interruptions = 0
    end = time.monotonic() + seconds
    number = witness.look() + 1
    before = time.monotonic()
    _write(storage, number)
    usual = min(max(2 * (time.monotonic() - before), 0.002), 0.2)
    try:
        while time.monotonic() < end:
            faulthandler.dump_traceback_later(_WATCHDOG_SECONDS, exit=True)
            state = storage.table("left").read((1,), ["n"])
            assert state is not None
            number = state.n + 1
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, usual))
                _write(storage, number)
                is_armed = False
            except InterruptedByTestError:
                is_armed = False
                interruptions += 1
            except _OVERTAKEN:
                is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if interruptions % 20 == 1:
                _collect()
                witness.look()
        is_over = True
        beside.join()
        if failures:
            raise failures[0]
        _collect()
        witness.look()
        witness.drain(60)
    finally:
        is_over = True
    witness.other.close()
    faulthandler.cancel_dump_traceback_later()
    yield interruptions
