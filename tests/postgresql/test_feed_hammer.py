"""Change feeds under concurrent writers whose commits are slow; faults that are planted must be found."""

from __future__ import annotations

import os

import pytest

from .support.feed_hammer import Fault, hammer
from .support.shared import Place, Schema, fresh_schema

_COMMITS = int(os.environ.get("STRUCTABLE_TEST_FEED_COMMITS", "25"))
_ROUNDS = 20


def test_feeds_and_snapshots_agree_under_load(postgresql_schema: Schema) -> None:
    found = hammer(postgresql_schema.conninfo, postgresql_schema.url, postgresql_schema.name, _COMMITS)
    assert found.wrong == {}
    assert found.positions


@pytest.mark.parametrize("fault", [Fault.NO_GATE, Fault.DRAWN_ONCE, Fault.EARLY_SNAPSHOT])
def test_planted_faults_are_found(postgresql_place: Place, fault: str) -> None:
    for _ in range(_ROUNDS):
        with fresh_schema(postgresql_place.conninfo) as schema:
            found = hammer(schema.conninfo, schema.url, schema.name, _COMMITS, fault)
        if found.wrong:
            return
    raise AssertionError(f"the fault {fault} was not found in {_ROUNDS} rounds")
