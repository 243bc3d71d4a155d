"""Rules of schema changes of tables in use: by open transactions, and by writers that continue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    WriteMode,
    col,
    connect,
)

from .case import ConformanceCase
from .merge_case import change_batch, postimage
from .patch_case import patch_batch
from .samples import ITEMS, NOTED, Record, plain
from .schema_change_rules import WIDER
from .write_jobs import batch

NARROW = TableSpecification("noted", [Field.string("id"), Field.string("note"), Field.int("n")], ["id"])
WIDEST = TableSpecification(
    "noted", [Field.int("added"), Field.string("note"), Field.long("n"), Field.string("id")], ["id"], ["note"]
)
"""NARROW with its fields in another order, one of them wider, and a new one."""
WRITES: dict[str, Callable[[StructuredTable], object]] = {
    "upsert": lambda table: table.upsert({"id": "a", "n": 2}),
    "upsert of all fields": lambda table: table.upsert({"id": "a", "note": "x", "n": 2}),
    "upsert_many": lambda table: table.upsert_many([{"id": "a", "n": 2}]),
    "replace": lambda table: table.replace({"id": "a", "note": "x", "n": 2}),
    "replace_many": lambda table: table.replace_many([{"id": "a", "note": "x", "n": 2}]),
    "update": lambda table: table.update({"id": "a", "n": 2}),
    "update_many": lambda table: table.update_many([{"id": "a", "n": 2}]),
    "compare_and_swap": lambda table: table.compare_and_swap(("a",), "n", 1, 2),
    "increment": lambda table: table.increment(("a",), "n"),
    "increment_many": lambda table: table.increment_many([(("a",), "n", 1)]),
}
"""Every way to make `n` 2 in the row {"id": "a", "note": "x", "n": 1}, and below the batches of jobs that do."""
CHANGED: Record = {"id": "a", "n": 2}
JOBS: dict[WriteMode, pa.RecordBatch] = {
    WriteMode.UPSERT: batch([CHANGED], spec=NARROW),
    WriteMode.REPLACE: batch([{**CHANGED, "note": "x"}], spec=NARROW),
    WriteMode.UPDATE: batch([CHANGED], spec=NARROW),
    WriteMode.OVERWRITE: batch([{"note": "x", **CHANGED}], spec=NARROW),
    WriteMode.CHANGES: change_batch(NARROW, [postimage(**CHANGED)]),
    WriteMode.PATCH: patch_batch(NARROW, [("present", CHANGED)]),
}
NEEDED = {WriteMode.CHANGES: "table_types", WriteMode.PATCH: "streams"}
"""The capabilities for their modes."""


class LiveSchemaRules(ConformanceCase):
    """Open transactions keep to one schema, and no write reaches a row by another one."""

    @pytest.fixture
    def hasty(self, storage_url: str) -> Iterator[Storage]:
        """Connect to the fresh store with admin calls that barely wait for open transactions."""
        with connect(storage_url, ddl_timeout=0.5) as storage:
            yield storage

    def change(self, action: Callable[[], None]) -> bool:
        """Run an admin call that may have to wait for open transactions, and return whether it succeeded."""
        try:
            action()
        except StorageUnavailableError:
            return False
        return True

    def test_open_transaction_never_mixes_two_schemas(self, hasty: Storage) -> None:
        """A transaction whose table was changed since its snapshot reads by the old schema, or gets a conflict."""
        hasty.admin.create(NOTED)
        hasty.table("noted").upsert_many([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
        transaction = hasty.transaction()
        before = plain(transaction.table("noted").scan())
        self.change(lambda: hasty.admin.create_or_update(WIDER))
        try:
            table = transaction.table("noted")
            assert plain(table.scan()) == before
            assert table.specification == NOTED
        except TransactionConflictError:
            pass
        finally:
            transaction.rollback()

    def test_open_transaction_never_reads_a_dropped_table_empty(self, hasty: Storage) -> None:
        """A transaction whose table was dropped, and created again, reads its snapshot's rows or gets a conflict."""
        hasty.admin.create(NOTED)
        hasty.table("noted").upsert_many([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
        transaction = hasty.transaction()
        before = plain(transaction.table("noted").scan())

        def make_again() -> None:
            hasty.admin.drop("noted")
            hasty.admin.create(NOTED)
            hasty.table("noted").upsert({"id": "new"})

        self.change(make_again)
        try:
            assert plain(transaction.table("noted").scan()) == before
            row = transaction.table("noted").read(("a",))
            assert row is not None
            assert row["n"] == 1
            assert transaction.table("noted").read(("new",)) is None
        except TransactionConflictError:
            pass
        finally:
            transaction.rollback()

    @pytest.mark.parametrize("write", list(WRITES))
    def test_write_meets_another_schema(self, hasty: Storage, write: str) -> None:
        """A write whose table changes before its commit assigns fields by name, not by position, or conflicts."""
        hasty.admin.create(NARROW)
        hasty.table("noted").upsert({"id": "a", "note": "x", "n": 1})
        transaction = hasty.transaction()
        WRITES[write](transaction.table("noted"))
        changed = self.change(lambda: hasty.admin.create_or_update(WIDEST))
        try:
            transaction.commit()
            expected = 2
        except TransactionConflictError:
            assert changed
            transaction.rollback()
            expected = 1
        found = hasty.table("noted").scan(where=col("note") == "x")
        added = {"added": None} if changed else {}
        assert plain(found) == [{"id": "a", "note": "x", "n": expected, **added}]

    def test_staged_rows_meet_another_schema(self, hasty: Storage) -> None:
        """Rows staged before their table changed are written by field names, under the schema at the commit."""
        for mode, rows in JOBS.items():
            if mode in NEEDED and not getattr(self.capabilities, NEEDED[mode]):
                continue
            hasty.admin.create(NARROW)
            hasty.table("noted").upsert({"id": "a", "note": "x", "n": 1})
            job = hasty.begin_write("noted", mode=mode, job_id=self.fresh_id())
            staged = hasty.stage(job, 0, 0, [rows])
            hasty.admin.create_or_update(WIDEST)
            assert hasty.commit_write(job, [staged])
            found = hasty.table("noted").scan(where=col("note") == "x")
            assert plain(found) == [{"id": "a", "note": "x", "n": 2, "added": None}], mode
            hasty.admin.drop("noted")

    def test_view_meets_another_schema(self, hasty: Storage) -> None:
        """A view that was used before its table changed checks each write against the present schema."""
        hasty.admin.create(NARROW)
        views = {write: hasty.table("noted") for write in WRITES}
        for view in views.values():
            view.upsert({"id": "a", "note": "x", "n": 1})
        hasty.admin.create_or_update(WIDEST)
        for write, view in views.items():
            hasty.table("noted").replace({"id": "a", "note": "x", "n": 1})
            WRITES[write](view)
            found = hasty.table("noted").scan(where=col("note") == "x")
            assert plain(found) == [{"id": "a", "note": "x", "n": 2, "added": None}], write

    @pytest.mark.parametrize("write", ["upsert", "delete", "increment"])
    def test_writes_do_not_reach_a_table_made_again(self, hasty: Storage, write: str) -> None:
        """Writes to a table that is dropped before their commit never appear in a new table of its name."""
        hasty.admin.create(NOTED)
        hasty.table("noted").upsert({"id": "a", "n": 1})
        transaction = hasty.transaction()
        table = transaction.table("noted")
        assert table.count() == 1
        match write:
            case "upsert":
                table.upsert({"id": "b", "n": 2})
            case "delete":
                table.delete(("a",))
            case _:
                table.increment(("a",), "n")

        def make_again() -> None:
            hasty.admin.drop("noted")
            hasty.admin.create(NOTED)
            hasty.table("noted").upsert({"id": "a", "n": 100})

        changed = self.change(make_again)
        self.leave(transaction)
        if changed:
            assert plain(hasty.table("noted").scan()) == [{"id": "a", "note": None, "n": 100}]

    @pytest.mark.parametrize("change", ["create_or_update", "drop", "drop_index"])
    def test_admin_call_waits_at_most_ddl_timeout(self, hasty: Storage, change: str) -> None:
        """An admin call waits for open transactions at most `ddl_timeout`, then fails and has changed nothing."""
        hasty.admin.create(NOTED)
        hasty.admin.create(ITEMS)
        transaction = hasty.transaction()
        transaction.table("noted").upsert({"id": "a"})
        transaction.table("items").upsert({"id": 1})
        changes: dict[str, Callable[[], None]] = {
            "create_or_update": lambda: hasty.admin.create_or_update(WIDER),
            "drop": lambda: hasty.admin.drop("noted"),
            "drop_index": lambda: hasty.admin.drop_index("items", "tag"),
        }
        began = time.monotonic()
        changed = self.change(changes[change])
        assert time.monotonic() - began < 20
        transaction.rollback()
        if not changed:
            assert hasty.admin.get_specification("noted") == NOTED
            assert hasty.admin.get_specification("items") == ITEMS
            changes[change]()
        assert hasty.admin.exists("noted") is (change != "drop")

    def leave(self, transaction: Transaction) -> None:
        """Commit, or roll back on a conflict."""
        try:
            transaction.commit()
        except TransactionConflictError:
            transaction.rollback()

    def test_write_before_a_new_index_is_found_by_it(self, hasty: Storage) -> None:
        """A transaction open while an index is added either gets a conflict, or its rows are found by the index."""
        hasty.admin.create(NOTED)
        hasty.table("noted").upsert_many([{"id": str(number), "note": "x"} for number in range(5)])
        transaction = hasty.transaction()
        transaction.table("noted").upsert({"id": "0", "note": "y"})
        transaction.table("noted").upsert({"id": "9", "note": "x"})
        transaction.table("noted").delete(("1",))
        if not self.change(lambda: hasty.admin.create_or_update(WIDER)):
            self.leave(transaction)
            return
        self.leave(transaction)
        self.assert_index_matches(hasty)

    def assert_index_matches(self, storage: Storage) -> None:
        """Check that an index of NOTED agrees exactly with its rows."""
        with storage.transaction(read_only=True) as transaction:
            table = transaction.table("noted")
            rows = plain(table.scan())
            for note in ("x", "y", "z", None):
                assert plain(table.scan_index("note", note)) == [
                    row for row in rows if row is not None and row["note"] == note
                ]
            assert len(list(table.scan(order_by="note"))) == len(rows)

    def test_index_added_to_a_live_table(self, storage: Storage) -> None:
        """An index added during concurrent writes agrees exactly with the rows, and no write is lost."""
        storage.admin.create(NOTED)
        storage.table("noted").upsert_many(
            [{"id": f"{number:04}", "note": "xyz"[number % 3], "n": 0} for number in range(300)]
        )
        stop = threading.Event()

        def write(worker: int) -> int:
            done = 0
            while not stop.is_set() and done < 10_000:
                key = f"{(done * 7 + worker * 150) % 300:04}"

                def change(transaction: Transaction, key: str = key, done: int = done) -> None:
                    table = transaction.table("noted")
                    table.upsert({"id": key, "note": "zyx"[done % 3]})
                    table.increment((key,), "n")

                storage.run(change, max_attempts=100)
                done += 1
            return done

        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(write, worker) for worker in range(2)]
            try:
                storage.admin.create_or_update(WIDER)
                self.assert_index_matches(storage)
                storage.admin.drop_index("noted", "note")
                storage.admin.create_or_update(WIDER)
            finally:
                stop.set()
            written = sum(writer.result() for writer in writers)
        self.assert_index_matches(storage)
        total = sum(int(str(row["n"])) for row in storage.table("noted").scan())
        assert total == written
