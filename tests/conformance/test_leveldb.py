"""The LevelDB store keeps the contract, with several processes on one database."""

from pathlib import Path

import pytest

from structable.spi.conformance import BackendConformance, Capabilities


class TestLevelDB(BackendConformance):
    capabilities = Capabilities(writes_never_wait=True)

    @pytest.fixture
    def storage_url(self, tmp_path: Path) -> str:
        return f"leveldb://{tmp_path}/store"
