"""The suite on every planted store; run by test_suite.py in a process of its own, and expected to fail."""

import uuid

import pytest
from hypothesis import Phase, settings

from structable.spi.conformance import BackendConformance, Capabilities
from tests.conformance.support.planted import BUGS, PREFIX

# A failure is enough; its smallest example is not needed.
settings.register_profile(
    "planted", phases=[Phase.generate], report_multiple_bugs=False, derandomize=True, database=None, deadline=None
)
settings.load_profile("planted")


class Planted(BackendConformance):
    capabilities = Capabilities(multi_process=False, durable_after_kill=False, writes_never_wait=True, table_types=True)
    bug = "nothing"

    @classmethod
    def planted(cls, bug: str) -> type["Planted"]:
        """Return the suite for a store with a bug."""
        waits = Capabilities(multi_process=False, durable_after_kill=False, table_types=True)
        parts = {"bug": bug, "capabilities": waits} if bug == "writes-wait" else {"bug": bug}
        return type(f"Test_{bug}", (cls,), {**parts, "__doc__": f"Planted: {bug}."})

    @pytest.fixture
    def storage_url(self) -> str:
        return f"{PREFIX}{self.bug}://{uuid.uuid4().hex}"


for name in BUGS:
    globals()[f"Test_{name}"] = Planted.planted(name)


class TestWithoutHook(BackendConformance):
    """Does not override `storage_url`."""
