"""A fresh store of every kind, all connected at once."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from structable.spi import Storage, connect

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stores(tmp_path: Path, postgresql_url: str, hbase_url: str) -> Iterator[dict[str, Storage]]:
    """Connect to a fresh store of every kind; one LevelDB database is owned by another process."""
    client = f"leveldb://{tmp_path}/client"
    with ExitStack() as stack:
        command = [sys.executable, "-m", "tests.conformance.support.owner"]
        owner = stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(owner.kill)
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(f"{client}\n")
        owner.stdin.flush()
        assert owner.stdout.readline().strip() == "held"
        urls = {
            "memory": f"memory://{uuid.uuid4().hex}",
            "leveldb": f"leveldb://{tmp_path}/owned?durability=process",
            "leveldb, another's": client,
            "postgresql": postgresql_url,
            "hbase": hbase_url,
        }
        yield {name: stack.enter_context(connect(url)) for name, url in urls.items()}
