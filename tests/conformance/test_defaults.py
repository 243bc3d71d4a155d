"""Stores that have less than ours: no table types."""

import uuid
from typing import Any

import pytest

from structable.backends.ordered import OrderedStorage
from structable.spi import Capabilities, UnsupportedOperationError, WriteJob, WriteMode
from structable.testing.conformance.job_modes import JobModeRules


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
