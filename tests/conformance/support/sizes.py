"""How much the suite tries on a store: `STRUCTABLE_TEST_SUITE_SHARE=0.3`, or `10`, times as much as usual."""

from __future__ import annotations

import os

_SHARE = float(os.environ.get("STRUCTABLE_TEST_SUITE_SHARE", "1"))


def share_of(usual: int) -> int:
    """Return how many rounds to make where that many are usual."""
    return max(1, round(usual * _SHARE))


def examples(usual: int) -> int:
    """Return how many examples to try where that many are usual: `STRUCTABLE_TEST_EXAMPLES`, if given, or a share."""
    return int(os.environ.get("STRUCTABLE_TEST_EXAMPLES", share_of(usual)))
