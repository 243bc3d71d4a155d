"""A SERIALIZABLE transaction that read a table which a job has overwritten."""

import pyarrow as pa
import pytest

from structable.spi import Field, Isolation, Storage, TableSpecification, TransactionConflictError, connect


def doctors(name: str) -> TableSpecification:
    return TableSpecification(name, [Field.string("id"), Field.string("team"), Field.long("shifts")], ["id"], ["team"])


@pytest.fixture
def storage() -> Storage:
    storage = connect("memory://")
    for name in ("day", "night"):
        storage.admin.create(doctors(name))
        storage.table(name).upsert({"id": "alice", "team": "a", "shifts": 1})
    return storage


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
