"""The suite on every planted store; run by test_suite.py in a process of its own, and expected to fail."""

import uuid

import pytest
from hypothesis import Phase, settings

from structable.testing.conformance import BackendConformance
from tests.conformance.support.planted import BUGS, PREFIX
from tests.conformance.support.planted_rules import rules_of
from tests.conformance.support.sizes import examples

# A failure is enough; its smallest example is not needed.
settings.register_profile(
    "planted", phases=[Phase.generate], report_multiple_bugs=False, derandomize=True, database=None, deadline=None
)
settings.load_profile("planted")

FAULTLESS = {"nothing", "writes-wait", "refuses-anywhere"}
"""Stores that must pass: all examples run, where a bug ends a test at the first that shows it."""

EXAMPLES = examples(15)
MOST_EXAMPLES = 500
"""Within which a bug is found: another rule of the state machine makes all its examples others."""


def without_all_but(names: list[str]) -> dict[str, None]:
    """Return attributes that hide the other tests of the suite, whose collection would take longer than these."""
    kept = {name.partition("[")[0] for name in names}
    return {name: None for name in dir(BackendConformance) if name.startswith("test_") and name not in kept}


class Planted(BackendConformance):
    bug = "nothing"

    @classmethod
    def planted(cls, bug: str) -> type["Planted"]:
        """Return the suite for a store with a bug."""
        parts: dict[str, object] = {"bug": bug}
        parts["max_examples"] = EXAMPLES if bug in FAULTLESS else MOST_EXAMPLES
        return type(f"Test_{bug}", (cls,), {**parts, **without_all_but(rules_of(bug)), "__doc__": f"Planted: {bug}."})

    @pytest.fixture
    def storage_url(self) -> str:
        return f"{PREFIX}{self.bug}://{uuid.uuid4().hex}"


for name in BUGS:
    globals()[f"Test_{name}"] = Planted.planted(name)

TestWithoutHook = type("TestWithoutHook", (BackendConformance,), without_all_but(["test_count"]))
"""Does not override `storage_url`."""
