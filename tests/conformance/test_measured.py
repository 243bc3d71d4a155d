"""A measured storage keeps the contract: the suite in a program with an OpenTelemetry SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi import connect
from structable.spi._measuring import MeasuringStorage
from structable.testing.conformance.bulk_scans import BulkScanRules
from structable.testing.conformance.lifecycle import LifecycleRules
from structable.testing.conformance.runner_rules import RunnerRules
from structable.testing.conformance.store_rules import StoreRules
from structable.testing.conformance.stream_job_rules import StreamJobRules
from structable.testing.conformance.traffic_rules import TrafficRules
from structable.testing.conformance.transaction_rules import TransactionRules
from tests.conformance.test_memory import TestMemory as MemoryRules
from tests.metering.sdk import Metrics, measured


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    with measured(monkeypatch) as metrics:
        yield metrics


class TestMeasured(MemoryRules):
    max_examples = 5
    max_steps = 20
    stress_rounds = 20
    interruptions = 2  # they happen in a process without an SDK

    def test_the_storage_is_a_measured_one(self, storage_url: str) -> None:
        with connect(storage_url) as storage:
            assert isinstance(storage, MeasuringStorage)


class TestMeasuredLevelDB(
    TransactionRules, RunnerRules, LifecycleRules, TrafficRules, StoreRules, BulkScanRules, StreamJobRules
):
    """What a storage passes on that a store in memory does not have: other processes, splits, durable jobs."""

    max_examples = 3
    stress_rounds = 10

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"
