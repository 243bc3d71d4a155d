"""Stores that have less than ours: the bulk forms of `StructuredTable` in place of shorter ways, no table types."""

import uuid
from typing import Any

import pytest

from structable.backends.ordered import OrderedStorage
from structable.backends.ordered.table import OrderedTable
from structable.spi import UnsupportedOperationError, WriteJob, WriteMode
from structable.spi.conformance import Capabilities
from structable.spi.conformance.job_modes import JobModeRules
from structable.spi.conformance.many_rules import ManyRules
from structable.spi.conformance.update_many_rules import UpdateManyRules
from structable.spi.conformance.write_rules import WriteRules


class TestDefaults(ManyRules, UpdateManyRules, WriteRules):
    capabilities = Capabilities(multi_process=False, durable_after_kill=False, writes_never_wait=True)

    @pytest.fixture(autouse=True)
    def without_overrides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("delete_many", "increment_many", "insert_many", "update_many"):
            monkeypatch.delattr(OrderedTable, name)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"


class TestWithoutTableTypes(JobModeRules):
    capabilities = Capabilities(multi_process=False, durable_after_kill=False, writes_never_wait=True)

    @pytest.fixture(autouse=True)
    def without_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin_write = OrderedStorage.begin_write

        def without(storage: OrderedStorage, table: str, *, mode: str, **options: Any) -> WriteJob:  # noqa: ANN401
            if mode == WriteMode.CHANGES:
                raise UnsupportedOperationError("this store has no table types")
            return begin_write(storage, table, mode=mode, **options)

        monkeypatch.setattr(OrderedStorage, "begin_write", without)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"
