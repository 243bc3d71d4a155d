"""Reading a split in a process that has not connected."""

from __future__ import annotations

import threading

import pytest

from structable.backends.hbase.layout import SESSIONS
from structable.backends.hbase.thrift.requests import get_row
from structable.spi import Field, Storage, TableSpecification, TransactionClosedError, connect, read_split

from .support.internals import engine_of, hold_finaliser

_TABLE = TableSpecification("t", [Field.int("k"), Field.long("n")], ["k"])


def sessions_begun(storage: Storage) -> int:
    engine = engine_of(storage)
    cells = engine.gateway.call(get_row(engine.layout.transactions, SESSIONS, [b"c:n"]))
    return int.from_bytes(cells[b"c:n"][0])


def test_a_split_is_read_without_joining(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no session and no thread; values that are still intents, increments among them, are read."""
    with connect(hbase_url) as storage:
        storage.admin.create(_TABLE)
        storage.table("t").upsert_many({"k": k, "n": k} for k in range(100))
        hold_finaliser(monkeypatch)
        with storage.transaction() as transaction:
            for k in range(50, 100):
                transaction.table("t").increment((k,), "n", 1_000)
        sessions, threads = sessions_begun(storage), set(threading.enumerate())
        found: list[int | None] = []
        with storage.plan_scan("t", splits=3) as plan:
            assert len(plan.splits) > 1
            for split in plan.splits:
                for batch in read_split(hbase_url, split):
                    assert set(threading.enumerate()) <= threads
                    found += batch["n"].to_pylist()
        assert sorted(n for n in found if n is not None) == [*range(50), *range(1_050, 1_100)]
        assert sessions_begun(storage) == sessions
        assert engine_of(storage).janitor.inspect().sessions == 1
        with pytest.raises(TransactionClosedError):
            list(read_split(hbase_url, plan.splits[0]))
