"""A pool lends as many connections as its size, after any loss."""

import gc
import itertools
import sys
import threading

import pytest

from structable.backends.base.pool import ConnectionPool, PooledConnection
from structable.backends.base.traffic import Tally
from structable.spi import StorageUnavailableError
from structable.testing.conformance.interruptions import InterruptedByTestError, _Tracer


class Line(PooledConnection):
    """A connection to nothing."""

    def __init__(self, open_lines: set[int]) -> None:
        self._open = open_lines
        self.tally = Tally()
        self._open.add(id(self))

    @property
    def usable(self) -> bool:
        return id(self) in self._open

    def close(self) -> None:
        self._open.discard(id(self))

    def __del__(self) -> None:
        self.close()


class Lines(ConnectionPool[Line]):
    """A pool of lines."""

    holders = "lines"

    def __init__(self, size: int, timeout: float = 0, *, most_idle: int | None = None) -> None:
        super().__init__(size, timeout, most_idle=most_idle)
        self.lines: set[int] = set()

    def _open(self) -> Line:
        return Line(self.lines)

    def _serves(self, connection: Line) -> bool:
        return connection.usable


def _interrupted(pool: Lines, point: int) -> bool:
    """Lend a connection and take it back, interrupted at a point of the pool; tell whether the point exists."""
    tracer = _Tracer(frozenset({"structable"}), point)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        pool.release(pool.acquire())
    except InterruptedByTestError:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("warm", [False, True], ids=["opening", "idle"])
def test_interruption_at_any_point_loses_no_connection(warm: bool) -> None:
    for point in itertools.count(1):
        pool = Lines(1)
        if warm:
            pool.release(pool.acquire())
        interrupted = _interrupted(pool, point)
        gc.collect()
        line = pool.acquire()
        assert pool.lines == {id(line)}, f"point {point}"
        pool.release(line)
        if not interrupted:
            assert point > 10
            return


def test_connection_used_last_is_lent_first() -> None:
    pool = Lines(3)
    first, second = pool.acquire(), pool.acquire()
    pool.release(first)
    pool.release(second)
    assert pool.acquire() is second


def test_no_more_than_the_size_are_lent() -> None:
    pool = Lines(2)
    lent = [pool.acquire(), pool.acquire()]
    with pytest.raises(StorageUnavailableError, match=r"all 2 connections \(pool_size\).* close lines"):
        pool.acquire()
    pool.release(lent.pop())
    assert pool.acquire().lent


def test_waiting_thread_gets_a_returned_connection() -> None:
    pool = Lines(1, 30)
    line = pool.acquire()
    found: list[Line] = []
    thread = threading.Thread(target=lambda: found.append(pool.acquire()))
    thread.start()
    pool.release(line)
    thread.join()
    assert found == [line]


def test_few_idle_ones_are_kept() -> None:
    pool = Lines(2, most_idle=1)
    lent = [pool.acquire(), pool.acquire()]
    for line in lent:
        pool.release(line)
        pool.release(line)
    assert len(pool.lines) == 1


def test_broken_connection_is_replaced() -> None:
    pool = Lines(1)
    line = pool.acquire()
    line.close()
    pool.release(line)
    assert pool.acquire() is not line


def test_closing_ends_those_in_use() -> None:
    pool = Lines(2)
    line = pool.acquire()
    pool.close()
    assert pool.closed
    assert not pool.lines
    pool.release(line)
    with pytest.raises(StorageUnavailableError, match="the storage was closed"):
        pool.acquire()
