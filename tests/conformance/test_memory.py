"""The memory store keeps the contract."""

import uuid
from dataclasses import fields, replace

import pytest

from structable.spi import Capabilities, connect
from structable.testing.conformance import BackendConformance
from tests.conformance.support.sizes import examples, share_of


class TestMemory(BackendConformance):
    # A store ends with its process; within it, a name is one store.
    max_examples = examples(BackendConformance.max_examples)
    stress_rounds = share_of(BackendConformance.stress_rounds)

    @pytest.fixture
    def storage_url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"

    def test_the_store_has_every_capability_of_one_process(self, storage_url: str) -> None:
        every = Capabilities(**{field.name: True for field in fields(Capabilities)})
        with connect(storage_url) as storage:
            assert storage.capabilities == replace(every, multi_process=False, durable_after_kill=False)
