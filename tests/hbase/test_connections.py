"""Connections are shared, replaced and refused, and gateways stand in for one another."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing, suppress

import pytest

from structable.backends.hbase.thrift import connection as connection_module
from structable.backends.hbase.thrift.errors import ConnectionLostError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import compare_and_put
from structable.spi import StorageUnavailableError
from tests.hbase.support.fake_gateway import FakeGateway, FakeTables
from tests.hbase.support.gateway_calls import COLUMN, ROW, connect, counting, fill, once
from tests.waiting import PROMPT


def test_an_idle_connection_that_ended_is_replaced_before_use(fake: FakeGateway, gateway: Gateway) -> None:
    gateway.call(counting())
    fake.cut_all()
    time.sleep(0.05)
    assert gateway.call(compare_and_put("t", ROW, COLUMN, None, b"1"))
    assert fake.accepted == 2


def test_a_connection_idle_for_long_is_replaced(
    fake: FakeGateway, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.call(counting())
    monkeypatch.setattr(connection_module, "IDLE_LIMIT", 0.05)
    time.sleep(0.1)
    gateway.call(counting(), retry=False)
    assert fake.accepted == 2


def test_the_connection_used_last_is_used_first(fake: FakeGateway, gateway: Gateway) -> None:
    pages = [gateway.pages("t", b"", b"", [COLUMN], before=None) for _ in range(3)]
    fill(fake, 1000)
    for page in pages:
        next(page)
    for page in pages:
        page.close()  # type: ignore[attr-defined]
    assert fake.accepted == 3
    for _ in range(10):
        gateway.call(counting())
    assert fake.accepted == 3
    assert fake.open_scanners == 0


def test_a_pool_without_a_free_connection_says_so(fake: FakeGateway) -> None:
    fill(fake, 1000)
    with closing(connect(fake, pool_size=2)) as gateway:
        scans = [gateway.pages("t", b"", b"", [COLUMN], before=None) for _ in range(2)]
        for scan in scans:
            next(scan)
        with pytest.raises(StorageUnavailableError, match=r"all 2 connections \(pool_size\)"):
            gateway.call(counting())
        scans[0].close()  # type: ignore[attr-defined]
        assert gateway.call(counting()) == 1


def test_many_threads_share_a_gateway(fake: FakeGateway) -> None:
    found: list[int] = []
    with closing(connect(fake, pool_size=3, pool_timeout=10)) as gateway:

        def work() -> None:
            for _ in range(50):
                found.append(gateway.call(counting()))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(1, 401))
    assert fake.accepted <= 3


def test_a_closed_gateway_refuses_and_ends_what_runs(fake: FakeGateway, gateway: Gateway) -> None:
    gateway.call(counting())
    fake.fault = once("hang", "atomicIncrement")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            gateway.call(counting())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while len(fake.calls) < 2:
        time.sleep(0.01)
    gateway.close()
    thread.join(PROMPT)
    assert not thread.is_alive()
    assert isinstance(errors[0], ConnectionLostError)
    assert gateway.closed
    gateway.close()
    with pytest.raises(StorageUnavailableError, match="was closed"):
        gateway.call(counting())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_refused_and_does_not_disturb_its_parent(gateway: Gateway) -> None:
    gateway.call(counting())
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            try:
                gateway.call(counting())
            except StorageUnavailableError as error:
                status = 0 if gateway.closed and "forked" in str(error) else 2
            gateway.close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gateway.call(counting()) == 2


def test_the_other_gateway_serves_while_one_is_lost_and_not_after() -> None:
    tables = FakeTables({b"t": {}})
    with FakeGateway(tables) as first, FakeGateway(tables) as other, closing(connect(first, other)) as gateway:
        assert gateway.call(counting()) == 1
        assert not other.calls
        first.close()
        numbers = [gateway.call(counting()) for _ in range(20)]
        assert numbers == list(range(2, 22))
        assert len(other.calls) == 20
        with FakeGateway(tables, port=first.port) as again:
            for _ in range(100):
                gateway.call(counting())
                if again.calls:
                    break
                time.sleep(0.05)
            assert again.calls
            gateway.call(counting())
            assert len(again.calls) >= 2


def test_the_first_gateway_may_be_lost_from_the_start() -> None:
    tables = FakeTables({b"t": {}})
    with FakeGateway(tables) as first, FakeGateway(tables) as other, closing(connect(first, other)) as gateway:
        first.close()
        assert gateway.call(counting(), retry=False) == 1


def test_nothing_sent_is_certain_where_no_gateway_is_reached(fake: FakeGateway, gateway: Gateway) -> None:
    with closing(connect(fake, fake, timeout=0.5)) as gateway:
        gateway.call(counting())
        fake.close()
        with pytest.raises(ConnectionLostError) as caught:
            gateway.call(compare_and_put("t", ROW, COLUMN, None, b"1"))
        assert not caught.value.sent
