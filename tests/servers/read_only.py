"""A table of 500 rows, and all reads of a storage with `read_only=True`."""

from __future__ import annotations

from structable.spi import Field, Isolation, Range, Storage, TableSpecification, col, connect, read_split

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n"), Field.string("s")], ["k"], ["s"])


def fill(storage: Storage) -> None:
    storage.admin.create(TABLE)
    storage.table("t").upsert_many({"k": k, "s": "ab"[k % 2], "n": k} for k in range(500))


def read_everything(url: str) -> None:
    with connect(url, read_only=True) as storage:
        assert storage.admin.list() == ["t"]
        assert storage.admin.get_specification("t") == TABLE
        view = storage.table("t")
        assert view.read((1,)) is not None
        assert len(view.multi_read([(1,), (2,)])) == 2
        assert view.count(where=col("n") < 10) == 10
        assert len(list(view.scan(order_by="s", reverse=True))) == 500
        assert len(list(view.scan_index("s", "a"))) == 250
        for isolation in Isolation:
            with storage.transaction(isolation) as transaction:
                assert transaction.table("t").count([Range.prefix((5,))]) == 1
                assert len(list(transaction.table("t").scan())) == 500
        with storage.plan_scan("t", splits=3) as plan:
            assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == 500
            assert sum(batch.num_rows for s in plan.splits for batch in read_split(url, s, read_only=True)) == 500
        list(storage.diagnose())
