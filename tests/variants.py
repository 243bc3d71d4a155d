"""Fewer variants of wide tests and fewer seeds, for a run that must end soon: `STRUCTABLE_TEST_VARIANTS=3`.

`STRUCTABLE_TEST_ROTATION` says which: ten consecutive numbers together choose every variant and every seed.
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import sha256
from typing import Protocol, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Hashable)


class _Item(Hashable, Protocol):
    """What is asked of a test."""

    @property
    def nodeid(self) -> str: ...

    def get_closest_marker(self, name: str) -> object | None: ...


_Named = TypeVar("_Named", bound=_Item)

ROTATION = int(os.environ.get("STRUCTABLE_TEST_ROTATION", "0"))
SEED = os.environ.setdefault(
    "STRUCTABLE_TEST_SEED", os.environ.get("STRUCTABLE_TEST_ROTATION") or str(random.randrange(1 << 30))
)
"""Of all that is random, Hypothesis's examples too; all processes of a run have it. That of CI is its rotation."""
_ROUND = 10
"""Consecutive rotations that together choose everything."""

_VARIABLE = "STRUCTABLE_TEST_VARIANTS"
_ON_ONE_STORE = ("tests/spark/", "tests/test_benchmarks.py", "tests/test_demo.py")
"""Tests of one process, which takes longer than all others together: a test is run on one store, or on few."""
_WIDE = (
    "tests/access/",
    "tests/cli/",
    "tests/conformance/",
    "tests/datasets/",
    "tests/examples/",
    "tests/joins/",
    "tests/metering/",
    "tests/migrations/",
    "tests/versions/",
    *_ON_ONE_STORE,
)
"""Where one test has many parameters, on every store."""
_FAULTS = ("tests/differential/", "tests/hbase/", "tests/leveldb/", "tests/postgresql/")
"""Where parameters are mostly faults of one store. All stay in other folders."""
_SUITE = "tests/conformance/"
"""Where several classes of a module run the same rules on one store, which is a variant as well."""
_STORES = {"memory", "leveldb", "postgresql", "hbase"}


def keep_some_variants(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out variants of wide tests, if the environment asks for it: of each on each store as many as it says stay.

    The rotation says which stay. All are kept of tests that are named, and of those marked `every_variant`, these of
    Spark on the one store of the rotation; one in ten of those marked `long`.
    """
    most = os.environ.get(_VARIABLE)
    if not most or any("::" in name for name in config.args):
        return
    without = left_out(items, int(most))
    if without:
        config.hook.pytest_deselected(items=sorted(without, key=_name))
        items[:] = [item for item in items if item not in without]


def left_out(items: Sequence[_Named], most: int) -> set[_Named]:
    """Return the tests that this rotation leaves out where `most` variants of each stay."""
    long = [item for item in items if item.get_closest_marker("long") is not None]
    every = [item for item in items if item.get_closest_marker("every_variant") is not None]
    queries = [item for item in every if item.nodeid.startswith(_ON_ONE_STORE)]
    apart = {*long, *every}
    within = [item for item in items if item not in apart and item.nodeid.startswith((*_WIDE, *_FAULTS))]
    without = _all_but(0, long, lambda item: "long", _name)
    without |= _all_but(1, queries, _variant, _store)  # the same one for all, which takes long to fill
    return without | _all_but(most, within, _function, _name)


def some_variants(names: Iterable[str], share: int) -> list[str]:
    """Return the names of tests for another pytest to run.

    If the environment leaves out variants, they are one of `share` tests, with as many variants as it says.
    """
    found, most = list(names), os.environ.get(_VARIABLE)
    if not most:
        return found
    without = _all_but(int(most), found, lambda name: name.partition("[")[0], str)
    return [name for name in found if name not in without][ROTATION % share :: share]


def seeds(variable: str, usual: int) -> list[int]:
    """Return the seeds of a random test: as many as the environment's variable says, or the usual number.

    Fewer than usual are this rotation's share of the usual ones.
    """
    count = int(os.environ.get(variable, usual))
    return list(range(count)) if count >= usual else _share(list(range(usual)), count)


def chosen_seed(test: str) -> int:
    """Return the seed of a random test of this name, other than those of other tests."""
    return random.Random(f"{SEED} {test}").randrange(1 << 30)


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


def _name(item: _Item) -> str:
    return item.nodeid


def _store(item: _Item) -> str:
    return " ".join(sorted(_STORES & set(_parts(item)[1])))


def _variant(item: _Item) -> Hashable:
    """A test and its parameters, whatever its store."""
    function, parameters = _parts(item)
    return function, *(word for word in parameters if word not in _STORES)


def _function(item: _Item) -> Hashable:
    """A test and its store; those that are run on one store are one, whichever that is."""
    function, parameters = _parts(item)
    return function, *(() if function.startswith(_ON_ONE_STORE) else sorted(_STORES & set(parameters)))


def _parts(item: _Item) -> tuple[str, list[str]]:
    function, _, parameters = item.nodeid.partition("[")
    if function.startswith(_SUITE):
        function = re.sub(r"::\w+::", "::", function)
    return function, re.findall(r"\w+", parameters)
