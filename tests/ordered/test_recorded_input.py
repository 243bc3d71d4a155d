"""The producer input: a record costs no second encoding, and no reading of the row."""

from __future__ import annotations

import sys
from types import FrameType

from structable.backends.memory.engine import MemoryEngine
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import Field, Storage, TableSpecification, Value

from .recorded import commits, last_commit

FIELDS = [Field.int("id"), Field.string("text"), Field.long("n")]


def made(fields: list[Field], *indexes: str, **options: str) -> Storage:
    storage = OrderedStorage(MemoryEngine(VersionedMap()), "memory://")
    given = {"changelog-producer": "input", **options}
    storage.admin.create(TableSpecification("items", fields, ["id"], indexes, options=given))
    return storage


def test_a_whole_row_is_encoded_once() -> None:
    storage = made(FIELDS, "text")
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


def test_blind_merges_stay_blind() -> None:
    storage = made(FIELDS[::2], **{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
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
