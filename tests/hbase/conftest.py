"""A gateway in this process, and the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from structable.backends.hbase.gateway import Gateway
from tests.hbase.fake import FakeGateway
from tests.hbase.faulty import connect


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        fake.tables.tables[b"t"] = {}
        yield fake


@pytest.fixture
def gateway(fake: FakeGateway) -> Iterator[Gateway]:
    with closing(connect(fake)) as gateway:
        yield gateway
