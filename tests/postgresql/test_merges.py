"""Merges on PostgreSQL: their SQL does what `Merger` says, and the server's answers may get lost."""

from __future__ import annotations

from structable.spi import Field, TableSpecification, connect


def test_replace_after_an_increment_of_an_absent_row(postgresql_url: str) -> None:
    """A row that a transaction knows to be absent is there after an increment and a replace."""
    spec = TableSpecification("t", [Field.int("k"), Field.int("n")], ["k"])
    with connect(postgresql_url) as storage:
        storage.admin.create(spec)
        with storage.transaction() as transaction:
            table = transaction.table("t")
            assert table.read((1,)) is None
            table.increment((1,), "n")
            table.replace({"k": 1, "n": 7})
        assert storage.table("t").read((1,)) == {"k": 1, "n": 7}
