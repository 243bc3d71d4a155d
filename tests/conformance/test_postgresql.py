"""The PostgreSQL store keeps the contract, on a real server."""

import os

import pytest

from structable.spi.conformance import BackendConformance, Capabilities


class TestPostgreSQL(BackendConformance):
    capabilities = Capabilities(
        table_types=True, change_feeds=True, streams=True, statistics=True, shared_snapshots=True
    )
    max_examples = int(os.environ.get("STRUCTABLE_TEST_EXAMPLES", "15"))  # each makes its tables in a second or so

    @pytest.fixture
    def storage_url(self, postgresql_url: str) -> str:
        return postgresql_url

    @pytest.fixture
    def interrupted_url(self, postgresql_url: str) -> str:
        return f"{postgresql_url}{'&' if '?' in postgresql_url else '?'}pool_size=4"
