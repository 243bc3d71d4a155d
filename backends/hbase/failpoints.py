"""Named points of the protocol where tests stop or kill a process; each costs a check of an empty mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

One = TypeVar("One")

failpoints: dict[str, Callable[[], None]] = {}
"""Actions by the name of their point; empty outside of tests."""


def reach(point: str) -> None:
    """Run the action of a point, if there is one."""
    if failpoints:
        action = failpoints.get(point)
        if action is not None:
            action()


def stepwise(
    flight: Callable[[Sequence[One]], list[object]], calls: Sequence[One], points: Mapping[int, str]
) -> list[object]:
    """Make the calls of a flight one by one, and reach the point of each call that has one; only in tests."""
    results: list[object] = []
    for number, call in enumerate(calls):
        results += flight([call])
        if number in points:
            reach(points[number])
    return results
