"""The same random commits on all stores: the same errors, and feeds that are equal but for their versions and times.

`STRUCTABLE_TEST_FEED_ROUNDS` (default 4) is the number of programs; `STRUCTABLE_TEST_FEED_SEED` runs one alone.
"""

from __future__ import annotations

import os
import random

import pytest

from structable.spi import Storage
from structable.testing.conformance.feed_case import images, text_of
from structable.testing.conformance.feed_laws import FeedLaws
from structable.testing.conformance.random_feeds import (
    TABLES,
    check_versions_of,
    commit_at_random,
    random_feed,
    random_pool,
)
from tests.variants import seeds

SEED = os.environ.get("STRUCTABLE_TEST_FEED_SEED")
COMMITS = 15
REFERENCE = "memory"


@pytest.mark.parametrize("seed", seeds("STRUCTABLE_TEST_FEED_ROUNDS", 4) if SEED is None else [int(SEED)])
def test_feeds_are_equal(stores: dict[str, Storage], seed: int) -> None:
    """Commits over tables of all types: each leaves the same changes in the feeds of every store."""
    chance = random.Random(seed)
    specs = [random_feed(chance, name) for name in TABLES]
    pools = {spec.name: random_pool(chance, spec) for spec in specs}
    for storage in stores.values():
        for spec in specs:
            storage.admin.create(spec)
    laws = {name: [FeedLaws(storage, spec) for spec in specs] for name, storage in stores.items()}
    for number in range(COMMITS):
        written = chance.sample(specs, chance.randint(1, len(specs)))
        own = chance.getrandbits(64)
        outcomes = {}
        for name, storage in stores.items():
            error = commit_at_random(storage, random.Random(own), written, pools)
            found = {one: one.step(storage.table(one.spec.name).scan(), random.Random(own)) for one in laws[name]}
            check_versions_of(found, written)
            changes = {
                one.spec.name: sorted(text_of(*image) for image in images(changes)) for one, changes in found.items()
            }
            outcomes[name] = (error, changes)
        different = {name: found for name, found in outcomes.items() if found != outcomes[REFERENCE]}
        assert different == {}, f"commit {number} of seed {seed}, {specs}: {REFERENCE} has {outcomes[REFERENCE]}"
