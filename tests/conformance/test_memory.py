"""The memory store keeps the contract."""

import uuid

import pytest
from hypothesis import settings

from structable.spi.conformance import BackendConformance, Capabilities


class TestMemory(BackendConformance):
    # A store ends with its process; within it, a name is one store.
    capabilities = Capabilities(
        multi_process=False,
        durable_after_kill=False,
        writes_never_wait=True,
        table_types=True,
        change_feeds=True,
        streams=True,
        statistics=True,
        shared_snapshots=True,
    )
    max_examples = min(60, settings().max_examples)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"
