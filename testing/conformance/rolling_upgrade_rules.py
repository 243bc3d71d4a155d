"""Rules of `create_or_update` in a rolling upgrade: programs of two releases start and work on one table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from structable.spi import Field, FieldType, Storage, TableSpecification, connect
from structable.spi.arrow import rows_to_batches
from structable.spi.authors import plan_schema_change

from .case import ConformanceCase
from .samples import Record, keys, plain

OLD = TableSpecification(
    "jobs",
    [Field.long("id"), Field.string("state"), Field.short("tries"), Field.float("cost")],
    primary_key=["id"],
    indexes=["state"],
)
NEW = TableSpecification(
    "jobs",
    [Field.long("id"), Field.string("owner"), Field.double("cost"), Field.long("tries"), Field.string("state")],
    primary_key=["id"],
    indexes=["owner", "tries", "state"],
)
"""OLD with one more field, wider numbers and more indexes, in another order."""

MIXED = TableSpecification(
    "jobs",
    [Field.date("day"), Field.int("tries"), Field.string("state"), Field.long("id"), Field.double("cost")],
    primary_key=["id"],
    indexes=["day", "state"],
)
"""A specification without the additions of NEW, but with a field and an index that NEW lacks."""

TOTALS = {"merge-engine": "aggregation", "fields.total.aggregate-function": "sum"}


class RollingUpgradeRules(ConformanceCase):
    """A program of an earlier release starts next to a newer one: the table keeps all that only the newer one knows."""

    @pytest.fixture
    def older(self, storage_url: str) -> Iterator[Storage]:
        """Connect once more, as a program of the earlier release; its admin calls wait only briefly."""
        with connect(storage_url, ddl_timeout=0.5) as storage:
            yield storage

    @pytest.mark.parametrize(
        "spec",
        [
            OLD,
            NEW.evolve(fields=[one for one in NEW.fields if one.name != "owner"], indexes=["tries", "state"]),
            NEW.evolve(indexes=["state"]),
            NEW.evolve(indexes=[]),
            *(
                NEW.evolve(fields=[*(one for one in NEW.fields if one.name != "tries"), Field("tries", kind)])
                for kind in (FieldType.BYTE, FieldType.SHORT, FieldType.INT)
            ),
            NEW.evolve(fields=[*(one for one in NEW.fields if one.name != "cost"), Field.float("cost")]),
            TableSpecification("jobs", [Field.long("id")], ["id"]),
        ],
        ids=["older", "field", "index", "indexes", "byte", "short", "int", "float", "key alone"],
    )
    def test_table_keeps_what_a_specification_lacks(self, storage: Storage, spec: TableSpecification) -> None:
        """Fields outside the key, indexes and wider numbers that a specification lacks stay as they are."""
        storage.admin.create(NEW)
        table = storage.table("jobs")
        rows: list[Record] = [
            {"id": 1, "owner": "ada", "state": "done", "tries": 2**40, "cost": 0.1},
            {"id": 2, "owner": None, "state": "new", "tries": None, "cost": None},
        ]
        table.upsert_many(rows)
        storage.admin.create_or_update(spec)
        assert storage.admin.get_specification("jobs") == table.specification == NEW
        assert plain(table.scan()) == rows
        assert keys(table.scan_index("owner", "ada")) == keys(table.scan_index("tries", 2**40)) == [(1,)]
        table.update({"id": 2, "owner": "ada", "tries": -(2**40), "cost": 0.1})
        assert table.read((2,)) == {**rows[1], "owner": "ada", "tries": -(2**40), "cost": 0.1}
        assert keys(table.scan_index("owner", "ada")) == [(1,), (2,)]

    def test_mixed_specification_adds_what_is_new_and_keeps_the_rest(self, storage: Storage) -> None:
        """A specification that lacks some fields and adds others appends the new ones, and the table keeps the rest."""
        before = NEW.evolve(fields=[*NEW.fields[:2], Field.float("cost"), *NEW.fields[3:]], indexes=["owner"])
        storage.admin.create(before)
        table = storage.table("jobs")
        table.upsert_many([{"id": 1, "owner": "ada", "state": "done", "tries": 2**40}, {"id": 2, "cost": 0.5}])
        storage.admin.create_or_update(MIXED)
        found = storage.admin.get_specification("jobs")
        assert found.fields == (*NEW.fields, Field.date("day"))
        assert set(found.indexes) == {"owner", "day", "state"}
        table.upsert({"id": 2, "day": dt.date(2026, 1, 5), "cost": 0.1, "owner": "bob"})
        assert plain(table.scan()) == [
            {"id": 1, "owner": "ada", "state": "done", "tries": 2**40, "cost": None, "day": None},
            {"id": 2, "owner": "bob", "state": None, "tries": None, "cost": 0.1, "day": dt.date(2026, 1, 5)},
        ]
        assert keys(table.scan_index("state", "done")) == keys(table.scan_index("day", None)) == [(1,)]
        assert keys(table.scan_index("owner", "bob")) == keys(table.scan_index("day", dt.date(2026, 1, 5))) == [(2,)]

    @pytest.mark.parametrize("starts", [[OLD, NEW, OLD, MIXED, NEW, OLD], [MIXED, OLD, NEW, MIXED]])
    def test_restarts_never_drop(self, storage: Storage, starts: list[TableSpecification]) -> None:
        """Whichever releases start in whatever order, the table has what each needs, and no start takes that away."""
        storage.admin.create_or_update(starts[0])
        found = storage.admin.get_specification("jobs")
        for spec in starts[1:]:
            before = found
            storage.admin.create_or_update(spec)
            found = storage.admin.get_specification("jobs")
            assert all(plan_schema_change(found, known).empty for known in (before, spec)), f"{found} after {spec}"
            assert set(found.field_names) == {*before.field_names, *spec.field_names}
            assert set(found.indexes) == {*before.indexes, *spec.indexes}
        for spec in starts:
            storage.admin.create_or_update(spec)
        assert storage.admin.get_specification("jobs") == found

    def test_dropped_index_returns_with_a_release_that_has_it(self, storage: Storage) -> None:
        """After `drop_index` the start of a release that lacks the index leaves it out; one that has it adds it."""
        storage.admin.create(NEW)
        table = storage.table("jobs")
        table.upsert({"id": 1, "owner": "ada"})
        storage.admin.drop_index("jobs", "owner")
        storage.admin.create_or_update(OLD)
        assert storage.admin.get_specification("jobs").indexes == ("tries", "state")
        table.upsert({"id": 2, "owner": "ada"})
        storage.admin.create_or_update(NEW)
        assert set(storage.admin.get_specification("jobs").indexes) == set(NEW.indexes)
        assert keys(table.scan_index("owner", "ada")) == [(1,), (2,)]

    def test_older_release_works_beside_a_newer(self, storage: Storage, older: Storage) -> None:
        """A program of the older release reads all fields, and its writes are checked by the table's types."""
        older.admin.create_or_update(OLD)
        old, new = older.table("jobs"), storage.table("jobs")
        old.upsert_many([{"id": number, "state": "new", "tries": 1} for number in range(1, 5)])
        storage.admin.create_or_update(NEW)
        new.upsert_many([{"id": number, "owner": "ada", "tries": 2**40} for number in range(1, 5)])
        for start_again in (False, True):
            if start_again:
                older.admin.create_or_update(OLD)
            assert old.read((1,)) == {"id": 1, "owner": "ada", "state": "new", "tries": 2**40, "cost": None}
            assert old.read((1,), ["state"]) == {"id": 1, "state": "new"}
            assert keys(old.scan_index("owner", "ada")) == [(1,), (2,), (3,), (4,)]
            assert old.specification == NEW
        old.upsert({"id": 1, "state": "done", "cost": 0.1})
        old.update({"id": 2, "state": "done"})
        old.replace({"id": 3, "state": "done", "tries": 1})
        old.increment((4,), "tries", 2**40)
        old.insert({"id": 5, "state": "new", "tries": 2**40})
        assert plain(new.scan()) == [
            {"id": 1, "owner": "ada", "state": "done", "tries": 2**40, "cost": 0.1},
            {"id": 2, "owner": "ada", "state": "done", "tries": 2**40, "cost": None},
            {"id": 3, "owner": None, "state": "done", "tries": 1, "cost": None},
            {"id": 4, "owner": "ada", "state": "new", "tries": 2**41, "cost": None},
            {"id": 5, "owner": None, "state": "new", "tries": 2**40, "cost": None},
        ]
        assert keys(new.scan_index("owner", "ada")) == [(1,), (2,), (4,)]

    def test_older_release_stages_rows_by_its_own_specification(self, storage: Storage) -> None:
        """A job takes batches with the types of an older specification; the columns that they lack stay."""
        storage.admin.create(NEW)
        table = storage.table("jobs")
        table.upsert({"id": 1, "owner": "ada", "tries": 2**40})
        job = storage.begin_write("jobs", mode="upsert", job_id=self.fresh_id())
        rows: list[Record] = [{"id": 1, "tries": -(2**15), "cost": 0.5}, {"id": 2, "tries": 2**15 - 1, "state": "new"}]
        storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(OLD, rows))])
        assert plain(table.scan()) == [
            {"id": 1, "owner": "ada", "state": None, "tries": -(2**15), "cost": 0.5},
            {"id": 2, "owner": None, "state": "new", "tries": 2**15 - 1, "cost": None},
        ]
        assert keys(table.scan_index("tries", 2**15 - 1)) == [(2,)]

    def test_start_that_changes_nothing_disturbs_no_transaction(self, storage: Storage, older: Storage) -> None:
        """A call without a change writes nothing: it waits for no open transaction, and no transaction conflicts."""
        storage.admin.create(NEW)
        table = storage.table("jobs")
        table.upsert_many([{"id": 1, "owner": "ada"}, {"id": 2, "owner": "bob"}])
        with storage.transaction() as writing, storage.transaction() as reading:
            writing.table("jobs").upsert({"id": 1, "owner": "eve"})
            before = plain(reading.table("jobs").scan())
            for spec in (OLD, NEW, NEW.evolve(fields=NEW.fields[::-1], indexes=NEW.indexes[::-1])):
                older.admin.create_or_update(spec)
            writing.table("jobs").insert({"id": 3, "owner": "eve"})
            assert keys(writing.table("jobs").scan_index("owner", "eve")) == [(1,), (3,)]
            assert plain(reading.table("jobs").scan()) == before
            reading.table("jobs").upsert({"id": 4})
        assert storage.admin.get_specification("jobs") == NEW
        assert keys(table.scan()) == [(1,), (2,), (3,), (4,)]

    def test_older_release_merges_beside_a_newer(self, storage: Storage) -> None:
        """A specification that lacks a field lacks its options, too: the table keeps them, and merges by them."""
        self.require("table_types")
        old = TableSpecification("sums", [Field.long("id"), Field.int("total")], ["id"], options=TOTALS)
        new = old.evolve(
            fields=[Field.long("id"), Field.long("total"), Field.int("most"), Field.string("last")],
            options={**TOTALS, "fields.most.aggregate-function": "max", "user.release": "2"},
        )
        storage.admin.create_or_update(old)
        storage.admin.create_or_update(new)
        table = storage.table("sums")
        table.upsert({"id": 1, "total": 2**40, "most": 5, "last": "a"})
        storage.admin.create_or_update(old)
        assert storage.admin.get_specification("sums") == new
        table.upsert({"id": 1, "total": 1})
        table.upsert({"id": 1, "total": 1, "most": 3, "last": None})
        assert table.read((1,)) == {"id": 1, "total": 2**40 + 2, "most": 5, "last": "a"}
        own = {"fields.least.aggregate-function": "min", "user.note": "x"}
        storage.admin.create_or_update(old.evolve(fields=[*old.fields, Field.int("least")], options={**TOTALS, **own}))
        both = new.evolve(fields=[*new.fields, Field.int("least")], options={**new.options, **own})
        assert storage.admin.get_specification("sums") == both
