"""Fewer variants of wide tests, for a run that must end soon: `STRUCTABLE_TEST_VARIANTS=3`."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from zlib import crc32

import pytest

__all__ = ["keep_some_variants"]

_VARIABLE = "STRUCTABLE_TEST_VARIANTS"
_WIDE = ("tests/access/", "tests/cli/", "tests/conformance/", "tests/datasets/", "tests/spark/")
"""Where one test has many parameters, on every store. What tests of one store vary are mostly faults: these stay."""
_STORES = {"memory", "leveldb", "postgresql", "hbase"}


def keep_some_variants(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out variants of wide tests, if the environment asks for it: of each on each store as many as it says stay.

    They are the same ones in each run. All are kept of tests that are named, and of those marked `every_variant`.
    """
    most = os.environ.get(_VARIABLE)
    if not most or any("::" in name for name in config.args):
        return
    variants: dict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.nodeid.startswith(_WIDE) and item.get_closest_marker("every_variant") is None:
            function, _, variant = item.nodeid.partition("[")
            named = _STORES & set(re.findall(r"\w+", variant))
            variants[function, *sorted(named)].append(item)
    left_out = {
        item
        for found in variants.values()
        for item in sorted(found, key=lambda item: crc32(item.nodeid.encode()))[int(most) :]
    }
    if left_out:
        config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
        items[:] = [item for item in items if item not in left_out]
