"""Named points of a step where tests stop or kill a process; each costs a check of an empty mapping.

`staged`: the differences are staged, or written in the transaction of a small step, and no reader sees them. Only a
large step and a rebuild have `intent_recorded`, and `committed`: the result is at the positions of the intent. Last,
`positions_recorded`: the step is done.
"""

from __future__ import annotations

from collections.abc import Callable

FAILPOINTS = ("staged", "intent_recorded", "committed", "positions_recorded")

failpoints: dict[str, Callable[[], None]] = {}
"""Actions by the name of their point; empty outside of tests."""


def reach(point: str) -> None:
    """Run the action of a point, if there is one."""
    if failpoints:
        action = failpoints.get(point)
        if action is not None:
            action()
