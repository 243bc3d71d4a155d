"""Rules of stores that must not be created, and of read-only ones."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from contextlib import closing

import pytest

from structable.spi import (
    Isolation,
    Range,
    Storage,
    StoreNotFoundError,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
    col,
    connect,
    read_split,
)

from .case import ConformanceCase
from .samples import ITEMS, NOTED, item, keys, plain
from .write_rules import writes_of

READS = {
    *("auto_commit", "count", "explain", "multi_read", "multi_scan", "read", "scan", "scan_index", "specification"),
    *("to_arrow", "to_pandas", "to_polars"),
}


def admin_changes_of(storage: Storage) -> dict[str, Callable[[], object]]:
    """Return a call of each method of `TableAdmin` that changes tables."""
    admin = storage.admin
    wider = TableSpecification("noted", NOTED.fields, NOTED.primary_key, indexes=["note"])
    return {
        "create": lambda: admin.create(NOTED),
        "create_or_update": lambda: admin.create_or_update(wider),
        "drop": lambda: admin.drop("items"),
        "drop_index": lambda: admin.drop_index("items", "tag"),
    }


class StoreRules(ConformanceCase):
    """`create` and `read_only`."""

    @pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}, {"create": True, "read_only": True}])
    def test_absent_store_is_not_made(self, absent_url: str, options: dict[str, bool]) -> None:
        """`create=False` and `read_only=True`: an absent store is `StoreNotFoundError`; nothing is created."""
        for _ in range(2):  # the second time reveals whether the first has created anything
            with pytest.raises(StoreNotFoundError, match="create=False"):
                connect(absent_url, **options)
        with connect(absent_url) as made:
            made.admin.create(ITEMS)
            with connect(absent_url, **options) as storage:
                assert storage.admin.list() == ["items"]

    def test_existing_store_without_create(self, storage: Storage, storage_url: str) -> None:
        """`create=False` on an existing store makes no difference: tables can be created, rows written."""
        with connect(storage_url, create=False) as other:
            other.admin.create(ITEMS)
            other.table("items").insert({"id": 1})
        assert keys(storage.table("items").scan()) == [(1,)]

    def test_storage_only_read_reads(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: every read returns the usual result, in both views and at both levels of isolation."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(item(number, tag="even" if number % 2 == 0 else None) for number in range(9))
        with connect(storage_url, read_only=True) as reader:
            assert reader.admin.list() == ["items"]
            assert reader.admin.exists("items")
            assert reader.admin.get_specification("items") == ITEMS
            with pytest.raises(TableNotFoundError):
                reader.table("missing").count()

            def check(table: StructuredTable) -> None:
                rows = plain(storage.table("items").scan())
                assert table.specification == ITEMS
                assert table.read((3,)) == rows[3]
                assert plain(table.multi_read([(5,), (1,)], ["tag"])) == [{"id": n, "tag": None} for n in (1, 5)]
                assert plain(table.scan(reverse=True)) == rows[::-1]
                assert plain(table.multi_scan([Range.below((2,)), Range.at_least((7,))])) == rows[:2] + rows[7:]
                assert keys(table.scan_index("tag", "even", limit=2)) == [(0,), (2,)]
                assert table.count(where=col("tag").is_null()) == 4
                assert str(table.explain(where=col("tag") == "even"))

            check(reader.table("items"))
            for isolation in Isolation:
                for read_only in (False, True):
                    with reader.transaction(isolation, read_only) as transaction:
                        check(transaction.table("items"))
            assert reader.run(lambda transaction: transaction.table("items").count()) == 9

    def test_storage_only_read_sees_commits(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: while another storage of the store is open, later transactions see its commits."""
        storage.admin.create(ITEMS)
        with connect(storage_url, read_only=True) as reader:
            with reader.transaction() as before:
                assert before.table("items").count() == 0
                storage.table("items").insert({"id": 1})
                assert before.table("items").count() == 0
            assert reader.table("items").count() == 1
            assert reader.table("items").read((1,)) is not None
            storage.admin.create(NOTED)
            assert reader.admin.list() == ["items", "noted"]
            assert reader.table("noted").count() == 0

    def test_storage_only_read_plans_scans(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: plans work as usual, all splits of one snapshot, read here or by `read_split`."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(item(number) for number in range(300))
        with connect(storage_url, read_only=True) as reader:
            with reader.plan_scan("items", columns=["id"], splits=3) as plan:
                storage.table("items").delete_all(Range.all())
                batches = [batch for split in plan.splits for batch in reader.read_split(split)]
                if reader.capabilities.multi_process:
                    split = plan.splits[0]
                    again = sum(batch.num_rows for batch in read_split(storage_url, split, read_only=True))
                    assert again == sum(batch.num_rows for batch in reader.read_split(split))
            assert sorted(int(row["id"]) for batch in batches for row in batch.to_pylist()) == list(range(300))

    def test_storage_only_read_refuses_writes(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: every write of a table is `UnsupportedOperationError` when called, in both views."""
        storage.admin.create(ITEMS)
        storage.table("items").insert({"id": 1})
        operations = {name for name, _ in inspect.getmembers(StructuredTable) if not name.startswith("_")}
        with connect(storage_url, read_only=True) as reader:
            for isolation in Isolation:
                with reader.transaction(isolation) as transaction:
                    table = transaction.table("items")
                    writes = writes_of(table)
                    assert writes.keys() == operations - READS
                    for name, write in writes.items():
                        with pytest.raises(UnsupportedOperationError, match=f"^{name} .*read_only=True"):
                            write()
                    assert table.count() == 1  # it continues
            for name, write in writes_of(reader.table("items")).items():
                with pytest.raises(UnsupportedOperationError, match=f"^{name} .*read_only=True"):
                    write()
        assert plain(storage.table("items").scan()) == [item(1)]

    def test_storage_only_read_refuses_changes_of_tables(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: every change of tables is `UnsupportedOperationError`."""
        storage.admin.create(ITEMS)
        with connect(storage_url, read_only=True) as reader:
            for name, change in admin_changes_of(reader).items():
                with pytest.raises(UnsupportedOperationError, match=f"^{name} .*read_only=True"):
                    change()
        assert storage.admin.list() == ["items"]
        assert storage.admin.get_specification("items") == ITEMS

    def test_storage_only_read_refuses_jobs(self, storage: Storage, storage_url: str) -> None:
        """`read_only=True`: every step of a write job, a repair and a compaction are refused."""
        storage.admin.create(ITEMS)
        job = storage.begin_write("items", mode=WriteMode.UPSERT, job_id=uuid.uuid4().hex)
        with connect(storage_url, read_only=True) as reader:
            steps: dict[str, Callable[[], object]] = {
                "begin_write": lambda: reader.begin_write("items", mode="upsert", job_id="another"),
                "stage": lambda: reader.stage(job, 0, 0, []),
                "commit_write": lambda: reader.commit_write(job, []),
                "abort_write": lambda: reader.abort_write(job),
                "repair": reader.repair,
                "compact": reader.compact,
            }
            for name, step in steps.items():
                with pytest.raises(UnsupportedOperationError, match=f"^{name} .*read_only=True"):
                    step()
            list(reader.diagnose())
        storage.commit_write(job, [storage.stage(job, 0, 0, [])])

    def test_storage_only_read_outlives_the_writer(self, storage_url: str) -> None:
        """`read_only=True`: several readers read the committed data after every writer has closed."""
        self.require("restartable")
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
            storage.table("items").upsert_many(item(number, tag="a") for number in range(50))
            reader = connect(storage_url, read_only=True)
            assert reader.table("items").count() == 50
        with closing(reader), connect(storage_url, read_only=True) as another:
            for one in (reader, another):
                assert plain(one.table("items").scan()) == [item(number, tag="a") for number in range(50)]
                assert len(keys(one.table("items").scan_index("tag", "a"))) == 50
            with connect(storage_url) as writer:
                writer.table("items").delete((0,))
            assert another.table("items").read((1,)) is not None
        with connect(storage_url, read_only=True) as after:
            assert after.table("items").count() == 49

    def test_compact_changes_no_row(self, storage: Storage) -> None:
        """`compact` yields its progress from 0 to 1, others continue, and no row changes; or the store refuses it."""
        storage.admin.create(ITEMS)
        table = storage.table(ITEMS.name)
        table.upsert_many(item(number, tag="a") for number in range(100))
        table.delete_all(Range.at_least((50,)))
        try:
            steps = storage.compact()
        except UnsupportedOperationError:
            return
        with storage.transaction(read_only=True) as transaction:
            before = plain(transaction.table(ITEMS.name).scan())
            found = [next(steps)]
            table.upsert(item(7, tag="b"))
            found += steps
            assert plain(transaction.table(ITEMS.name).scan()) == before
        fractions = [one.fraction for one in found]
        assert (fractions, fractions[0], fractions[-1]) == (sorted(fractions), 0, 1)
        assert all(one.bytes >= 0 for one in found)
        assert plain(table.scan()) == [item(number, tag="b" if number == 7 else "a") for number in range(50)]
