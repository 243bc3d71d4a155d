"""Commits whose outcome is unknown after a failed sync: later commits count them as made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from structable.backends.leveldb.native.database import Database, WriteFailedError
from structable.backends.leveldb.owner import database_handle
from structable.spi import (
    CommitOutcomeUnknownError,
    Field,
    Storage,
    TableSpecification,
    TransactionConflictError,
    col,
    connect,
)
from structable.spi.arrow import arrow_schema

SPEC = TableSpecification("t", [Field.long("k"), Field.string("s")], ["k"], ["s"])
Changes = Mapping[bytes, bytes | None]


@pytest.fixture
def storage(folder: Path) -> Iterator[Storage]:
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(SPEC)
        yield storage


def fail_after(monkeypatch: pytest.MonkeyPatch, is_last: Callable[[list[Changes]], bool]) -> None:
    """Let the sync of one record fail, and its removal from the log, too."""
    real = Database.write

    def write(self: Database, parts: Iterable[Changes], sync: bool) -> None:
        parts = list(parts)
        real(self, parts, sync)
        if sync and is_last(parts):
            monkeypatch.undo()
            monkeypatch.setattr(database_handle, "roll_back", refuse)
            raise WriteFailedError("IO error: fdatasync: Input/output error")

    def refuse(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise OSError("Input/output error")

    monkeypatch.setattr(Database, "write", write)


def stage(storage: Storage, rows: list[dict[str, object]]) -> Callable[[], object]:
    job = storage.begin_write("t", mode="upsert", job_id="j")
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SPEC, ["k", "s"]))
    staged = [storage.stage(job, 0, 0, [batch])]
    return lambda: storage.commit_write(job, staged)


@pytest.mark.parametrize("moment", ["decision", "rows", "completion"])
def test_job_whose_sync_failed_counts_for_others(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    commit = stage(storage, [{"k": 1, "s": "c"}])
    marks = {"decision": b'"applying"', "completion": b'"committed"'}
    if moment == "rows":

        def fail(_: Path) -> None:
            monkeypatch.undo()
            raise OSError("fdatasync: Input/output error")

        monkeypatch.setattr("structable.backends.leveldb.owner.bulk.sync_logs", fail)
    else:
        fail_after(
            monkeypatch,
            lambda parts: any(marks[moment] in (value or b"") for part in parts for value in part.values()),
        )
    transaction = storage.transaction()
    assert transaction.table("t").read((1,)) is None
    with pytest.raises(CommitOutcomeUnknownError):
        commit()
    transaction.table("t").upsert({"k": 1, "s": "a"})
    with pytest.raises(TransactionConflictError):
        transaction.commit()
    check(storage, {"s": "c"})


def test_transaction_whose_sync_failed_counts_for_others(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    later = storage.transaction()
    assert later.table("t").read((1,)) is None
    fail_after(monkeypatch, lambda parts: True)
    with pytest.raises(CommitOutcomeUnknownError):
        storage.table("t").upsert({"k": 1, "s": "c"})
    later.table("t").upsert({"k": 1, "s": "a"})
    with pytest.raises(TransactionConflictError):
        later.commit()
    check(storage, {"s": "c"})


def check(storage: Storage, expected: dict[str, str]) -> None:
    """Check that the row and its index agree."""
    table = storage.table("t")
    rows = [row.key for row in table.scan() if row["s"] == expected["s"]]
    assert rows == [(1,)]
    assert [row.key for row in table.scan_index("s", expected["s"])] == rows
    assert table.count(where=col("s") == expected["s"]) == 1
    assert not list(table.scan_index("s", "a"))
