"""Foreign-key joins keep their promises on every store."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from .support.cases import JoinCases


class TestMemory(JoinCases):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"


class TestLevelDB(JoinCases):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"


class TestPostgreSQL(JoinCases):
    @pytest.fixture
    def url(self, postgresql_url: str) -> str:
        return postgresql_url


class TestHBase(JoinCases):
    programs = 2

    @pytest.fixture
    def url(self, hbase_url: str) -> str:
        return hbase_url
