"""The command that rewrites a store."""

from pathlib import Path

from structable.spi import connect
from tests.cli.conftest import Command, Fails
from tests.cli.support.samples import RUNS, RUNS_ROWS


def test_sizes_before_and_after(structable: Command, tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/store?compression=snappy"
    with connect(url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many(RUNS_ROWS)
    outcome = structable("compact", url)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{url} is compacted: ")
    assert " bytes in place of " in outcome.out
    with connect(url) as storage:
        assert storage.table("runs").count() == len(RUNS_ROWS)


def test_a_store_that_is_not_compacted(fails: Fails, tmp_path: Path) -> None:
    with connect("memory://uncompacted") as storage:
        storage.admin.create(RUNS)
        assert "memory://uncompacted cannot be compacted" in fails(1, "compact", "memory://uncompacted")
    assert "does not exist" in fails(3, "compact", f"leveldb://{tmp_path}/absent")
