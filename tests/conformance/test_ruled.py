"""Rules of fields change nothing else: the suite on stores whose every table has a renamed and a derived field."""

from pathlib import Path

import pytest

from structable.backends.leveldb import LevelDBBackend
from structable.backends.memory import MemoryBackend
from structable.spi import connect
from structable.testing.conformance.bulk_scans import BulkScanRules
from structable.testing.conformance.feed_job_rules import FeedJobRules
from structable.testing.conformance.feed_rules import FeedRules
from structable.testing.conformance.job_modes import JobModeRules
from structable.testing.conformance.many_rules import ManyRules
from structable.testing.conformance.patch_rules import PatchRules
from structable.testing.conformance.scan_rules import ScanRules
from structable.testing.conformance.state_machine import StateMachineCase
from structable.testing.conformance.stream_job_rules import StreamJobRules
from structable.testing.conformance.update_many_rules import UpdateManyRules
from structable.testing.conformance.write_rules import WriteRules
from tests.conformance.support.ruled import RuledStorage, ruled_stores
from tests.conformance.test_memory import TestMemory as MemoryRules


class TestFillingMemory(MemoryRules):
    """No rule is ready: reads are of the stored fields of which the hidden ones are computed."""

    # Hidden fields take space, are named in lists of differences, and let reads name columns.
    test_too_large_a_transaction_is_refused = None  # type: ignore[assignment]
    test_row_that_is_too_large_in_between = None  # type: ignore[assignment]
    test_rows_staged_under_other_rules_are_refused = None  # type: ignore[assignment]
    test_every_difference_is_listed = None  # type: ignore[assignment]
    test_images_after_a_schema_change = None  # type: ignore[assignment]

    max_examples = 5
    max_steps = 20
    stress_rounds = 20

    @pytest.fixture(autouse=True)
    def _ruled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ruled_stores(monkeypatch, MemoryBackend, ready=False)

    def test_the_store_has_rules(self, storage_url: str) -> None:
        with connect(storage_url) as storage:
            assert isinstance(storage, RuledStorage)


class TestRuledLevelDB(
    WriteRules,
    ManyRules,
    UpdateManyRules,
    ScanRules,
    BulkScanRules,
    JobModeRules,
    StreamJobRules,
    PatchRules,
    FeedRules,
    FeedJobRules,
    StateMachineCase,
):
    """Every rule is ready."""

    test_row_that_is_too_large_in_between = None  # type: ignore[assignment]  # a row takes twice its space

    max_examples = 5
    max_steps = 20
    stress_rounds = 10

    @pytest.fixture(autouse=True)
    def _ruled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ruled_stores(monkeypatch, LevelDBBackend, ready=True)

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"
