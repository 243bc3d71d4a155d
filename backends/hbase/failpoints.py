"""Named points of the protocol where tests stop or kill a process; they cost one look at an empty mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .thrift.gateway import Gateway
    from .thrift.requests import Call

__all__ = ["failpoints", "reach", "stepwise"]

failpoints: dict[str, Callable[[], None]] = {}
"""What happens at a point, by its name; empty outside of tests."""


def reach(point: str) -> None:
    """Come by a point."""
    if failpoints:
        action = failpoints.get(point)
        if action is not None:
            action()


def stepwise(gateway: Gateway, calls: Sequence[Call[object]], points: Mapping[int, str]) -> list[object]:
    """Make the calls of a flight one by one, and come by a point after those that have one; for tests alone."""
    results: list[object] = []
    for number, call in enumerate(calls):
        results += gateway.flight([call])
        if number in points:
            reach(points[number])
    return results
