"""The messages of the logger `structable.hbase`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from structable.backends.hbase.layout import STATE, session_row
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import put_rows
from structable.backends.hbase.txn.session import DEAD
from structable.spi import Field, Storage, TableSpecification, connect

from .support.fake_gateway import FakeGateway
from .support.gateway_calls import counting, once
from .support.internals import collect_garbage, drained, engine_of


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "structable.hbase")


@pytest.fixture
def storage() -> Iterator[Storage]:
    options = "housekeeping=3600&session_timeout=3600&late_writes=0"
    with FakeGateway() as fake, connect(f"hbase://127.0.0.1:{fake.port}/p?{options}") as storage:
        storage.admin.create(TableSpecification("t", [Field.int("k")], ["k"]))
        drained(storage)
        yield storage


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_gateway_that_fails_and_answers_again(
    fake: FakeGateway, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.call(counting())
    assert caplog.records == []
    fake.fault = once("before", "atomicIncrement")
    gateway.call(counting())
    (failed,) = messages(caplog, logging.WARNING)
    assert f"gateway 127.0.0.1:{fake.port}: the connection was lost" in failed
    assert messages(caplog, logging.INFO) == [f"gateway 127.0.0.1:{fake.port} answers again"]


def test_the_life_of_a_session(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    """It is lost when another process declares it dead; the next transaction begins a new one."""
    engine = engine_of(storage)
    session = engine.transactions.session
    number = int.from_bytes(session.id)
    with closing(storage):
        gateway = engine.transactions.context.gateway
        gateway.call(put_rows("p_tx", {session_row(session.id): {STATE: DEAD}}))
        session.heartbeat()
        assert any(f"session {number} of p was lost" in message for message in messages(caplog, logging.WARNING))
        storage.table("t").upsert({"k": 1})
    assert f"session {number + 1} of p began" in messages(caplog, logging.INFO)
    assert f"session {number + 1} of p ended" in messages(caplog, logging.INFO)


def test_a_round_of_the_janitor_that_removed_something(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    storage.table("t").upsert({"k": 1})
    drained(storage)
    while not collect_garbage(storage).removed:
        pass
    assert any(message.startswith("janitor of p: ") for message in messages(caplog, logging.INFO))
    caplog.clear()
    collect_garbage(storage)
    assert caplog.records == []
