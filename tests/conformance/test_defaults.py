"""The bulk forms that `StructuredTable` has for stores without shorter ways keep the contract as well."""

import uuid

import pytest

from structable.backends.ordered.table import OrderedTable
from structable.spi.conformance import Capabilities
from structable.spi.conformance.many_rules import ManyRules


class TestDefaults(ManyRules):
    capabilities = Capabilities(multi_process=False, durable_after_kill=False, writes_never_wait=True)

    @pytest.fixture(autouse=True)
    def without_overrides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("delete_many", "increment_many"):
            monkeypatch.delattr(OrderedTable, name)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"
