"""Tests of one group run in one process, one after the other."""

import pytest


@pytest.mark.xdist_group("probe")
def test_group_is_known_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("the tests are not spread over processes")
    assert request.node.nodeid.endswith("@probe")
