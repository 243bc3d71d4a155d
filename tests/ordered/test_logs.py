"""The logs of the ordered stores: background work, and jobs completed or set apart after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import Field, StorageUnavailableError, TableSpecification
from tests.waiting import until

SPEC = TableSpecification("t", [Field.long("id")], ["id"])


class FailingOnce(MemoryEngine):
    failed = False

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        if not self.failed:
            self.failed = True
            raise StorageUnavailableError("the disk is full")
        return super().discard(beginning, stopped)


def test_deletion_of_dropped_tables_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "structable.ordered")
    storage = OrderedStorage(FailingOnce(VersionedMap()), "memory://")
    storage.admin.create(SPEC)
    storage.admin.drop("t")
    until(lambda: len(caplog.records) == 1)
    storage.admin.create(SPEC)
    storage.admin.drop("t")
    until(lambda: len(caplog.records) == 3)
    storage.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "the disk is full" in caplog.records[0].message
    assert "deleted a dropped table" in caplog.records[1].message
