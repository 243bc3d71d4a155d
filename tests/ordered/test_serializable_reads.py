"""Reads of a SERIALIZABLE transaction other than keys and intervals of keys."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    Isolation,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    col,
    connect,
)


def doctors(name: str) -> TableSpecification:
    return TableSpecification(name, [Field.string("id"), Field.string("team"), Field.long("shifts")], ["id"], ["team"])


@pytest.fixture
def storage() -> Storage:
    storage = connect("memory://")
    for name in ("day", "night"):
        storage.admin.create(doctors(name))
        storage.table(name).upsert({"id": "alice", "team": "a", "shifts": 1})
    return storage


def read_by_index(table: StructuredTable) -> object:
    return [row.shifts for row in table.scan_index("team", "a")]


def count_by_index(table: StructuredTable) -> object:
    return table.count(where=(col("team") == "a") & (col("shifts") > 0))


def read_in_order_of_index(table: StructuredTable) -> object:
    return [row.shifts for row in table.scan(order_by="team", limit=5)]


def change_none_by_index(table: StructuredTable) -> object:
    return table.update_all(Range.all(), {"shifts": 9}, where=(col("team") == "a") & (col("shifts") == 7))


@pytest.mark.parametrize("look", [read_by_index, count_by_index, read_in_order_of_index, change_none_by_index])
def test_rows_found_by_an_index_are_read(storage: Storage, look: Callable[[StructuredTable], object]) -> None:
    """Write skew through fields outside of the index: the entries that both have read do not change."""
    one, other = storage.transaction(Isolation.SERIALIZABLE), storage.transaction(Isolation.SERIALIZABLE)
    look(one.table("day"))
    look(other.table("night"))
    one.table("night").upsert({"id": "alice", "shifts": 0})
    other.table("day").upsert({"id": "alice", "shifts": 0})
    one.commit()
    with pytest.raises(TransactionConflictError):
        other.commit()


def test_an_overwritten_table_that_was_only_read_conflicts(storage: Storage) -> None:
    """The writer must precede the job, whose rows it did not see, and follow the witness, which saw only the job."""
    writer = storage.transaction(Isolation.SERIALIZABLE)
    assert writer.table("day").read(("alice",)) is not None
    job = storage.begin_write("day", mode="overwrite", job_id="overwrite")
    staged = storage.stage(job, 0, 0, [pa.record_batch({"id": ["bob"]})])
    storage.commit_write(job, [staged])
    with storage.transaction(Isolation.SERIALIZABLE) as witness:
        assert witness.table("day").read(("alice",)) is None
        assert witness.table("night").read(("alice",))["shifts"] == 1  # type: ignore[index]
    writer.table("night").upsert({"id": "alice", "shifts": 2})
    with pytest.raises(TransactionConflictError):
        writer.commit()
