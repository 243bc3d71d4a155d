"""An exception of a signal's handler, at any point of a call, leaves the store valid and usable."""

from __future__ import annotations

import os
from contextlib import closing
from typing import ClassVar

import pytest

from .case import ConformanceCase
from .clients import StoreProcess
from .interruptions import WORK

_STEP = "STRUCTABLE_TEST_INTERRUPT_STEP"
_SECONDS = "STRUCTABLE_TEST_INTERRUPT_SECONDS"
_SHARES = {"transaction": 1.0, "schema change": 0.1}
"""The shares of `interruptions` for some calls; every other call has a fifth."""


class InterruptionRules(ConformanceCase):
    """An interrupted call of the main thread has happened wholly or not at all, and leaves nothing locked.

    The interrupted process is a separate one, in which no test runs. STRUCTABLE_TEST_INTERRUPT_STEP=1 interrupts at
    every point; STRUCTABLE_TEST_INTERRUPT_SECONDS sets the seconds of a timer's interrupts.

    Attributes
    ----------
    interruptions : int
        The number of points at which a transaction is interrupted, one after the other.
    """

    interruptions: ClassVar[int] = 60

    @pytest.fixture
    def interrupted_url(self, storage_url: str) -> str:
        """Return the URL of the fresh store as the process connects it; override it for a pool that is smaller."""
        return storage_url

    @pytest.mark.parametrize("work", WORK)
    def test_interruption_at_any_point(self, interrupted_url: str, work: str) -> None:
        """An interrupted call raises, did all or nothing, still sees conflicts, and blocks no thread or storage."""
        rounds = max(1, round(self.interruptions * _SHARES.get(work, 0.2)))
        step = int(os.environ[_STEP]) if _STEP in os.environ else None
        with closing(
            StoreProcess(interrupted_url, "interrupt_at_points", interrupted_url, work, rounds, step)
        ) as process:
            *where, points = process.rest()
        assert len(where) >= min(points, rounds) / 2

    def test_interruption_by_signals(self, interrupted_url: str) -> None:
        """A timer's signals, at random, do no harm either, while another thread commits."""
        seconds = float(os.environ.get(_SECONDS, "2"))
        with closing(StoreProcess(interrupted_url, "interrupt_by_signals", interrupted_url, seconds, 1)) as process:
            (interrupted,) = process.rest()
        assert interrupted > 0
