"""Master keys, and a monotonic clock, that only the test sets."""

from __future__ import annotations

import pytest

from structable.datasets import SystemData
from structable.spi import Storage
from tests.datasets.support.keys import Keys
from tests.datasets.support.ticks import Ticks


@pytest.fixture
def keys() -> Keys:
    """Return the master keys."""
    return Keys()


@pytest.fixture
def ticks() -> Ticks:
    """Return a monotonic clock that only the test sets."""
    return Ticks()


@pytest.fixture
def watching(system: SystemData, shared_store: Storage, ticks: Ticks) -> SystemData:
    """Return the datasets as a process sees them whose monotonic clock the test sets."""
    return SystemData.open(shared_store, monotonic=ticks)
