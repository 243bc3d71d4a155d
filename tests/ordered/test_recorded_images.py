"""Images of changed rows: what commits append to the feeds of tables with the producers lookup and full-compaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import Field, FieldSizeLimitError, Range, Storage, TableSpecification, UnsupportedOperationError
from structable.spi.authors import MAX_ROW_SIZE, lowered_limit

from .recorded import Recorded, commits, last_commit

FIELDS = [Field.int("id"), Field.string("text"), Field.long("n"), Field.double("x"), Field.bytes("raw")]


def spec(**options: str) -> TableSpecification:
    names = {name.replace("_", "-"): value for name, value in options.items()}
    return TableSpecification("items", FIELDS, ["id"], options={"changelog-producer": "lookup", **names})


def bag(**options: str) -> TableSpecification:
    given = {"changelog-producer": "lookup", "write-mode": "change-log", **options}
    return TableSpecification("items", FIELDS, options=given)


class ReadingEngine(MemoryEngine):
    """Describes no merges, so that the rows of tables with images are read and put."""

    traits = replace(MemoryEngine.traits, describes_merges=False)


def made(table: TableSpecification, engine: type[MemoryEngine] = MemoryEngine) -> Storage:
    storage = OrderedStorage(engine(VersionedMap()), "memory://")
    storage.admin.create(table)
    return storage


@pytest.fixture(params=[MemoryEngine, ReadingEngine])
def engine(request: pytest.FixtureRequest) -> type[MemoryEngine]:
    made: type[MemoryEngine] = request.param
    return made


def kinds(records: Iterable[Recorded]) -> list[str]:
    return [record.kind for record in records]


def in_any_order(records: list[Recorded]) -> list[Recorded]:
    """Return records sorted, if each postimage follows its preimage."""
    for place, (kind, row) in enumerate(records):
        if kind == "+U":
            before = records[place - 1]
            assert (before.kind, before.row["id"]) == ("-U", row["id"])
    return sorted(records, key=str)


def test_equal_rows_of_two_layouts_are_no_change() -> None:
    storage = made(spec())
    storage.table("items").upsert({"id": 1, "text": "a"})
    storage.admin.create_or_update(
        TableSpecification("items", [*FIELDS, Field.string("more")], ["id"], options=dict(spec().options))
    )
    storage.table("items").replace({"id": 1, "text": "a"})
    assert len(commits(storage, "items")) == 1
    storage.table("items").upsert({"id": 1, "more": "b"})
    assert last_commit(storage, "items") == [
        ("-U", {"id": 1, "text": "a"}),
        ("+U", {"id": 1, "text": "a", "more": "b"}),
    ]


def test_increments_of_rows_that_were_not_read(engine: type[MemoryEngine]) -> None:
    storage = made(spec(), engine)
    storage.table("items").increment((1,), "n", 2)
    with storage.transaction() as tx:
        tx.table("items").increment_many([((1,), "n", 3), ((2,), "n", 1), ((1,), "n", 1)])
    assert commits(storage, "items")[0] == [("+I", {"id": 1, "n": 2})]
    assert in_any_order(commits(storage, "items")[1]) == [
        ("+I", {"id": 2, "n": 1}),
        ("+U", {"id": 1, "n": 6}),
        ("-U", {"id": 1, "n": 2}),
    ]
    assert storage.table("items").read((1,)) == {"id": 1, "text": None, "n": 6, "x": None, "raw": None}


def test_increments_beside_indexes(engine: type[MemoryEngine]) -> None:
    """An increment that creates a row makes its index entries, one of a row that is there is left to the engine."""
    storage = made(TableSpecification("items", FIELDS, ["id"], ["text"], options=spec().options), engine)
    storage.table("items").insert({"id": 1, "text": "a"})
    with storage.transaction() as tx:
        table = tx.table("items")
        table.insert({"id": 5})
        for key in (1, 2, 3):
            table.increment((key,), "n", 1)
    assert in_any_order(last_commit(storage, "items")) == [
        ("+I", {"id": 2, "n": 1}),
        ("+I", {"id": 3, "n": 1}),
        ("+I", {"id": 5}),
        ("+U", {"id": 1, "text": "a", "n": 1}),
        ("-U", {"id": 1, "text": "a"}),
    ]
    assert [row.id for row in storage.table("items").scan_index("text", None)] == [2, 3, 5]


def test_blind_merges(engine: type[MemoryEngine]) -> None:
    fields = [Field.int("id"), Field.long("total"), Field.long("number")]
    options = {
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "fields.number.aggregate-function": "count",
        "changelog-producer": "lookup",
    }
    storage = made(TableSpecification("items", fields, ["id"], options=options), engine)
    with storage.transaction() as tx:
        table = tx.table("items")
        table.upsert({"id": 1, "total": 3, "number": 9})
        table.upsert({"id": 1, "total": 4})
        table.upsert_many([{"id": 2, "number": 1}])
    storage.table("items").apply_changes([("-D", {"id": 1, "total": 2}), ("+I", {"id": 2, "total": 0})])
    storage.table("items").upsert({"id": 2, "total": 0})
    assert list(map(in_any_order, commits(storage, "items"))) == [
        [("+I", {"id": 1, "total": 7, "number": 1}), ("+I", {"id": 2, "number": 1})],
        [
            ("+U", {"id": 1, "total": 5, "number": 1}),
            ("+U", {"id": 2, "total": 0, "number": 1}),
            ("-U", {"id": 1, "total": 7, "number": 1}),
            ("-U", {"id": 2, "number": 1}),
        ],
    ]


def test_blind_merges_that_are_read_and_put_conflict() -> None:
    """They still commit one after the other, and an overflow comes from the commit."""
    fields = [Field.int("id"), Field.long("total")]
    options = {
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "changelog-producer": "lookup",
    }
    storage = made(TableSpecification("items", fields, ["id"], options=options), ReadingEngine)
    storage.table("items").upsert({"id": 1, "total": 2**63 - 1})
    with pytest.raises(ValueError, match="total"), storage.transaction() as tx:
        tx.table("items").upsert({"id": 1, "total": 1})
    assert kinds(last_commit(storage, "items")) == ["+I"]
    assert len(commits(storage, "items")) == 1


def test_bag_is_net_across_layouts() -> None:
    storage = made(bag())
    storage.table("items").insert({"id": 1, "n": 2})
    storage.admin.create_or_update(TableSpecification("items", [*FIELDS, Field.string("more")], options=bag().options))
    with storage.transaction() as tx:
        tx.table("items").delete_all(Range.all())
        tx.table("items").insert({"id": 1, "n": 2})
    assert len(commits(storage, "items")) == 1


def test_rows_of_the_maximum_size() -> None:
    storage = made(spec())
    table, size = storage.table("items"), MAX_ROW_SIZE - 4
    table.upsert({"id": 1, "raw": b"a" * size})
    table.upsert({"id": 1, "raw": b"b" * size})
    table.update_all(Range.all(), {"raw": b"c" * size})
    assert [kinds(records) for records in commits(storage, "items")] == [["+I"], ["-U", "+U"], ["-U", "+U"]]
    assert last_commit(storage, "items")[1].row == {"id": 1, "raw": b"c" * size}
    with pytest.raises(FieldSizeLimitError):
        table.upsert({"id": 1, "raw": b"d" * (size + 1)})


def test_images_count_for_the_size_of_a_transaction() -> None:
    storage = made(spec())
    storage.admin.create(TableSpecification("plain", FIELDS, ["id"]))
    storage.table("items").upsert({"id": 1, "raw": b"a" * 1_000})
    with lowered_limit(2_500):
        storage.table("plain").upsert_many([{"id": key, "raw": b"b" * 1_000} for key in (1, 2)])
        with pytest.raises(UnsupportedOperationError, match="over the limit"), storage.transaction() as tx:
            tx.table("items").upsert({"id": 1, "raw": b"b" * 1_000})
    assert len(commits(storage, "items")) == 1
