"""The PostgreSQL store keeps the contract through PgBouncer, which pools sessions."""

import pytest

from tests.postgresql.support import pgbouncer
from tests.postgresql.support.shared import Schema

from . import test_postgresql


class TestPostgreSQLThroughPgBouncer(test_postgresql.TestPostgreSQL):
    @pytest.fixture
    def postgresql_url(self, postgresql_schema: Schema, session_pooler: pgbouncer.Server) -> str:
        return session_pooler.url(postgresql_schema.url)
