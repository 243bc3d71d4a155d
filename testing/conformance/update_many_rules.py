"""Rules of `update_many`: partial updates of many rows, with defaults or without."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    RecordNotFoundError,
    RowKind,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    UpdateMessage,
)

from .case import Begin, ConformanceCase, OpenTable
from .feed_case import images, read_between, with_feed
from .keyless_rules import BAG, LOG
from .samples import GRID, ITEMS, TYPES, Record, item, keys, plain

BEFORE = [item(1, n=1, tag="a", note="x"), item(2, n=2, tag="b")]

REFUSED: dict[str, Callable[[StructuredTable], object]] = {
    "no list": lambda table: table.update_many(cast(Any, 1)),
    "a text": lambda table: table.update_many(cast(Any, "ab")),
    "a row": lambda table: table.update_many(cast(Any, {"id": 1, "n": 9})),
    "an element that is not a row": lambda table: table.update_many(cast(Any, [{"id": 1, "n": 9}, 7])),
    "no key": lambda table: table.update_many([{"id": 1, "n": 9}, {"n": 9}]),
    "a null key": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": None, "n": 9}]),
    "an unknown field": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": 2, "unknown": 9}]),
    "an unknown field of an absent row": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": 7, "what": 9}]),
    "a wrong type": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": 2, "n": "9"}]),
    "a wrong type in an absent row": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": 7, "n": "9"}]),
    "a wrong default": lambda table: table.update_many([{"id": 1, "n": 9}], {"n": "9"}),
    "a default that is not a row": lambda table: table.update_many([{"id": 1, "n": 9}], cast(Any, 5)),
    "a default of another key": lambda table: table.update_many([{"id": 1, "n": 9}, {"id": 2, "n": 9}], {"id": 1}),
    "a wrong default of a message": lambda table: table.update_many(
        [{"id": 1, "n": 9}, UpdateMessage({"id": 2, "n": 9}, {"what": 1})]
    ),
    "another key in the default of a message": lambda table: table.update_many(
        [{"id": 1, "n": 9}, UpdateMessage({"id": 2, "n": 9}, {"id": 3, "n": 1})]
    ),
}


class UpdateManyRules(ConformanceCase):
    """`update_many` is `update`, one by one and in order, with absent rows skipped; all or nothing."""

    @pytest.fixture
    def updated(self, open_table: OpenTable) -> StructuredTable:
        """Return a table with two rows, in both views."""
        table = open_table(ITEMS)
        table.upsert_many(BEFORE)
        return table

    def test_update_message(self) -> None:
        """A message is frozen, picklable and equal by content; it takes mappings only."""
        message = UpdateMessage({"id": 1, "n": 2}, {"note": "new"})
        assert message == UpdateMessage({"n": 2, "id": 1}, {"note": "new"}) == pickle.loads(pickle.dumps(message))
        assert message != UpdateMessage({"id": 1, "n": 2})
        assert message.has_default
        assert not UpdateMessage({"id": 1}).has_default
        assert not UpdateMessage({"id": 1}, None).has_default
        assert UpdateMessage({"id": 1}, {}).has_default
        with pytest.raises(AttributeError):
            message.update = {}  # type: ignore[misc] # the mistake
        for wrong in (None, 1, "id", [("id", 1)]):
            with pytest.raises(TypeError):
                UpdateMessage(cast(Any, wrong))
        with pytest.raises(TypeError):
            UpdateMessage({"id": 1}, cast(Any, "none"))

    def test_update_many(self, updated: StructuredTable) -> None:
        """Named fields change and others stay; indexes follow; the result is empty where every row was there."""
        updates: list[Record] = [{"id": 2, "tag": "a", "cost": 1.5}, {"id": 1, "n": None}]
        assert updated.update_many(iter(updates)) == []
        assert plain(updated.scan()) == [item(1, tag="a", note="x"), item(2, n=2, tag="a", cost=1.5)]
        assert keys(updated.scan_index("tag", "a")) == [(1,), (2,)]
        assert keys(updated.scan_index("tag", "b")) == []

    def test_update_many_skips_absent_rows(self, updated: StructuredTable) -> None:
        """Keys of skipped updates are returned, each once, in the order of the first skip; others take effect."""
        updates = [{"id": 9, "n": 1}, {"id": 1, "n": 7}, {"id": 5, "n": 1}, {"id": 9, "n": 2}, {"id": 2, "n": 8}]
        assert updated.update_many(updates) == [(9,), (5,)]
        assert plain(updated.scan()) == [item(1, n=7, tag="a", note="x"), item(2, n=8, tag="b")]

    def test_update_many_with_a_default(self, updated: StructuredTable) -> None:
        """An absent row becomes the default with the update applied; fields in neither are null."""
        assert updated.update_many([{"id": 3, "n": 3}, {"id": 1, "n": 7}], {"n": 0, "tag": "b", "note": "new"}) == []
        assert plain(updated.scan()) == [
            item(1, n=7, tag="a", note="x"),
            item(2, n=2, tag="b"),
            item(3, n=3, tag="b", note="new"),
        ]
        assert keys(updated.scan_index("tag", "b")) == [(2,), (3,)]

    def test_default_of_a_message(self, updated: StructuredTable) -> None:
        """A message's own default precedes the call's; an empty default counts as one, None does not."""
        updates: list[Mapping[str, Any] | UpdateMessage] = [
            UpdateMessage({"id": 3, "n": 3}, {"note": "own"}),
            UpdateMessage({"id": 4, "n": 4}),
            UpdateMessage({"id": 5, "n": 5}, {}),
            {"id": 6, "n": 6},
            UpdateMessage({"id": 1, "n": 9}, {"note": "unused"}),
            UpdateMessage({"id": 7}, {"id": 7, "rank": 1}),
        ]
        assert updated.update_many(updates, {"note": "call's"}) == []
        assert plain(updated.scan()) == [
            item(1, n=9, tag="a", note="x"),
            item(2, n=2, tag="b"),
            item(3, n=3, note="own"),
            item(4, n=4, note="call's"),
            item(5, n=5),
            item(6, n=6, note="call's"),
            item(7, rank=1),
        ]

    def test_later_updates_see_earlier_ones(self, updated: StructuredTable) -> None:
        """Updates of one key apply in order: a skipped one stays skipped, later ones change the row of a default."""
        updates: list[Mapping[str, Any] | UpdateMessage] = [
            {"id": 3, "n": 1},
            UpdateMessage({"id": 3, "n": 2}, {"note": "first"}),
            UpdateMessage({"id": 3, "rank": 3}, {"note": "second"}),
            {"id": 3, "cost": 4.0},
            {"id": 1, "note": "y"},
            {"id": 1, "n": 5},
            {"id": 1, "note": None},
        ]
        assert updated.update_many(updates) == [(3,)]
        assert plain(updated.scan()) == [
            item(1, n=5, tag="a"),
            item(2, n=2, tag="b"),
            item(3, n=2, note="first", rank=3, cost=4.0),
        ]

    @pytest.mark.parametrize("name", REFUSED)
    def test_update_many_of_bad_arguments(self, updated: StructuredTable, name: str) -> None:
        """One element that does not fit is `InvalidFieldError` when the method is called, and nothing is done."""
        with pytest.raises(InvalidFieldError):
            REFUSED[name](updated)
        assert plain(updated.scan()) == BEFORE

    def test_update_many_of_an_oversized_row(self, open_table: OpenTable) -> None:
        """A row that an update makes too large is `FieldSizeLimitError`, and no row is changed."""
        table = open_table(TYPES)
        large = b"x" * (5 << 20)
        table.upsert_many([{"id": 1}, {"id": 2, "bytes": large}])
        with pytest.raises(FieldSizeLimitError):
            table.update_many([{"id": 1, "int": 1}, {"id": 2, "string": "y" * (5 << 20)}])
        assert [(row["int"], row["string"]) for row in table.scan()] == [(None, None), (None, None)]

    def test_update_many_of_nothing(self, storage: Storage, updated: StructuredTable) -> None:
        """A call without updates returns an empty list."""
        assert updated.update_many([]) == []
        assert updated.update_many(iter([]), {"n": 1}) == []
        assert plain(updated.scan()) == BEFORE

    def test_update_many_of_composite_keys(self, open_table: OpenTable) -> None:
        """Keys come back as tuples in key order; an update that names the key alone changes nothing."""
        table = open_table(GRID)
        table.upsert_many([{"k1": 1, "k2": 1, "k3": "a", "v": 1}])
        missing = table.update_many([{"k3": "b", "k2": 2, "k1": 3, "v": 1}, {"k3": "a", "k1": 1, "k2": 1}])
        assert missing == [(3, 2, "b")]
        assert [dict(row) for row in table.scan()] == [{"k1": 1, "k2": 1, "k3": "a", "v": 1, "color": None}]

    def test_update_many_of_many_rows(self, open_table: OpenTable) -> None:
        """One call takes thousands of rows, some absent, some repeated, naming different fields."""
        table = open_table(ITEMS)
        table.upsert_many([item(number, tag="a") for number in range(0, 3000, 2)])
        updates: list[Record] = [{"id": number, "n": number} for number in range(3000)]
        updates += [{"id": number, "tag": "b", "rank": 1} for number in range(0, 3000, 3)]
        missing = table.update_many(updates)
        assert missing == [(number,) for number in range(1, 3000, 2)]
        assert table.count() == 1500
        assert keys(table.scan_index("tag", "b")) == [(number,) for number in range(0, 3000, 6)]
        assert [row["n"] for row in table.scan()] == list(range(0, 3000, 2))

    def test_update_many_sees_the_transaction(self, storage: Storage) -> None:
        """It sees the transaction's earlier writes, deletes and increments, and later reads see its changes."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(BEFORE)
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.delete((1,))
            table.insert({"id": 3, "note": "new"})
            table.increment((2,), "n", 5)
            assert table.update_many([{"id": 1, "n": 0}, {"id": 2, "tag": "c"}, {"id": 3, "n": 3}]) == [(1,)]
            assert plain(table.scan()) == [item(2, n=7, tag="c"), item(3, n=3, note="new")]
            table.update({"id": 3, "n": 4})
            table.delete((2,))
        assert plain(storage.table("items").scan()) == [item(3, n=4, note="new")]

    def test_update_many_is_update_one_by_one(self, storage: Storage) -> None:
        """Random calls leave the same rows, and return the same keys, as a loop of `update`."""
        storage.admin.create(ITEMS)
        storage.admin.create(ITEMS.evolve(name="loop"))
        table, loop = storage.table("items"), storage.table("loop")
        chance = random.Random(20_261)
        for _ in range(max(10, self.stress_rounds // 3)):
            updates = [self.random_update(chance) for _ in range(chance.randint(1, 12))]
            default = chance.choice([None, {"note": "d", "tag": "z"}, {}])
            expected: dict[tuple[object, ...], None] = {}
            with storage.transaction() as transaction:
                one_by_one = transaction.table("loop")
                for one in updates:
                    row, own = (one.update, one.default) if isinstance(one, UpdateMessage) else (one, None)
                    try:
                        one_by_one.update(row, default if own is None else own)
                    except RecordNotFoundError as error:
                        expected[error.key] = None
                gone = chance.randint(0, 9)
                one_by_one.delete((gone,))
            assert table.update_many(updates, default) == list(expected)
            table.delete((gone,))
            assert plain(table.scan()) == plain(loop.scan())
            assert plain(table.scan_index("tag", "z")) == plain(loop.scan_index("tag", "z"))

    def random_update(self, chance: random.Random) -> Mapping[str, Any] | UpdateMessage:
        """Return an update of one of ten keys."""
        values: dict[str, Any] = {
            "n": chance.randint(0, 9),
            "tag": chance.choice(["a", "z", None]),
            "note": "x",
            "rank": 1,
            "cost": 0.5,
        }
        row = {"id": chance.randint(0, 9)}
        row |= {name: values[name] for name in chance.sample(sorted(values), chance.randint(0, 5))}
        own = chance.choice([None, {}, {"rank": 7}, {"n": None, "note": "own"}])
        return UpdateMessage(row, own) if chance.random() < 0.5 else row

    def test_update_many_conflicts_as_update(self, storage: Storage, begin: Begin) -> None:
        """A row that another transaction changed, inserted or deleted since the snapshot is a conflict."""
        storage.admin.create(ITEMS)
        view = storage.table("items")
        others: list[Callable[[], object]] = [
            lambda: view.upsert({"id": 1, "note": "other"}),
            lambda: view.insert({"id": 5}),
            lambda: view.delete((2,)),
        ]
        for other in others:
            view.delete_many([(1,), (2,), (5,)])
            view.upsert_many(BEFORE)
            transaction = begin()
            table = transaction.table("items")
            table.read((1,))
            other()
            before = plain(view.scan())
            with pytest.raises(TransactionConflictError):  # noqa: PT012 - from the call or from the commit
                table.update_many([{"id": 1, "n": 7}, {"id": 2, "n": 7}, {"id": 5, "n": 7}], {"note": "d"})
                transaction.commit()
            transaction.rollback()
            assert plain(view.scan()) == before

    def test_update_many_without_a_key(self, storage: Storage) -> None:
        """A table without a key has no `update_many`."""
        self.require("table_types")
        for spec in (BAG, LOG):
            storage.admin.create(spec)
            with pytest.raises(UnsupportedOperationError):
                storage.table(spec.name).update_many([{"n": 1}])

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_row_that_is_too_large_in_between(self, storage: Storage, begin: Begin, producer: str) -> None:
        """If a row is too large after one of its updates, all updates are rejected, or all are made, as in the feed."""
        self.require("change_feeds")
        fields = [Field.int("id"), Field.bytes("a"), Field.bytes("b")]
        storage.admin.create(with_feed(TableSpecification("t", fields, ["id"]), producer))
        storage.table("t").upsert({"id": 1, "a": bytes(5 << 20)})
        since = storage.changes("t").latest()
        transaction = begin()
        with suppress(FieldSizeLimitError):
            transaction.table("t").update_many(
                [{"id": 1, "b": b"x"}, {"id": 1, "b": bytes(4 << 20)}, {"id": 1, "a": b""}]
            )
        transaction.commit()
        left = [row["b"] for row in storage.table("t").scan()]
        assert left in ([None], [bytes(4 << 20)])
        found = [row["b"] for kind, row in images(read_between(storage, "t", since)) if kind == "+U"]
        assert found[-1:] == [one for one in left if one is not None]

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_feed_of_update_many(self, storage: Storage, producer: str) -> None:
        """A feed has the images of the call's rows, or under `input` a +U of the row after each update."""
        self.require("table_types")
        self.require("change_feeds")
        storage.admin.create(with_feed(ITEMS, producer))
        table = storage.table("items")
        table.upsert_many(BEFORE)
        since = storage.changes("items").latest()
        table.update_many([{"id": 1, "n": 7}, {"id": 9, "n": 1}, UpdateMessage({"id": 3, "n": 3}, {"note": "d"})])
        found = images(read_between(storage, "items", since))
        changed, new = item(1, n=7, tag="a", note="x"), item(3, n=3, note="d")
        if producer == "input":
            assert found == [(str(RowKind.UPDATE_AFTER), changed), (str(RowKind.UPDATE_AFTER), new)]
        else:
            assert sorted(found, key=str) == sorted([("-U", BEFORE[0]), ("+U", changed), ("+I", new)], key=str)
