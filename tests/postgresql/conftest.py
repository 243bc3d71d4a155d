"""The fixture that tests of lost connections share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support.proxy import Proxy
from .support.shared import Schema


@pytest.fixture
def proxy(postgresql_schema: Schema) -> Iterator[Proxy]:
    """Yield a proxy before the server of the test's schema."""
    with Proxy(postgresql_schema.conninfo) as proxy:
        yield proxy
