"""What fits the frames of a gateway is written and cleaned up; a row that does not is refused with the setting."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    Transaction,
    connect,
)

from .support.fake_gateway import FakeGateway
from .support.internals import drained, engine_of


@pytest.fixture
def framed() -> Iterator[FakeGateway]:
    with FakeGateway(framed=True) as framed:
        yield framed


def quiet(gateway: FakeGateway) -> str:
    """Return the URL of a store that only the writer cleans up."""
    return f"hbase://127.0.0.1:{gateway.port}/p?transport=framed&housekeeping=3600&session_timeout=3600"


def test_row_over_the_frame_limit_is_refused_once() -> None:
    """The error names the limit and its settings; nothing is written, and smaller rows still are."""
    bodies: list[int] = []

    def body(transaction: Transaction) -> None:
        bodies.append(1)
        transaction.table("t").upsert({"k": "large", "b": bytes(200_000)})

    options = "transport=framed&frame_limit=131072"
    with FakeGateway(framed=True) as framed, connect(f"hbase://127.0.0.1:{framed.port}/p?{options}") as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.bytes("b")], ["k"]))
        with pytest.raises(StorageUnavailableError, match=r"200,[0-9]{3} bytes .*\(frame_limit\).*framed") as refusal:
            storage.run(body)
        assert refusal.value.lasting
        assert bodies == [1]
        storage.table("t").upsert({"k": "small", "b": bytes(50_000)})
        assert [row["k"] for row in storage.table("t").scan(columns=["k"])] == ["small"]


def test_counters_whose_keys_exceed_a_frame_are_finalised(framed: FakeGateway) -> None:
    with connect(quiet(framed)) as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.long("n")], ["k"]))
        storage.table("t").increment_many([((f"{number:01950}",), "n", 1) for number in range(1_000)])
        require_finalised(storage)


def test_rows_with_long_keys_are_finalised(framed: FakeGateway) -> None:
    with connect(quiet(framed)) as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.long("n")], ["k"]))
        storage.table("t").upsert_many({"k": f"{number:01990}", "n": 1} for number in range(500))
        require_finalised(storage)


def test_the_largest_row_that_is_taken_is_finalised(framed: FakeGateway) -> None:
    with connect(f"{quiet(framed)}&frame_limit=131072") as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.bytes("b")], ["k"]))
        table = storage.table("t")
        assert any(taken(table, bytes(size)) for size in range(64_000, 63_000, -10))
        require_finalised(storage)


def taken(table: StructuredTable, value: bytes) -> bool:
    """Write a row, and tell whether it fits a frame."""
    try:
        table.upsert({"k": "k" * 1_900, "b": value})
    except StorageUnavailableError:
        return False
    return True


def test_a_job_takes_rows_that_fit_a_frame_alone(framed: FakeGateway) -> None:
    with connect(quiet(framed)) as storage:
        storage.admin.create(TableSpecification("t", [Field.string("k"), Field.bytes("b")], ["k"]))
        rows = [{"k": "a", "b": bytes(300_000)}, {"k": "b", "b": bytes(1_700_000)}]
        job = storage.begin_write("t", mode="upsert", job_id="j")
        staged = storage.stage(job, 0, 0, [pa.RecordBatch.from_pylist(rows)])
        assert storage.commit_write(job, [staged])
        assert [dict(row) for row in storage.table("t").scan()] == rows


def require_finalised(storage: Storage) -> None:
    drained(storage)
    assert engine_of(storage).janitor.inspect().unfinalised == 0
