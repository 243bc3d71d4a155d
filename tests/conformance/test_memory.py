"""The memory store keeps the contract."""

import uuid
from dataclasses import replace

import pytest

from structable.spi.conformance import BackendConformance
from tests.conformance.support.our_capabilities import OURS
from tests.conformance.support.sizes import examples, share_of


class TestMemory(BackendConformance):
    # A store ends with its process; within it, a name is one store.
    capabilities = replace(OURS, multi_process=False, durable_after_kill=False, writes_never_wait=True)
    max_examples = examples(BackendConformance.max_examples)
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"
