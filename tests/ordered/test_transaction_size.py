"""A transaction that no frame can hold is refused before any part of it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi import Field, Storage, TableSpecification, UnsupportedOperationError, Value, connect
from structable.spi.authors import lowered_limit

TABLE = TableSpecification("t", [Field.int("k"), Field.bytes("b")], ["k"])


@pytest.fixture(params=["memory", "leveldb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Open a store whose transactions may write 100,000 bytes."""
    url = "memory://" if request.param == "memory" else f"leveldb://{tmp_path}/store?durability=process"
    with connect(url) as storage, lowered_limit(100_000):
        storage.admin.create(TABLE)
        yield storage


def test_too_much_is_refused_and_the_transaction_goes_on(storage: Storage) -> None:
    """The refused commit writes nothing; some writes can be undone, and the rest committed."""
    tx = storage.transaction()
    table = tx.table("t")
    for k in range(11):
        table.upsert({"k": k, "b": bytes(10_000)})
    with pytest.raises(UnsupportedOperationError, match="over the limit of 100,000"):
        tx.commit()
    assert storage.table("t").count() == 0
    assert not tx.closed
    table.delete((0,))
    table.upsert({"k": 1, "b": b""})
    tx.commit()
    assert storage.table("t").count() == 10


def test_index_entries_count(storage: Storage) -> None:
    """Index entries are written with their rows, and count with them."""
    storage.admin.create(TableSpecification("i", [Field.int("k"), Field.string("tag")], ["k"], indexes=["tag"]))
    rows: list[dict[str, Value]] = [
        {"k": k, "tag": 1_900 * "t"} for k in range(30)
    ]  # 57,000 bytes, and as many of index entries
    with pytest.raises(UnsupportedOperationError, match="over the limit of 100,000"):
        storage.table("i").upsert_many(rows)
    storage.table("i").upsert_many(rows[:20])
    assert storage.table("i").count() == 20


def test_each_increment_counts(storage: Storage) -> None:
    """Increments of one row are sent one by one."""
    storage.admin.create(TableSpecification("n", [Field.int("k"), Field.long("n")], ["k"]))
    tx = storage.transaction()
    for _ in range(3_000):
        tx.table("n").increment((1,), "n")
    with pytest.raises(UnsupportedOperationError, match="over the limit of 100,000"):
        tx.commit()
    tx.rollback()
    assert storage.table("n").read((1,)) is None
