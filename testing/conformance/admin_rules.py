"""Rules of `TableAdmin`: creating, listing and dropping tables, and taking indexes away."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    Renamed,
    Storage,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    col,
)

from .case import ConformanceCase
from .samples import GRID, ITEMS, NOTED, item, keys, plain


class AdminRules(ConformanceCase):
    """`TableAdmin`: tables are made, changed and dropped."""

    def test_create_and_exists(self, storage: Storage) -> None:
        """`create` makes an empty table; `exists` finds it by exactly its name."""
        assert not storage.admin.exists("items")
        storage.admin.create(ITEMS)
        assert storage.admin.exists("items")
        assert not storage.admin.exists("ITEMS")
        assert not storage.admin.exists("item")
        assert storage.table("items").count() == 0

    def test_create_twice(self, storage: Storage) -> None:
        """`create` of a table that exists is `TableAlreadyExistsError`, whatever the specification; the table stays."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1})
        for spec in (ITEMS, TableSpecification("items", [Field.int("other")], ["other"])):
            with pytest.raises(TableAlreadyExistsError) as refusal:
                storage.admin.create(spec)
            assert refusal.value.table == "items"
        assert storage.admin.get_specification("items") == ITEMS
        assert plain(storage.table("items").scan()) == [item(1)]

    @pytest.mark.parametrize("method", ["create", "create_or_update"])
    def test_names_that_differ_by_case_alone(self, storage: Storage, method: str) -> None:
        """No two tables may differ by case alone: `InvalidSpecificationError`."""
        storage.admin.create(ITEMS)
        twin = TableSpecification("Items", ITEMS.fields, ITEMS.primary_key, ITEMS.indexes)
        with pytest.raises(InvalidSpecificationError):
            getattr(storage.admin, method)(twin)
        assert storage.admin.list() == ["items"]
        storage.admin.drop("items")
        getattr(storage.admin, method)(twin)
        assert storage.admin.list() == ["Items"]

    def test_unknown_table(self, storage: Storage) -> None:
        """A table that does not exist is `TableNotFoundError`, wherever it is named."""
        for refused in (
            lambda: storage.admin.get_specification("missing"),
            lambda: storage.admin.drop_index("missing", "tag"),
            lambda: storage.begin_write("missing", mode="upsert", job_id="job"),
        ):
            with pytest.raises(TableNotFoundError) as refusal:
                refused()
            assert refusal.value.table == "missing"
        for name in ("missing", "\ud800", ["items"], 5, None):
            with storage.transaction() as transaction, pytest.raises(TableNotFoundError):
                transaction.table(cast(str, name))
            with pytest.raises(TableNotFoundError):
                storage.table(cast(str, name)).count()
            assert not storage.admin.exists(cast(str, name))

    def test_names_are_exact_case_when_looked_up(self, storage: Storage) -> None:
        """Names keep their case: another case is another, absent table."""
        storage.admin.create(ITEMS)
        with pytest.raises(TableNotFoundError):
            storage.admin.get_specification("Items")
        storage.admin.drop("ITEMS")
        assert storage.admin.list() == ["items"]

    def test_list_in_code_point_order(self, storage: Storage) -> None:
        """`list()` gives the names in code point order: capitals first, underscores between."""
        assert storage.admin.list() == []
        names = ["b", "a", "Z", "a_b", "aB", "a1", "B2"]
        for name in names:
            storage.admin.create(TableSpecification(name, [Field.int("k")], ["k"]))
        assert storage.admin.list() == sorted(names)

    def test_drop(self, storage: Storage) -> None:
        """`drop` removes the table; an absent one is not an error."""
        storage.admin.create(ITEMS)
        storage.admin.create(NOTED)
        storage.table("items").upsert({"id": 1})
        storage.table("noted").upsert({"id": "n"})
        storage.admin.drop("items")
        storage.admin.drop("items")
        storage.admin.drop("never was")
        assert storage.admin.list() == ["noted"]
        with pytest.raises(TableNotFoundError):
            storage.table("items").read((1,))
        assert keys(storage.table("noted").scan()) == [("n",)]

    def test_table_created_again_is_empty(self, storage: Storage) -> None:
        """A table created again under a dropped name is empty, in rows and indexes, also with another schema."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([item(number, tag="a", rank=1) for number in range(50)])
        storage.admin.drop("items")
        storage.admin.create(ITEMS)
        table = storage.table("items")
        assert table.count() == 0
        assert keys(table.scan_index("tag", "a")) == []
        assert keys(table.scan(order_by="rank")) == []
        table.upsert({"id": 7, "rank": 1})
        assert plain(table.scan_index("rank", 1)) == [item(7, rank=1)]
        storage.admin.drop("items")
        storage.admin.create(TableSpecification("items", [Field.string("name"), Field.bytes("id")], ["name"]))
        assert storage.table("items").count() == 0
        storage.table("items").upsert({"name": "x", "id": b"7"})
        assert plain(storage.table("items").scan()) == [{"name": "x", "id": b"7"}]

    def test_drop_index(self, storage: Storage) -> None:
        """`drop_index` removes an index: the field stays, filters on it still work, other indexes stay."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        table.upsert_many([item(1, tag="a", rank=1), item(2, tag="b", rank=1)])
        storage.admin.drop_index("items", "tag")
        assert storage.admin.get_specification("items").indexes == ("rank",)
        assert storage.table("items").specification.indexes == ("rank",)
        with pytest.raises(InvalidFieldError):
            table.scan_index("tag", "a")
        with pytest.raises(InvalidFieldError):
            table.scan(order_by="tag")
        assert keys(table.scan(where=col("tag") == "a")) == [(1,)]
        assert keys(table.scan_index("rank", 1)) == [(1,), (2,)]
        table.upsert({"id": 1, "tag": "x" * 5000})  # without an index only the row's limit applies
        assert table.count(where=col("tag") == "x" * 5000) == 1

    def test_drop_index_that_is_not_there(self, storage: Storage) -> None:
        """`drop_index` of a field without an index is `InvalidFieldError`."""
        storage.admin.create(ITEMS)
        for field in ("n", "id", "unknown"):
            with pytest.raises(InvalidFieldError):
                storage.admin.drop_index("items", field)
        assert storage.admin.get_specification("items") == ITEMS

    def test_index_made_again_covers_what_happened_without_it(self, storage: Storage) -> None:
        """An index that is dropped and added again covers the present rows."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        table.upsert_many([item(number, tag="old") for number in range(6)])
        storage.admin.drop_index("items", "tag")
        table.upsert_many([{"id": 0, "tag": "new"}, {"id": 6, "tag": "new"}])
        table.delete((1,))
        storage.admin.create_or_update(ITEMS)
        assert keys(table.scan_index("tag", "old")) == [(2,), (3,), (4,), (5,)]
        assert keys(table.scan_index("tag", "new")) == [(0,), (6,)]
        assert keys(table.scan(order_by="tag")) == [(0,), (6,), (2,), (3,), (4,), (5,)]

    def test_many_tables(self, storage: Storage) -> None:
        """Tables are independent of one another, whatever their schemas."""
        for spec in (ITEMS, GRID, NOTED):
            storage.admin.create(spec)
        with storage.transaction() as transaction:
            transaction.table("items").upsert({"id": 1})
            transaction.table("grid").upsert({"k1": 1, "k2": 1, "k3": "a"})
            transaction.table("noted").upsert({"id": "1"})
        for name in ("items", "grid", "noted"):
            assert storage.table(name).count() == 1

    def test_threads_that_create_one_table(self, storage: Storage) -> None:
        """One of several threads that create a table at once wins; the others get `TableAlreadyExistsError`."""
        for number in range(3):
            spec = TableSpecification(f"t{number}", [Field.int("k"), Field.int("v")], ["k"], ["v"])
            barrier = threading.Barrier(4)

            def create(spec: TableSpecification = spec, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                try:
                    storage.admin.create(spec)
                except TableAlreadyExistsError:
                    return False
                return True

            with ThreadPoolExecutor(4) as pool:
                created = [future.result() for future in [pool.submit(create) for _ in range(4)]]
            assert sorted(created) == [False, False, False, True]
            storage.table(spec.name).upsert({"k": 1, "v": 1})
            assert keys(storage.table(spec.name).scan_index("v", 1)) == [(1,)]

    def test_threads_that_add_different_fields(self, storage: Storage) -> None:
        """Each call is atomic: of two concurrent changes, each is applied whole, and neither undoes the other."""
        storage.admin.create(NOTED)
        barrier = threading.Barrier(2)

        def widen(name: str) -> None:
            spec = TableSpecification("noted", [*NOTED.fields, Field.int(name)], NOTED.primary_key, [name])
            barrier.wait()
            storage.admin.create_or_update(spec)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(widen, "xy"))
        found = storage.admin.get_specification("noted")
        assert sorted(found.field_names) == ["id", "n", "note", "x", "y"]
        assert sorted(found.indexes) == ["x", "y"]

    def test_create_while_others_commit(self, storage: Storage) -> None:
        """Creating a table does not disturb transactions on others: they commit, or get a conflict and are retried."""
        storage.admin.create(NOTED)
        transaction = storage.transaction()
        transaction.table("noted").upsert({"id": "1", "n": 1})
        storage.admin.create(ITEMS)
        try:
            transaction.commit()
        except TransactionConflictError:
            storage.table("noted").upsert({"id": "1", "n": 1})
        assert keys(storage.table("noted").scan()) == [("1",)]

    def test_store_without_rules_refuses_them(self, storage: Storage) -> None:
        """A store without rules of fields refuses them, and `drop_field`; it makes and changes nothing."""
        if self.capabilities.field_rules:
            pytest.skip("the store has rules of fields")
        spec = NOTED.evolve(fields=[*NOTED.fields, Field.string("remark")])
        rules = [Renamed("note", "remark", ready=True)]
        for create in (storage.admin.create, storage.admin.create_or_update):
            with pytest.raises(UnsupportedOperationError):
                create(spec.evolve(rules=rules))
        assert storage.admin.list() == []
        storage.admin.create(spec)
        with pytest.raises(UnsupportedOperationError):
            storage.admin.set_rules("noted", rules)
        with pytest.raises(UnsupportedOperationError):
            storage.admin.drop_field("noted", "n")
        assert storage.admin.get_specification("noted") == spec
