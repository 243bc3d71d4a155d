"""Rules of write jobs of mode patch: the row of its key before the job decides the effect of each row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    CommitResult,
    FieldSizeLimitError,
    InvalidFieldError,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    UnsupportedOperationError,
    connect,
)

from .clients import StoreProcess
from .feed_case import images, read_between, with_feed
from .keyless_rules import BAG, LOG
from .merge_job_rules import SUMS
from .patch_case import Arm, PatchCase, patch_batch
from .samples import GRID, ITEMS, TYPES, item, keys, plain
from .write_jobs import BEFORE


class PatchRules(PatchCase):
    """A patch changes present rows and puts absent ones, in one atomic job."""

    def test_arms(self, storage: Storage, streamed: StructuredTable) -> None:
        """`present` changes an existing row, `absent` puts a new one; `replace` and `delete` apply in either case."""
        result = self.patch(
            storage,
            ("present", {"id": 1, "n": 7}),
            ("absent", {"id": 2, "n": 8}),
            ("absent", {"id": 3, "n": 9, "tag": "a"}),
            ("replace", {"id": 4, "n": 10}),
            ("delete", {"id": 5}),
        )
        assert result == CommitResult(applied=True, missing=0)
        expected = [item(1, n=7, tag="a", note="x"), BEFORE[1], item(3, n=9, tag="a"), item(4, n=10)]
        assert plain(streamed.scan()) == expected
        assert keys(streamed.scan_index("tag", "a")) == [(1,), (2,), (3,)]
        self.patch(storage, ("replace", {"id": 1, "rank": 1}), ("delete", {"id": 2}))
        assert plain(streamed.scan()) == [item(1, rank=1), item(3, n=9, tag="a"), item(4, n=10)]
        assert keys(streamed.scan_index("tag", "a")) == [(3,)]
        assert keys(streamed.scan_index("rank", 1)) == [(1,)]

    def test_present_and_absent_of_one_key(self, storage: Storage, streamed: StructuredTable) -> None:
        """If a key has both arms, the one that fits the row before the job counts, from whatever partition it comes."""
        job = self.patch_job(storage)
        parts: list[list[Arm]] = [
            [("absent", {"id": 1, "n": 100, "note": "put"}), ("present", {"id": 3, "n": 30})],
            [("present", {"id": 1, "n": 10}), ("absent", {"id": 3, "n": 300, "note": "put"})],
        ]
        staged = [storage.stage(job, place, 0, [patch_batch(ITEMS, arms)]) for place, arms in enumerate(parts)]
        assert storage.commit_write(job, staged) == CommitResult(applied=True, missing=0)
        assert plain(streamed.scan()) == [item(1, n=10, tag="a", note="x"), BEFORE[1], item(3, n=300, note="put")]

    @pytest.mark.parametrize(
        "arms",
        [
            ["present", "present"],
            ["absent", "absent"],
            ["replace", "replace"],
            ["replace", "delete"],
            ["present", "delete"],
            ["absent", "replace"],
            ["present", "absent", "present"],
        ],
        ids="+".join,
    )
    @pytest.mark.parametrize("key", [1, 9])
    def test_arms_that_do_not_fit(self, storage: Storage, streamed: StructuredTable, arms: list[str], key: int) -> None:
        """Arms of a key that do not fit together are `InvalidFieldError` at the latest from the commit."""
        job = self.patch_job(storage, on_missing="skip")
        with pytest.raises(InvalidFieldError):
            storage.commit_write(
                job,
                [
                    storage.stage(job, place, 0, [patch_batch(ITEMS, [(arm, {"id": key, "n": 5})])])
                    for place, arm in enumerate(arms)
                ],
            )
        assert plain(streamed.scan()) == BEFORE

    def test_named_fields(self, storage: Storage, streamed: StructuredTable) -> None:
        """A named null sets null; a field that is not named keeps its value, or is null in a row that is put."""
        self.patch(
            storage,
            ("present", {"id": 1, "n": None, "rank": 3}),
            ("absent", {"id": 3, "note": "z", "tag": None}),
            ("replace", {"id": 2, "cost": 0.5}),
        )
        assert plain(streamed.scan()) == [
            item(1, tag="a", note="x", rank=3),
            item(2, cost=0.5),
            item(3, note="z"),
        ]
        assert keys(streamed.scan_index("rank", 3)) == [(1,)]

    def test_bits_of_columns(self, storage: Storage, streamed: StructuredTable) -> None:
        """Bit i of `_set` is for column i of the batch, whatever their order is; null, or no `_set`, names all."""
        columns: dict[str, pa.Array[Any]] = {
            "tag": pa.array(["t", "t", "t"]),
            "_set": pa.array([b"\x01", b"\x08\x00\x00", None], pa.binary()),
            "id": pa.array([1, 2, 3], pa.int64()),
            "_arm": pa.array(["present", "present", "absent"]),
            "note": pa.array(["y", "y", "y"]),
            "n": pa.array([5, 5, None], pa.int64()),
        }
        job = self.patch_job(storage)
        storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(columns)])])
        expected = [item(1, n=1, tag="t", note="x"), item(2, n=5, tag="a"), item(3, tag="t", note="y")]
        assert plain(streamed.scan()) == expected
        del columns["_set"]
        columns["_arm"] = pa.array(["present"] * 3)
        job = self.patch_job(storage)
        storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(columns)])])
        named = [item(1, n=5, tag="t", note="y"), item(2, n=5, tag="t", note="y"), item(3, tag="t", note="y")]
        assert plain(streamed.scan()) == named

    def test_missing_keys_fail(self, storage: Storage, streamed: StructuredTable) -> None:
        """`present` alone on absent rows is `RecordNotFoundError`, with their number and the first 10; nothing is done.

        The job stays open: it may be committed once the rows exist.
        """
        job = self.patch_job(storage)
        arms: list[Arm] = [("present", {"id": key, "n": 7}) for key in (30, 1, *range(11, 24), -5)]
        arms.append(("absent", {"id": 100}))
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        with pytest.raises(RecordNotFoundError) as caught:
            storage.commit_write(job, staged)
        assert (caught.value.table, caught.value.count) == ("items", 15)
        assert caught.value.keys == ((-5,), *((key,) for key in range(11, 20)))
        assert caught.value.key == (-5,)
        assert plain(streamed.scan()) == BEFORE
        streamed.upsert_many([{"id": key} for key in (30, -5, *range(11, 24))])
        assert storage.commit_write(job, staged) == CommitResult(applied=True)
        assert [row["n"] for row in streamed.scan()] == [7, 7, 2, *[7] * 13, 7, None]

    def test_one_missing_key(self, storage: Storage, streamed: StructuredTable) -> None:
        """The error of one missing key names it."""
        with pytest.raises(RecordNotFoundError, match="9") as caught:
            self.patch(storage, ("present", {"id": 9, "n": 7}))
        assert (caught.value.key, caught.value.keys, caught.value.count) == ((9,), ((9,),), 1)

    def test_missing_keys_are_skipped(self, storage: Storage, streamed: StructuredTable) -> None:
        """With `on_missing="skip"` missing keys are left out and counted, and all else takes effect."""
        arms: list[Arm] = [("present", {"id": key, "n": 7}) for key in (1, 8, 9)]
        job = self.patch_job(storage, on_missing="skip")
        assert job.on_missing == "skip"
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, [*arms, ("absent", {"id": 3, "n": 3})])])]
        assert storage.commit_write(job, staged) == CommitResult(applied=True, missing=2)
        assert storage.commit_write(job, staged) == CommitResult(applied=False, missing=0)
        assert plain(streamed.scan()) == [item(1, n=7, tag="a", note="x"), BEFORE[1], item(3, n=3)]

    def test_required_keys(self, storage: Storage, streamed: StructuredTable) -> None:
        """A required row makes its key missing if it has no row; skipped, its arms other than `present` count."""
        arms: list[Arm] = [
            ("absent", {"id": 5, "n": 5}),
            ("present", {"id": 5, "n": 6}),
            ("replace", {"id": 6, "n": 6}),
            ("delete", {"id": 7}),
            ("absent", {"id": 1, "n": 1000}),
            ("replace", {"id": 2, "n": 22}),
        ]
        required = [{"id": key} for key in (1, 2, 5, 6, 7)]
        with pytest.raises(RecordNotFoundError) as caught:
            self.patch(storage, *arms, required=required)
        assert (caught.value.keys, caught.value.count) == (((5,), (6,), (7,)), 3)
        assert plain(streamed.scan()) == BEFORE
        result = self.patch(storage, *arms, required=required, on_missing="skip")
        assert result == CommitResult(applied=True, missing=3)
        assert plain(streamed.scan()) == [BEFORE[0], item(2, n=22), item(5, n=5), item(6, n=6)]

    @pytest.mark.parametrize("mode", ["upsert", "insert", "changes"])
    def test_on_missing_of_other_modes(self, storage: Storage, streamed: StructuredTable, mode: str) -> None:
        """`on_missing` is "fail" or, in mode patch alone, "skip": else `ValueError`."""
        for wrong in ({"mode": mode, "on_missing": "skip"}, {"mode": "patch", "on_missing": "drop"}):
            with pytest.raises(ValueError, match="on_missing"):
                storage.begin_write("items", job_id=self.fresh_id(), **wrong)  # type: ignore[arg-type] # the mistake

    def test_bad_patches(self, storage: Storage, streamed: StructuredTable) -> None:
        """`stage` rejects rows without an arm, sets of columns that are not there, and all that other modes reject."""
        job = self.patch_job(storage)
        good: dict[str, pa.Array[Any]] = {
            "id": pa.array([1], pa.int64()),
            "n": pa.array([9], pa.int64()),
            "_arm": pa.array(["present"]),
        }
        wrong: list[dict[str, pa.Array[Any]]] = [
            {"_arm": pa.array([None], pa.string())},
            {"_arm": pa.array(["PRESENT"])},
            {"_arm": pa.array([1])},
            {"_set": pa.array(["\x01"])},
            {"_set": pa.array([b"\x04"])},
            {"_set": pa.array([b"\x01\x01"])},
            {"_required": pa.array([1])},
            {"_required": pa.array(["true"])},
            {"what": pa.array([1])},
            {"n": pa.array(["9"])},
            {"id": pa.array([None], pa.int64())},
            {"_change_type": pa.array(["insert"])},
        ]
        for change in wrong:
            with pytest.raises(InvalidFieldError):
                storage.stage(job, 0, 0, [pa.record_batch({**good, **change})])
        for repeated in ("id", "n", "_arm"):
            with pytest.raises(InvalidFieldError, match=repeated):
                storage.stage(job, 0, 0, [pa.record_batch(good).append_column(repeated, good[repeated])])
        for missing in ("_arm", "id"):
            columns = {name: one for name, one in good.items() if name != missing}
            with pytest.raises(InvalidFieldError, match=missing):
                storage.stage(job, 0, 0, [pa.record_batch(columns)])
        assert plain(streamed.scan()) == BEFORE

    def test_values_that_are_not_named(self, storage: Storage, streamed: StructuredTable) -> None:
        """A value that a row does not name is ignored, even if it is too large."""
        large = "x" * (9 << 20)
        columns: dict[str, pa.Array[Any]] = {
            "id": pa.array([1], pa.int64()),
            "note": pa.array([large]),
            "_arm": pa.array(["present"]),
            "_set": pa.array([b"\x01"]),
        }
        job = self.patch_job(storage)
        assert storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(columns)])])
        assert plain(streamed.scan()) == BEFORE

    def test_patch_of_an_oversized_row(self, storage: Storage, streamed: StructuredTable) -> None:
        """A row that a patch makes too large is `FieldSizeLimitError`, and nothing is written."""
        storage.admin.create(TYPES)
        table = storage.table("types")
        table.upsert({"id": 1, "bytes": b"x" * (5 << 20)})
        arms: list[Arm] = [("present", {"id": 1, "string": "y" * (5 << 20)}), ("absent", {"id": 2})]
        job = self.patch_job(storage, "types")
        with pytest.raises(FieldSizeLimitError):
            storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(TYPES, arms)])])
        assert [row.key for row in table.scan()] == [(1,)]

    def test_missing_keys_of_composite_keys(self, storage: Storage) -> None:
        """Missing keys come in the order of the key, as tuples."""
        self.require("streams")
        storage.admin.create(GRID)
        wanted = [(2, 1, "a"), (1, 9, "b"), (1, -9, "\u00e9"), (1, -9, "z"), (1, -9, "Z")]
        arms: list[Arm] = [("present", dict(zip(GRID.primary_key, key, strict=True))) for key in wanted]
        job = self.patch_job(storage, "grid")
        with pytest.raises(RecordNotFoundError) as caught:
            storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(GRID, arms)])])
        assert caught.value.keys == ((1, -9, "Z"), (1, -9, "z"), (1, -9, "\u00e9"), (1, 9, "b"), (2, 1, "a"))

    def test_patch_without_a_key(self, storage: Storage) -> None:
        """A table without a key takes no patch: `UnsupportedOperationError`."""
        self.require("streams")
        self.require("table_types")
        for spec in (BAG, LOG):
            storage.admin.create(spec)
            with pytest.raises(UnsupportedOperationError):
                self.patch_job(storage, spec.name)

    def test_patch_merges_nothing(self, storage: Storage) -> None:
        """In a table with a merge engine a patch sets rows as given, as the verbs that do not merge do."""
        self.require("streams")
        self.require("table_types")
        storage.admin.create(SUMS)
        table = storage.table(SUMS.name)
        table.upsert_many([{"id": 1, "n": 5}])
        arms: list[Arm] = [("present", {"id": 1, "n": 1}), ("absent", {"id": 2, "n": 2})]
        job = self.patch_job(storage, SUMS.name)
        storage.commit_write(job, [storage.stage(job, 0, 0, [patch_batch(SUMS, arms)])])
        assert [(row["id"], row["n"]) for row in table.scan()] == [(1, 1), (2, 2)]

    @pytest.mark.parametrize("producer", ["lookup", "input"])
    def test_feed_of_a_patch(self, storage: Storage, producer: str) -> None:
        """A feed has the images of the rows; under `input` it records the arms that took effect like plain verbs."""
        self.require("streams")
        self.require("table_types")
        self.require("change_feeds")
        storage.admin.create(with_feed(ITEMS, producer))
        table = storage.table("items")
        table.upsert_many([*BEFORE, item(4, n=4)])
        since = storage.changes("items").latest()
        self.patch(
            storage,
            ("present", {"id": 1, "n": 7}),
            ("absent", {"id": 1, "n": 70}),
            ("absent", {"id": 2, "n": 8}),
            ("absent", {"id": 3, "n": 9}),
            ("delete", {"id": 4}),
            ("delete", {"id": 5}),
            ("present", {"id": 6, "n": 6}),
            on_missing="skip",
        )
        found = sorted(images(read_between(storage, "items", since)), key=str)
        changed, put, gone = item(1, n=7, tag="a", note="x"), item(3, n=9), item(4, n=4)
        if producer == "input":
            kinds = sorted((kind[1] if kind != "+I" else "U", row["id"]) for kind, row in found)
            assert kinds == [("D", 4), ("D", 5), ("U", 1), ("U", 3)]  # a delete says its key, row or none
            assert [row for kind, row in found if kind != "-D"] in ([changed, put], [put, changed])
        else:
            expected = [("-U", BEFORE[0]), ("+U", changed), ("+I", put), ("-D", gone)]
            assert found == sorted(expected, key=str)

    def test_patch_of_a_batch(self, storage: Storage, streamed: StructuredTable) -> None:
        """A patch may be a batch of a stream, and counts once."""
        arms: list[Arm] = [("present", {"id": 1, "n": 7}), ("absent", {"id": 3}), ("present", {"id": 9})]
        for applied in (True, False):
            job = storage.begin_write("items", mode="patch", stream="s", batch=0, on_missing="skip")
            assert job.committed is not applied
            staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
            assert storage.commit_write(job, staged) == CommitResult(applied=applied, missing=1 if applied else 0)
        assert keys(streamed.scan()) == [(1,), (2,), (3,)]

    def test_presence_is_judged_at_the_commit(
        self, storage: Storage, streamed: StructuredTable, storage_url: str
    ) -> None:
        """Rows that were inserted or deleted after `stage` are judged as they are at the commit."""
        job = self.patch_job(storage)
        arms: list[Arm] = [
            ("present", {"id": 1, "n": 7}),
            ("absent", {"id": 1, "note": "put"}),
            ("absent", {"id": 3, "note": "put"}),
            ("present", {"id": 4, "n": 4}),
        ]
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        streamed.delete((1,))
        streamed.upsert_many([{"id": 3, "tag": "other"}, {"id": 4}])
        assert storage.commit_write(job, staged)
        assert plain(streamed.scan()) == [item(1, note="put"), BEFORE[1], item(3, tag="other"), item(4, n=4)]

    def test_patch_of_another_process(self, storage: Storage, streamed: StructuredTable, peer: StoreProcess) -> None:
        """The number and the keys that are missing reach the caller, wherever the commit is done."""
        arms: list[Arm] = [("present", {"id": key, "n": 7}) for key in (1, 8, 9)]
        job = self.patch_job(storage, on_missing="skip")
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        assert peer.ask("commit_write", job, staged) == CommitResult(applied=True, missing=2)
        assert streamed.read((1,)) == item(1, n=7, tag="a", note="x")

    def test_patch_of_many_rows(self, storage: Storage, streamed: StructuredTable) -> None:
        """A patch takes many partitions and batches, of rows that name different fields."""
        streamed.upsert_many([item(number, n=0, tag="a") for number in range(0, 6000, 2)])
        job = self.patch_job(storage, on_missing="skip")
        staged = []
        for part in range(3):
            arms: list[Arm] = []
            for number in range(part, 6000, 3):
                arms.append(("present", {"id": number, "n": number} if number % 4 else {"id": number, "rank": 1}))
                if number % 5 == 0:
                    arms.append(("absent", {"id": number, "note": "put"}))
            batches = [patch_batch(ITEMS, arms[start : start + 700]) for start in range(0, len(arms), 700)]
            staged.append(storage.stage(job, part, 0, batches))
        result = storage.commit_write(job, staged)
        new = [number for number in range(3, 6000, 2) if number % 5 == 0]
        assert result == CommitResult(applied=True, missing=2999 - len(new))
        assert streamed.count() == 3001 + len(new)
        assert [row.key for row in streamed.scan_index("rank", 1)] == [(number,) for number in range(0, 6000, 4)]
        assert streamed.read((6,)) == item(6, n=6, tag="a")
        assert streamed.read((5,)) == item(5, note="put")

    def test_patch_outlives_the_storage(self, storage: Storage, streamed: StructuredTable, storage_url: str) -> None:
        """Another storage finds all staged rows, marks included."""
        self.require("restartable")
        job = self.patch_job(storage, on_missing="skip")
        arms: list[Arm] = [("present", {"id": 1, "n": 7}), ("present", {"id": 9}), ("delete", {"id": 2})]
        staged = [storage.stage(job, 0, 0, [patch_batch(ITEMS, arms)])]
        storage.close()
        with connect(storage_url) as second:
            assert second.commit_write(job, staged) == CommitResult(applied=True, missing=1)
            assert plain(second.table("items").scan()) == [item(1, n=7, tag="a", note="x")]
