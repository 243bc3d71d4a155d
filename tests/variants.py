"""Fewer variants of wide tests and fewer seeds, for a run that must end soon: `STRUCTABLE_TEST_VARIANTS=3`.

`STRUCTABLE_TEST_ROTATION` says which: ten consecutive numbers together choose every variant and every seed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import sha256
from typing import TypeVar

import pytest

__all__ = ["ROTATION", "keep_some_variants", "seeds", "some_variants"]

_Test = TypeVar("_Test", bound=Hashable)

ROTATION = int(os.environ.get("STRUCTABLE_TEST_ROTATION", "0"))
_ROUND = 10
"""Consecutive rotations that together choose everything."""

_VARIABLE = "STRUCTABLE_TEST_VARIANTS"
_ON_ONE_STORE = ("tests/spark/", "tests/test_benchmarks.py", "tests/test_demo.py")
"""Tests of one process, which takes longer than all others together: each variant is run on one store only."""
_WIDE = ("tests/access/", "tests/cli/", "tests/conformance/", "tests/datasets/", "tests/joins/", *_ON_ONE_STORE)
"""Where one test has many parameters, on every store."""
_FAULTS = ("tests/differential/", "tests/hbase/", "tests/leveldb/", "tests/postgresql/")
"""Where parameters are mostly faults of one store. All stay in other folders."""
_SUITE = "tests/conformance/"
"""Where several classes of a module run the same rules on one store, which is a variant as well."""
_STORES = {"memory", "leveldb", "postgresql", "hbase"}


def keep_some_variants(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out variants of wide tests, if the environment asks for it: of each on each store as many as it says stay.

    The rotation says which stay. All are kept of tests that are named, and of those marked `every_variant`, these of
    Spark on one store; one in ten of those marked `long`.
    """
    most = os.environ.get(_VARIABLE)
    if not most or any("::" in name for name in config.args):
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    left_out = _all_but(0, long, lambda item: "long", _name)
    left_out |= _all_but(1, [item for item in items if item.nodeid.startswith(_ON_ONE_STORE)], _variant, _name)
    several = [item for item in items if item not in left_out and item.get_closest_marker("every_variant") is None]
    within = [item for item in several if item.nodeid.startswith((*_WIDE, *_FAULTS))]
    left_out |= _all_but(int(most), within, _function, _name)
    if left_out:
        config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
        items[:] = [item for item in items if item not in left_out]


def some_variants(names: Iterable[str], share: int) -> list[str]:
    """Return the names of tests for another pytest to run.

    If the environment leaves out variants, they are one of `share` tests, with as many variants as it says.
    """
    found, most = list(names), os.environ.get(_VARIABLE)
    if not most:
        return found
    left_out = _all_but(int(most), found, lambda name: name.partition("[")[0], str)
    return [name for name in found if name not in left_out][ROTATION % share :: share]


def seeds(variable: str, usual: int) -> list[int]:
    """Return the seeds of a random test: as many as the environment's variable says, or the usual number.

    Fewer than usual are this rotation's share of the usual ones.
    """
    count = int(os.environ.get(variable, usual))
    return list(range(count)) if count >= usual else _share(list(range(usual)), count)


def _all_but(
    most: int, tests: Iterable[_Test], same: Callable[[_Test], Hashable], name: Callable[[_Test], str]
) -> set[_Test]:
    """Return the tests without this rotation's share of each that are the same, which has at least `most`."""
    groups: dict[Hashable, list[_Test]] = defaultdict(list)
    for test in tests:
        groups[same(test)].append(test)
    mixed = (sorted(found, key=lambda test: sha256(name(test).encode()).digest()) for found in groups.values())
    return {test for found in mixed for test in set(found).difference(_share(found, most))}


def _share(found: Sequence[_Test], least: int) -> list[_Test]:
    """Return this rotation's share: at least so many, and enough for a round of rotations to choose all."""
    count = min(max(least, -(-len(found) // _ROUND)), len(found))
    return [found[(ROTATION * count + number) % len(found)] for number in range(count)]


def _name(item: pytest.Item) -> str:
    return item.nodeid


def _variant(item: pytest.Item) -> Hashable:
    """A test and its parameters, whatever its store."""
    function, parameters = _parts(item)
    return function, *(word for word in parameters if word not in _STORES)


def _function(item: pytest.Item) -> Hashable:
    """A test and its store; those that are run on one store are one, whichever that is."""
    function, parameters = _parts(item)
    return function, *(() if function.startswith(_ON_ONE_STORE) else sorted(_STORES & set(parameters)))


def _parts(item: pytest.Item) -> tuple[str, list[str]]:
    function, _, parameters = item.nodeid.partition("[")
    if function.startswith(_SUITE):
        function = re.sub(r"::\w+::", "::", function)
    return function, re.findall(r"\w+", parameters)
