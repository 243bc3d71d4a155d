"""How much the suite tries on a store: `STRUCTABLE_TEST_SUITE_SHARE=0.3`, or `10`, times as much as usual."""

from __future__ import annotations

import os

__all__ = ["share_of"]

_SHARE = float(os.environ.get("STRUCTABLE_TEST_SUITE_SHARE", "1"))


def share_of(usual: int) -> int:
    """Return how many examples or rounds to try where that many are usual."""
    return max(1, round(usual * _SHARE))
