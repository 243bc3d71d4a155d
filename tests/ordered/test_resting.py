"""Work in the background rests between its steps."""

from __future__ import annotations

import threading

import pytest

from structable.backends.base import background


class Stopping(threading.Event):
    """Records the rests, and lets none pass."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.rests.append(timeout)
        return self.is_set()


def test_rest_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest is three times as long as the step before it, at most a tenth of a second, and ends with the store."""
    # A step from 0 to 1/64, one from 2/64 to 1, and one without a duration.
    monkeypatch.setattr(background, "perf_counter", iter([0.0, 1 / 64, 2 / 64, 1.0, 1.1, 1.1, 1.1]).__next__)
    stopping = Stopping()
    rest = background.resting(stopping)
    assert (rest(), rest()) == (False, False)
    stopping.set()
    assert rest()
    assert stopping.rests == [3 / 64, 0.1, 0.0]
