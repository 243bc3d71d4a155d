"""Fewer variants of wide tests, for a run that must end soon: `STRUCTABLE_TEST_VARIANTS=3`."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from hashlib import sha256
from typing import TypeVar

import pytest

__all__ = ["keep_some_variants", "some_variants"]

_Test = TypeVar("_Test", bound=Hashable)

_VARIABLE = "STRUCTABLE_TEST_VARIANTS"
_ON_ONE_STORE = ("tests/spark/", "tests/test_benchmarks.py", "tests/test_demo.py")
"""Tests of one process, which takes longer than all others together: each variant is run on one store only."""
_WIDE = ("tests/access/", "tests/cli/", "tests/conformance/", "tests/datasets/", *_ON_ONE_STORE)
"""Where one test has many parameters, on every store."""
_FAULTS = ("tests/differential/", "tests/hbase/", "tests/leveldb/", "tests/postgresql/")
"""Where parameters are mostly faults of one store: twice as many stay. All stay in other folders."""
_SUITE = "tests/conformance/"
"""Where several classes of a module run the same rules on one store, which is a variant as well."""
_STORES = {"memory", "leveldb", "postgresql", "hbase"}


def keep_some_variants(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out variants of wide tests, if the environment asks for it: of each on each store as many as it says stay.

    They are the same ones in each run. All are kept of tests that are named, and of those marked `every_variant`, these
    of Spark on one store; none of those marked `long`.
    """
    most = os.environ.get(_VARIABLE)
    if not most or any("::" in name for name in config.args):
        return
    left_out = {item for item in items if item.get_closest_marker("long") is not None}
    left_out |= _all_but(1, [item for item in items if item.nodeid.startswith(_ON_ONE_STORE)], _variant, _name)
    several = [item for item in items if item not in left_out and item.get_closest_marker("every_variant") is None]
    for folders, times in ((_WIDE, 1), (_FAULTS, 2)):
        within = [item for item in several if item.nodeid.startswith(folders)]
        left_out |= _all_but(int(most) * times, within, _function, _name)
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
    return [name for name in found if name not in left_out][::share]


def _all_but(
    most: int, tests: Iterable[_Test], same: Callable[[_Test], Hashable], name: Callable[[_Test], str]
) -> set[_Test]:
    """Return the tests without as many of each that are the same, which are chosen as if by chance."""
    groups: dict[Hashable, list[_Test]] = defaultdict(list)
    for test in tests:
        groups[same(test)].append(test)
    return {
        test
        for found in groups.values()
        for test in sorted(found, key=lambda test: sha256(name(test).encode()).digest())[most:]
    }


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
