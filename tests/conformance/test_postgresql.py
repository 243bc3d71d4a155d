"""The PostgreSQL store keeps the contract."""

import os
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from structable.spi.conformance import BackendConformance


class TestPostgreSQL(BackendConformance):
    @pytest.fixture
    def storage_url(self) -> Iterator[str]:
        url = os.environ["STRUCTABLE_TEST_POSTGRESQL_URL"]
        schema = f"t{uuid.uuid4().hex}"
        yield f"{url}?schema={schema}"
        with psycopg.connect(url) as connection:
            connection.execute(f'drop schema if exists "{schema}" cascade')
