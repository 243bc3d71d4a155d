import gc

import pytest

from structable.spark_bridge.garbage_collection import freeze_imports


@pytest.mark.parametrize(("reused", "spared"), [(True, True), (False, False)], ids=["reused", "own"])
def test_imported_modules_are_frozen_in_reused_processes(
    monkeypatch: pytest.MonkeyPatch, reused: bool, spared: bool
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    if reused:
        monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    before = gc.get_freeze_count()
    try:
        freeze_imports.__wrapped__()
        assert (gc.get_freeze_count() > before) is spared
    finally:
        gc.unfreeze()
