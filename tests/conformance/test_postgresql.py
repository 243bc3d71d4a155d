"""The PostgreSQL store keeps the contract, on a real server."""

import pytest

from structable.testing.conformance import BackendConformance
from tests.conformance.support.sizes import examples, share_of


class TestPostgreSQL(BackendConformance):
    max_examples = examples(15)  # each makes its tables in a second or so
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self, postgresql_url: str) -> str:
        return postgresql_url

    @pytest.fixture
    def interrupted_url(self, postgresql_url: str) -> str:
        return f"{postgresql_url}{'&' if '?' in postgresql_url else '?'}pool_size=4"
