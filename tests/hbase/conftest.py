"""A gateway in this process, and a proxy before a real one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from structable.backends.hbase.thrift.gateway import Gateway
from structable.spi import Transactional
from structable.spi.authors import retry
from tests.hbase.support.fake_gateway import FakeGateway
from tests.hbase.support.gateway_calls import connect
from tests.hbase.support.proxy import Proxy
from tests.hbase.support.shared import Place


@pytest.fixture(autouse=True)
def no_background_failure(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test whose background threads met an unexpected error; a test that expects one clears the log."""
    yield
    failures = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not [record.getMessage() for record in failures if record.name == "structable.hbase"]


@pytest.fixture
def brief_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call that names no deadline give up after a second, instead of after half a minute."""
    for function in (retry, Transactional.run):
        monkeypatch.setattr(function, "__kwdefaults__", (function.__kwdefaults__ or {}) | {"deadline": 1.0})


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        fake.tables.tables[b"t"] = {}
        yield fake


@pytest.fixture
def gateway(fake: FakeGateway) -> Iterator[Gateway]:
    with closing(connect(fake)) as gateway:
        yield gateway


@pytest.fixture
def proxy(hbase_server: Place) -> Iterator[Proxy]:
    if "=framed" in hbase_server.address or "=compact" in hbase_server.address:
        pytest.skip("the proxy understands Thrift's binary protocol, unframed, alone")
    with Proxy(hbase_server.address) as proxy:
        yield proxy
