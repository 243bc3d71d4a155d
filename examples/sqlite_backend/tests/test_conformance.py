"""The whole proof: structable's conformance suite, on this backend."""

from pathlib import Path

import pytest

from structable.testing.conformance import BackendConformance


class TestSQLite(BackendConformance):
    # Enough for each change; the defaults try more.
    max_examples = 15
    max_steps = 25
    stress_rounds = 20

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/tables.db?durability=process"
