"""`OrderedStorage` and the life of its engine."""

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage, Upcalls
from structable.spi import DataCorruptionError


class DamagedEngine(MemoryEngine):
    def start(self, upcalls: Upcalls) -> None:
        raise DataCorruptionError("a log cannot be read")


def test_engine_that_cannot_start_is_closed() -> None:
    engine = DamagedEngine(VersionedMap())
    with pytest.raises(DataCorruptionError):
        OrderedStorage(engine, "memory://")
    assert engine.closed
