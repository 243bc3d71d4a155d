"""Rules of the arms `insert` and `expect` of mode patch, by which a job refuses rows that are not as it read them."""

from __future__ import annotations

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    CommitResult,
    RecordChangedError,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    TransactionConflictError,
)
from structable.spi.arrow import arrow_schema

from .clients import StoreProcess
from .feed_case import images, read_between, with_feed
from .patch_case import Arm, PatchCase, patch_batch
from .samples import EXTREMES, GRID, ITEMS, TYPES, item, keys, plain
from .write_jobs import BEFORE


class PatchExpectationRules(PatchCase):
    """A patch inserts only where no row is, and expects rows to be as they were read."""

    def test_insert_arm(self, storage: Storage, streamed: StructuredTable) -> None:
        """`insert` puts a row of the named fields where there is none."""
        result = self.patch(storage, ("insert", {"id": 3, "tag": "a"}), ("present", {"id": 1, "n": 7}))
        assert result == CommitResult(applied=True, missing=0)
        assert plain(streamed.scan()) == [item(1, n=7, tag="a", note="x"), BEFORE[1], item(3, tag="a")]
        assert keys(streamed.scan_index("tag", "a")) == [(1,), (2,), (3,)]

    def test_insert_arm_of_an_existing_key(self, storage: Storage, streamed: StructuredTable) -> None:
        """`insert` of a key that has a row is `RecordExistsError`, and nothing is written."""
        with pytest.raises(RecordExistsError) as caught:
            self.patch(storage, ("insert", {"id": 3}), ("insert", {"id": 2, "n": 7}), ("delete", {"id": 1}))
        assert (caught.value.table, caught.value.key) == ("items", (2,))
        assert plain(streamed.scan()) == BEFORE

    @pytest.mark.parametrize("other", ["insert", "present", "absent", "replace"])
    @pytest.mark.parametrize("key", [1, 9])
    def test_insert_arm_beside_another(self, storage: Storage, streamed: StructuredTable, other: str, key: int) -> None:
        """A key that is inserted twice, or inserted and written by another arm than delete, is `RecordExistsError`."""
        job = self.patch_job(storage, on_missing="skip")
        parts: list[list[Arm]] = [[("insert", {"id": key, "n": 5})], [(other, {"id": key, "n": 6})]]
        staged = [storage.stage(job, place, 0, [patch_batch(ITEMS, part)]) for place, part in enumerate(parts)]
        with pytest.raises(RecordExistsError):
            storage.commit_write(job, staged)
        assert plain(streamed.scan()) == BEFORE

    def test_insert_beside_delete(self, storage: Storage, streamed: StructuredTable) -> None:
        """A key that is deleted and inserted, in whatever partition, has the new row: keys can be shifted."""
        job = self.patch_job(storage)
        parts: list[list[Arm]] = [
            [("delete", {"id": 1}), ("insert", {"id": 2, "n": 1, "tag": "b"}), ("delete", {"id": 9})],
            [("insert", {"id": 3, "n": 2}), ("delete", {"id": 2}), ("insert", {"id": 9, "n": 9})],
        ]
        staged = [storage.stage(job, place, 0, [patch_batch(ITEMS, part)]) for place, part in enumerate(parts)]
        assert storage.commit_write(job, staged)
        assert plain(streamed.scan()) == [item(2, n=1, tag="b"), item(3, n=2), item(9, n=9)]
        assert keys(streamed.scan_index("tag", "a")) == []

    def test_expected_rows(self, storage: Storage, streamed: StructuredTable) -> None:
        """The job is committed if rows have the values of the named fields; a named null expects null."""
        result = self.patch(
            storage,
            ("expect", {"id": 1, "n": 1, "rank": None}),
            ("present", {"id": 1, "n": 7}),
            ("expect", {"id": 2}),
            ("delete", {"id": 2}),
        )
        assert result == CommitResult(applied=True, missing=0)
        assert plain(streamed.scan()) == [item(1, n=7, tag="a", note="x")]

    @pytest.mark.parametrize(
        "expected", [{"id": 1, "n": 2}, {"id": 1, "note": None}, {"id": 1, "rank": 0}, {"id": 9}], ids=str
    )
    def test_rows_that_are_not_as_expected(
        self, storage: Storage, streamed: StructuredTable, expected: dict[str, Any]
    ) -> None:
        """Another value, a null or no row is `RecordChangedError`, a conflict; nothing is written."""
        arms: list[Arm] = [("expect", expected), ("present", {"id": 2, "n": 7}), ("insert", {"id": 5})]
        with pytest.raises(RecordChangedError) as caught:
            self.patch(storage, *arms, on_missing="skip")
        assert isinstance(caught.value, TransactionConflictError)
        assert (caught.value.table, caught.value.keys, caught.value.count) == ("items", ((expected["id"],),), 1)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.keys, again.count) == (str(caught.value), caught.value.keys, 1)
        assert plain(streamed.scan()) == BEFORE

    def test_the_number_of_changed_rows(self, storage: Storage) -> None:
        """The error has the number of rows that are not as expected, and the first 10 keys in their order."""
        self.require("streams")
        storage.admin.create(GRID)
        table = storage.table("grid")
        found = [(1, 1, "a"), (1, 2, "Z"), (1, 2, "z"), (1, 2, "\u00e9"), *((2, place, "") for place in range(9))]
        table.upsert_many([{**dict(zip(GRID.primary_key, key, strict=True)), "v": 1} for key in found])
        arms: list[Arm] = [
            ("expect", {**dict(zip(GRID.primary_key, key, strict=True)), "v": 1 if key == (1, 1, "a") else 2})
            for key in reversed(found)
        ]
        job = self.patch_job(storage, "grid")
        with pytest.raises(RecordChangedError) as caught:
            storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(GRID, arms)])])
        assert (caught.value.keys, caught.value.count) == (tuple(found[1:11]), 12)

    def test_expectation_of_every_type(self, storage: Storage) -> None:
        """Values of every type are equal to themselves, NaN to NaN and null to null."""
        self.require("streams")
        storage.admin.create(TYPES)
        rows = [{"id": place, **row} for place, row in enumerate(_extreme_rows())]
        storage.table("types").upsert_many(rows)
        batch = pa.RecordBatch.from_pylist(rows, arrow_schema(TYPES))
        parts = [batch.append_column("_arm", pa.array([arm] * len(rows))) for arm in ("expect", "delete")]
        job = self.patch_job(storage, "types")
        assert storage.commit_write(job, [storage.stage(job, 0, 0, parts)])
        assert storage.table("types").count() == 0

    def test_repeated_arms(self, storage: Storage, streamed: StructuredTable) -> None:
        """`delete` and `expect` may be repeated, from any partition, and each expectation counts."""
        for tags, passes in ((("a", "a", "b"), False), (("a", "a", "a"), True)):
            job = self.patch_job(storage)
            parts: list[list[Arm]] = [[("delete", {"id": 1}), ("expect", {"id": 1, "tag": tag})] * 2 for tag in tags]
            parts[0].append(("insert", {"id": 1, "n": 5}))
            parts[1].append(("present", {"id": 2, "n": 7}))
            staged = [storage.stage(job, place, 0, [patch_batch(ITEMS, part)]) for place, part in enumerate(parts)]
            if passes:
                assert storage.commit_write(job, staged)
            else:
                with pytest.raises(RecordChangedError) as caught:
                    storage.commit_write(job, staged)
                assert caught.value.keys == ((1,),)
        assert plain(streamed.scan()) == [item(1, n=5), item(2, n=7, tag="a")]

    def test_expectations_are_judged_at_the_commit(self, storage: Storage, streamed: StructuredTable) -> None:
        """A row that changed after `stage` is not as expected, and one that changed back is."""
        job = self.patch_job(storage)
        arms: list[Arm] = [("expect", {"id": 1, "n": 1}), ("present", {"id": 1, "note": "y"})]
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        streamed.update({"id": 1, "n": 5})
        with pytest.raises(RecordChangedError):
            storage.commit_write(job, staged)
        streamed.update({"id": 1, "n": 1, "tag": "other"})
        assert storage.commit_write(job, staged)
        assert streamed.read((1,)) == item(1, n=1, tag="other", note="y")

    def test_a_missing_row_beside_an_expectation(self, storage: Storage, streamed: StructuredTable) -> None:
        """`present` together with `expect` needs its row, and the expectation is refused first."""
        with pytest.raises(RecordChangedError):
            self.patch(storage, ("expect", {"id": 9}), ("present", {"id": 9, "n": 1}))
        with pytest.raises(RecordNotFoundError):
            self.patch(storage, ("expect", {"id": 1}), ("present", {"id": 9, "n": 1}))

    def test_no_update_is_lost(self, storage: Storage, streamed: StructuredTable, storage_url: str) -> None:
        """Jobs that expect the value that they raise, and increments of services at the same time, add up."""
        rounds = max(4, self.stress_rounds // 10)

        def raise_by_jobs() -> int:
            raised = 0
            for _ in range(rounds):
                n: Any = plain(streamed.scan(limit=1))[0]["n"]
                with contextlib.suppress(TransactionConflictError):
                    self.patch(storage, ("expect", {"id": 1, "n": n}), ("present", {"id": 1, "n": n + 1}))
                    raised += 1
            return raised

        def raise_by_increments() -> int:
            for _ in range(rounds):
                storage.run(lambda transaction: transaction.table("items").increment((1,), "n", 1))
            return rounds

        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(one) for one in (raise_by_jobs, raise_by_jobs, raise_by_increments)]
            raised = sum(call.result() for call in calls)
        assert streamed.read((1,)) == item(1, n=1 + raised, tag="a", note="x")

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_feed_of_insertions(self, storage: Storage, producer: str) -> None:
        """A feed records an insertion as an insert, and a deletion with an insertion as the update of a row."""
        self.require("streams")
        self.require("table_types")
        self.require("change_feeds")
        storage.admin.create(with_feed(ITEMS, producer))
        storage.table("items").upsert_many(BEFORE)
        since = storage.changes("items").latest()
        self.patch(
            storage,
            ("expect", BEFORE[0]),
            ("delete", {"id": 1}),
            ("insert", {"id": 1, "n": 7}),
            ("insert", {"id": 3, "n": 9}),
            *[("delete", {"id": 2})] * 2,
        )
        found = sorted(images(read_between(storage, "items", since)), key=str)
        before = [("-U", BEFORE[0])] if producer == "lookup" else []
        gone = ("-D", BEFORE[1] if producer == "lookup" else item(2))
        assert found == sorted([*before, ("+U", item(1, n=7)), ("+I", item(3, n=9)), gone], key=str)

    def test_refusals_of_another_process(self, storage: Storage, streamed: StructuredTable, peer: StoreProcess) -> None:
        """The keys of changed rows reach the caller, wherever the commit is done."""
        arms: list[Arm] = [("expect", {"id": key, "n": 1}) for key in (1, 2, 9)]
        job = self.patch_job(storage)
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        with pytest.raises(RecordChangedError) as caught:
            peer.ask("commit_write", job, staged)
        assert (caught.value.keys, caught.value.count) == (((2,), (9,)), 2)


def _extreme_rows() -> list[dict[str, Any]]:
    """Return rows that have all extremes of every type, and one of nulls."""
    longest = max(len(values) for values in EXTREMES.values())
    named = {
        field.name: EXTREMES[field.type] for field in TYPES.fields if field.type in EXTREMES and field.name != "id"
    }
    return [{name: values[place % len(values)] for name, values in named.items()} for place in range(longest)] + [{}]
