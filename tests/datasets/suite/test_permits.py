"""Permits."""

from __future__ import annotations

import threading

import pytest

from structable.datasets import LeaseLostError, Permit, SystemData
from tests.datasets.conftest import Begin
from tests.datasets.support.ticks import Ticks


def _acquired(system: SystemData, limit: int, ttl: int = 10) -> Permit:
    permit = system.permits.acquire("pool", "h", limit, ttl)
    assert permit is not None
    return permit


class TestPermits:
    def test_at_most_the_limit_is_given(self, watching: SystemData) -> None:
        permits = [_acquired(watching, 3) for _ in range(3)]
        assert {one.slot for one in permits} == {0, 1, 2}
        assert watching.permits.acquire("pool", "h", 3, 10) is None
        assert watching.permits.held("pool") == 3
        assert watching.permits.held("other") == 0
        permits[1].release()
        permits[1].release()
        assert watching.permits.held("pool") == 2
        again = _acquired(watching, 3)
        assert (again.slot, again.token) == (permits[1].slot, permits[1].token + 1)

    def test_lowered_limit_lets_held_ones_finish(self, watching: SystemData) -> None:
        permits = {one.slot: one for one in (_acquired(watching, 3) for _ in range(3))}
        permits[0].release()
        assert watching.permits.acquire("pool", "h", 2, 10) is None
        permits[2].renew()
        permits[1].release()
        _acquired(watching, 2)
        assert watching.permits.acquire("pool", "h", 2, 10) is None
        assert watching.permits.acquire("empty", "h", 0, 10) is None

    def test_permit_of_a_dead_holder_is_given_again(self, watching: SystemData, begin: Begin, ticks: Ticks) -> None:
        first = _acquired(watching, 1)
        assert watching.permits.acquire("pool", "other", 1, 1) is None
        ticks.tick(9)
        first.renew()
        ticks.tick(9)
        assert watching.permits.acquire("pool", "other", 1, 1) is None
        with begin() as s:
            first.check(s.tx)
        ticks.tick(10)
        assert watching.permits.held("pool") == 0
        second = watching.permits.acquire("pool", "other", 1, 1)
        assert second is not None
        with pytest.raises(LeaseLostError):
            first.renew()
        with pytest.raises(LeaseLostError), begin() as s:
            first.check(s.tx)
        first.release()
        second.renew()

    def test_many_threads_never_hold_more(self, watching: SystemData) -> None:
        found: list[Permit | None] = []
        threads = [
            threading.Thread(target=lambda: found.append(watching.permits.acquire("pool", "h", 3, 10)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len([one for one in found if one is not None]) == 3

    def test_bad_limit_is_refused(self, system: SystemData) -> None:
        with pytest.raises(ValueError, match="limit"):
            system.permits.acquire("pool", "h", -1, 10)
