"""The producer input: what the verbs of transactions append to a feed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import (
    Field,
    Range,
    Storage,
    StructableError,
    StructuredTable,
    TableSpecification,
    Value,
    col,
)

from .recorded import commits, last_commit

FIELDS = [Field.int("id"), Field.string("text"), Field.long("n")]
ALL = Range.all()


def made(**options: str) -> Storage:
    key = [] if "write_mode" in options else ["id"]
    names = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    storage = OrderedStorage(MemoryEngine(VersionedMap()), "memory://")
    given = {"changelog-producer": "input", **names}
    storage.admin.create(TableSpecification("items", FIELDS, key, ["text"] if key else [], options=given))
    return storage


def test_records_are_in_the_order_of_the_calls() -> None:
    storage = made()
    with storage.transaction() as tx:
        table = tx.table("items")
        table.insert({"id": 1, "text": "a"})
        table.upsert({"id": 1, "n": 5})
        table.upsert_many([{"id": 2, "text": "b", "n": 1}, {"id": 1, "text": "c"}])
        table.replace({"id": 1, "n": 7})
        table.delete((2,))
        table.delete((2,))
        table.insert_many([{"id": 4}, {"id": 3}])
        table.apply_changes([("-U", {"id": 4, "text": "x"}), ("+I", {"id": 4, "n": 1}), ("-D", {"id": 9})])
    assert commits(storage, "items") == [
        [
            ("+I", {"id": 1, "text": "a"}),
            ("+U", {"id": 1, "n": 5}),
            ("+U", {"id": 2, "text": "b", "n": 1}),
            ("+U", {"id": 1, "text": "c"}),
            ("+U", {"id": 1, "n": 7}),
            ("-D", {"id": 2}),
            ("-D", {"id": 2}),
            ("+I", {"id": 4}),
            ("+I", {"id": 3}),
            ("-U", {"id": 4, "text": "x"}),
            ("+I", {"id": 4, "n": 1}),
            ("-D", {"id": 9}),
        ]
    ]
    assert [dict(row) for row in storage.table("items").scan()] == [
        {"id": 1, "text": None, "n": 7},
        {"id": 3, "text": None, "n": None},
        {"id": 4, "text": None, "n": 1},
    ]


def test_a_whole_row_is_encoded_once() -> None:
    storage = made()
    row: dict[str, Value] = {"id": 1, "text": "a", "n": 1}
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_filename)

    with storage.transaction() as tx:
        table = tx.table("items")
        table.upsert(row)  # generates the encoder
        sys.setprofile(note)
        try:
            table.upsert(row)
            table.upsert_many([{**row, "id": 2}, {**row, "id": 3}])
        finally:
            sys.setprofile(None)
    assert called.count("<generated encode>") == 3
    assert [given["id"] for _, given in last_commit(storage, "items")] == [1, 1, 2, 3]


def test_other_verbs_record_the_row_after_them() -> None:
    storage = made()
    storage.table("items").insert({"id": 1, "text": "a"})
    with storage.transaction() as tx:
        table = tx.table("items")
        table.update({"id": 1, "n": 1})
        table.update({"id": 2, "n": 1}, default={"text": "new"})
        table.increment((1,), "n", 2)
        table.increment((3,), "n", 4)
        table.increment_many([((2,), "n", 1), ((1,), "n", 1), ((2,), "n", 1)])
        assert table.compare_and_swap((1,), "text", "a", "b")
        assert table.update_all(Range.all(), {"text": "all"}, col("id") > 1) == 2
    assert last_commit(storage, "items") == [
        ("+U", {"id": 1, "text": "a", "n": 1}),
        ("+U", {"id": 2, "text": "new", "n": 1}),
        ("+U", {"id": 1, "text": "a", "n": 3}),
        ("+U", {"id": 3, "n": 4}),
        ("+U", {"id": 2, "text": "new", "n": 3}),
        ("+U", {"id": 1, "text": "a", "n": 4}),
        ("+U", {"id": 1, "text": "b", "n": 4}),
        ("+U", {"id": 2, "text": "all", "n": 3}),
        ("+U", {"id": 3, "text": "all", "n": 4}),
    ]
    assert [row.id for row in storage.table("items").scan_index("text", "all")] == [2, 3]


def test_deletes_of_many_record_the_keys_of_deleted_rows() -> None:
    storage = made()
    table = storage.table("items")
    table.insert_many([{"id": key, "text": "a"} for key in range(4)])
    table.delete_many([(1,), (7,), (1,)])
    assert last_commit(storage, "items") == [("-D", {"id": 1})]
    table.delete_all(ALL, col("id") > 0)
    assert last_commit(storage, "items") == [("-D", {"id": 2}), ("-D", {"id": 3})]


def test_equal_late_and_ignored_records() -> None:
    storage = made(sequence__field="n")
    table = storage.table("items")
    table.upsert({"id": 1, "n": 5})
    table.upsert({"id": 1, "n": 5})
    table.upsert({"id": 1, "n": 3, "text": "late"})
    assert commits(storage, "items") == [
        [("+U", {"id": 1, "n": 5})],
        [("+U", {"id": 1, "n": 5})],
        [("+U", {"id": 1, "n": 3, "text": "late"})],
    ]
    assert table.read((1,)) == {"id": 1, "text": None, "n": 5}
    storage = made(merge_engine="partial-update", ignore_delete="true")
    storage.table("items").apply_changes([("-D", {"id": 1, "n": 1}), ("delete", {"id": 2})])
    assert last_commit(storage, "items") == [("-D", {"id": 1, "n": 1}), ("-D", {"id": 2})]


def test_absent_rows_that_are_deleted() -> None:
    storage = made()
    storage.table("items").delete((1,))
    assert last_commit(storage, "items") == [("-D", {"id": 1})]


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.delete_many([(7,)]),
        lambda table: table.delete_all(ALL, col("id") == 7),
        lambda table: table.update_all(ALL, {"n": 1}, col("id") == 7),
        lambda table: table.compare_and_swap((1,), "text", "other", "b"),
        lambda table: table.upsert_many([]),
        lambda table: table.increment_many([]),
        lambda table: table.read((1,)),
    ],
)
def test_calls_that_record_nothing(call: Callable[[StructuredTable], object]) -> None:
    storage = made()
    storage.table("items").insert({"id": 1, "text": "a"})
    call(storage.table("items"))
    assert len(commits(storage, "items")) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.insert({"id": 1}),
        lambda table: table.insert_many([{"id": 5}, {"id": 1}]),
        lambda table: table.insert_many([{"id": 5}, {"id": 5}]),
        lambda table: table.upsert_many([{"id": 5}, {"id": "text"}]),
        lambda table: table.upsert({"text": "b"}),
        lambda table: table.replace({"id": 1, "other": 1}),
        lambda table: table.apply_changes([("+I", {"id": 5}), ("+X", {"id": 6})]),
        lambda table: table.apply_changes([("+I", {"id": 5}), ("-D", {"text": "b"})]),
        lambda table: table.update({"id": 5, "n": 1}),
        lambda table: table.increment((1,), "n", 2**63 - 1),
        lambda table: table.increment_many([((5,), "n", 1), ((1,), "n", 2**63 - 1)]),
        lambda table: table.increment((1,), "text"),
        lambda table: table.compare_and_swap((1,), "n", 1, "b"),
        lambda table: table.update_all(ALL, {"n": "b"}),
        lambda table: table.delete("text"),
        lambda table: table.delete_many([(1,), ("text",)]),
        lambda table: table.delete_all(ALL, col("other") == 1),
    ],
)
def test_refused_calls_record_nothing(call: Callable[[StructuredTable], object]) -> None:
    storage = made()
    storage.table("items").insert({"id": 1, "n": 1})
    with storage.transaction() as tx:
        with pytest.raises(StructableError):
            call(tx.table("items"))
        tx.table("items").upsert({"id": 2})
    assert last_commit(storage, "items") == [("+U", {"id": 2})]
    assert storage.table("items").count() == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.upsert({"id": 1}),
        lambda table: table.increment((1,), "n"),
        lambda table: table.delete((1,)),
        lambda table: table.delete_many([]),
    ],
)
def test_read_only_transactions_refuse_writes(call: Callable[[StructuredTable], object]) -> None:
    storage = made()
    with storage.transaction(read_only=True) as tx, pytest.raises(StructableError, match="read_only"):
        call(tx.table("items"))


def test_transactions_that_are_rolled_back_record_nothing() -> None:
    storage = made()
    transaction = storage.transaction()
    transaction.table("items").upsert({"id": 1})
    transaction.rollback()
    assert commits(storage, "items") == []


def test_blind_merges_stay_blind() -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "input"}
    storage = OrderedStorage(MemoryEngine(VersionedMap()), "memory://")
    storage.admin.create(TableSpecification("items", [Field.int("id"), Field.long("n")], ["id"], options=options))
    one, other = storage.transaction(), storage.transaction()
    with one, other:
        for transaction in (one, other):
            transaction.table("items").upsert({"id": 1, "n": 2})
            transaction.table("items").upsert_many([{"id": 1, "n": None}])
    assert commits(storage, "items") == [[("+U", {"id": 1, "n": 2}), ("+U", {"id": 1})]] * 2
    with storage.transaction() as tx:
        tx.table("items").upsert({"id": 1, "n": 1})
        tx.table("items").increment((1,), "n", 5)
        tx.table("items").upsert({"id": 1, "n": 2})
    assert last_commit(storage, "items") == [("+U", {"id": 1, "n": n}) for n in (1, 10, 2)]
    assert storage.table("items").read((1,)) == {"id": 1, "n": 12}


@pytest.mark.parametrize("mode", ["change-log", "append-only"])
def test_inserts_without_a_key(mode: str) -> None:
    storage = made(write_mode=mode)
    with storage.transaction() as tx:
        table = tx.table("items")
        table.insert({"id": 1, "text": "a", "n": 1})
        table.insert_many([{"id": 1}, {"id": 1}])
        table.apply_changes([("+I", {"n": 1})])
        with pytest.raises(StructableError):
            table.upsert({"id": 1})
    rows = [{"id": 1, "text": "a", "n": 1}, {"id": 1}, {"id": 1}, {"n": 1}]
    assert commits(storage, "items") == [[("+I", row) for row in rows]]


def test_changes_of_a_bag() -> None:
    storage = made(write_mode="change-log")
    table = storage.table("items")
    table.apply_changes([("-D", {"id": 9}), ("+U", {"id": 1, "n": 1}), ("-U", {"id": 1, "n": 1}), ("+I", {"id": 2})])
    table.insert({"id": 3, "text": "a"})
    table.delete_all(ALL, col("id") == 3)
    table.delete_all(ALL, col("id") == 4)
    assert commits(storage, "items") == [
        [("-D", {"id": 9}), ("+U", {"id": 1, "n": 1}), ("-U", {"id": 1, "n": 1}), ("+I", {"id": 2})],
        [("+I", {"id": 3, "text": "a"})],
        [("-D", {"id": 3, "text": "a"})],
    ]
    assert [row.id for row in table.scan()] == [2]
    append_only = made(write_mode="append-only").table("items")
    with pytest.raises(StructableError, match="delete_all"):
        append_only.delete_all(ALL)
