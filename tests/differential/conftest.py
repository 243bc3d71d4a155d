"""A fresh store of every kind, all connected at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from structable.spi import Storage, connect
from tests.conformance.support.owner import owned, owner_process


@pytest.fixture
def stores(tmp_path: Path, postgresql_url: str, hbase_url: str) -> Iterator[dict[str, Storage]]:
    """Connect to a fresh store of every kind; one LevelDB database is owned by another process."""
    client = f"leveldb://{tmp_path}/client"
    with ExitStack() as stack:
        owner = stack.enter_context(owner_process())
        stack.enter_context(owned(owner, client))
        urls = {
            "memory": f"memory://{uuid.uuid4().hex}",
            "leveldb": f"leveldb://{tmp_path}/owned?durability=process",
            "leveldb, another's": client,
            "postgresql": postgresql_url,
            "hbase": hbase_url,
        }
        yield {name: stack.enter_context(connect(url)) for name, url in urls.items()}
