"""Rules of write jobs that merge: modes upsert and changes on tables with merge engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    RecordExistsError,
    StagedWrite,
    Storage,
    StructableError,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)

from .clients import StoreProcess
from .merge_case import MergeCase, Step, add, change_batch, delete, postimage, preimage, run_job, stage_changes
from .samples import ITEMS, Record, item, keys, plain
from .write_jobs import PLAIN_MODES, batch

FIELDS = [Field.long("id"), Field.long("n"), Field.long("top"), Field.string("list"), Field.string("last")]
SUMS = TableSpecification(
    "t",
    FIELDS,
    ["id"],
    options={
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.top.aggregate-function": "max",
        "fields.list.aggregate-function": "listagg",
        "fields.last.aggregate-function": "last_value",
    },
)
BLIND = TableSpecification(
    "t",
    FIELDS[:3],
    ["id"],
    options={"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
)
BY_SEQUENCE = TableSpecification("t", FIELDS, ["id"], ["top"], {"sequence.field": "n"})
PARTIAL = TableSpecification("t", FIELDS, ["id"], options={"merge-engine": "partial-update"})
FIRST_ROW = TableSpecification("t", FIELDS, ["id"], ["list"], {"merge-engine": "first-row"})
WINDOW = 60_000


class MergeJobRules(MergeCase):
    """The rows of a job merge in the order of partition and position."""

    def begin_job(self, storage: Storage, mode: WriteMode, table: str = "t") -> WriteJob:
        return storage.begin_write(table, mode=mode, job_id=self.fresh_id())

    def upsert(self, storage: Storage, spec: TableSpecification, *partitions: Sequence[Record]) -> None:
        """Write rows by one job in mode upsert; the last partition is staged first."""
        job = self.begin_job(storage, WriteMode.UPSERT)
        staged = [
            storage.stage(job, number, 0, [batch([row], spec=spec) for row in partitions[number]])
            for number in reversed(range(len(partitions)))
        ]
        storage.commit_write(job, staged)

    def test_upsert_job_merges(self, typed: Storage) -> None:
        """Mode upsert merges each row; a field that the batches lack is unnamed, a null is a named null."""
        typed.admin.create(SUMS)
        view = typed.table("t")
        view.upsert({"id": 1, "n": 1, "top": 5, "list": "a", "last": "x"})
        self.upsert(
            typed,
            SUMS,
            [{"id": 1, "n": 2, "list": "b"}],
            [{"id": 2, "n": 7, "last": None}, {"id": 1, "n": None, "last": None}],
            [{"id": 3, "top": 1}],
            [{"id": 1, "n": 4, "top": 3}],
        )
        assert plain(view.scan()) == [
            {"id": 1, "n": 7, "top": 5, "list": "a,b", "last": None},
            {"id": 2, "n": 7, "top": None, "list": None, "last": None},
            {"id": 3, "n": None, "top": 1, "list": None, "last": None},
        ]

    def test_job_merges_in_the_order_of_partitions(self, typed: Storage) -> None:
        """Rows of a key count by partition number, then in the order staged, however they are handed over."""
        typed.admin.create(SUMS)
        parts: list[list[Record]] = [
            [{"id": key, "list": f"{part}{place}", "last": f"{part}"} for place in range(3) for key in (1, 2)]
            for part in range(11)
        ]
        self.upsert(typed, SUMS, *parts)
        expected = ",".join(f"{part}{place}" for part in range(11) for place in range(3))
        assert [(row["list"], row["last"]) for row in typed.table("t").scan()] == [(expected, "10")] * 2

    def test_job_merges_the_last_attempt(self, typed: Storage) -> None:
        """The last of two attempts of a partition passed to the commit counts; an attempt not passed never does."""
        typed.admin.create(BLIND)
        job = self.begin_job(typed, WriteMode.UPSERT)
        attempts = [
            typed.stage(job, 0, number, [batch([{"id": 1, "n": 10**number}], spec=BLIND)]) for number in range(3)
        ]
        typed.commit_write(job, attempts[:2])
        assert [row["n"] for row in typed.table("t").scan()] == [10]

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.REPLACE, WriteMode.OVERWRITE])
    def test_order_within_a_plain_job(self, typed: Storage, mode: WriteMode) -> None:
        """Rows of one key: upsert changes the row by one after the other, replace and overwrite keep the last."""
        typed.admin.create(ITEMS)
        typed.table("items").upsert(item(1, note="old"))
        job = self.begin_job(typed, mode, "items")
        two = typed.stage(job, 2, 0, [batch([{"id": 1, "n": 2}])])
        parts: list[list[Record]] = [
            [{"id": 1, "n": 9, "tag": "p"}, {"id": 1, "n": 8, "tag": "q"}],
            [{"id": 1, "n": 1, "rank": 3}],
        ]
        staged = [typed.stage(job, number, 0, [batch([row]) for row in rows]) for number, rows in enumerate(parts)]
        typed.commit_write(job, [two, *staged])
        merged = item(1, n=2, tag="q", rank=3, note="old")
        assert plain(typed.table("items").scan()) == [merged if mode is WriteMode.UPSERT else item(1, n=2)]
        assert keys(typed.table("items").scan_index("tag", "p")) == []

    def test_changes_job(self, typed: Storage) -> None:
        """Mode changes takes row kinds in `_change_type`, in either notation, on tables without options too."""
        typed.admin.create(ITEMS)
        view = typed.table("items")
        view.upsert_many([item(1, n=1, tag="a"), item(2, n=2, tag="a"), item(3)])
        job = self.begin_job(typed, WriteMode.CHANGES, "items")
        kinds = ["+U", "delete", "update_preimage", "update_postimage", "+I", "-D"]
        rows: list[Record] = [{"id": key, "n": 10 * key} for key in (1, 2, 3, 3, 4, 9)]
        given = batch(rows).append_column("_change_type", pa.array(kinds))
        result = typed.commit_write(job, [typed.stage(job, 0, 0, [given])])
        assert result
        assert plain(view.scan()) == [item(1, n=10, tag="a"), item(3, n=30), item(4, n=40)]
        assert keys(view.scan_index("tag", "a")) == [(1,)]

    def test_columns_of_a_feed_are_left_out(self, typed: Storage) -> None:
        """`_commit_version` and `_commit_timestamp` may be in the batches, and are left out."""
        typed.admin.create(ITEMS)
        job = self.begin_job(typed, WriteMode.CHANGES, "items")
        given = change_batch(ITEMS, [add(id=1, n=1), add(id=2, n=2), delete(id=1, n=None)])
        times: pa.Array[Any] = pa.array([0, 1, None], pa.timestamp("us", tz="UTC"))
        fed = given.append_column("_commit_version", pa.array([5, 5, 6])).append_column("_commit_timestamp", times)
        typed.commit_write(job, [typed.stage(job, 0, 0, [fed])])
        assert plain(typed.table("items").scan()) == [item(2, n=2)]

    @pytest.mark.parametrize("spec", [ITEMS, SUMS], ids=lambda spec: spec.name)
    def test_bad_change_types(self, typed: Storage, spec: TableSpecification) -> None:
        """A `_change_type` that is null, another text, not a text or missing is `InvalidFieldError` from `stage`."""
        typed.admin.create(spec)
        job = self.begin_job(typed, WriteMode.CHANGES, spec.name)
        good = batch([{"id": 1}, {"id": 2}], spec=spec)
        columns: list[pa.Array[Any]] = [
            pa.array(["+I", None]),
            pa.array(["+I", "update"]),
            pa.array(["", "-D"]),
            pa.array([1, 2]),
            pa.array([["+I"], ["+I"]]),
            pa.array([None, None], pa.string()),
            pa.array([b"+I", b"\xff"]).view(pa.string()),
        ]
        for wrong in [good, *(good.append_column("_change_type", column) for column in columns)]:
            with pytest.raises(InvalidFieldError, match="_change_type"):
                typed.stage(job, 0, 0, [change_batch(spec, [add(id=3)]), wrong])
        changes = change_batch(spec, [add(id=3)])
        for repeated in ("id", "_change_type"):
            with pytest.raises(InvalidFieldError, match=repeated):
                typed.stage(job, 0, 0, [changes.append_column(repeated, changes.column(repeated))])
        typed.abort_write(job)
        assert typed.table(spec.name).count() == 0

    @pytest.mark.parametrize("mode", PLAIN_MODES)
    def test_change_types_in_other_modes(self, typed: Storage, mode: WriteMode) -> None:
        """In another mode `_change_type` is a field that the table does not have."""
        typed.admin.create(SUMS)
        job = self.begin_job(typed, mode)
        with pytest.raises(InvalidFieldError):
            stage_changes(typed, job, [add(id=1)])

    def test_bad_rows_of_a_merge_job(self, typed: Storage) -> None:
        """`stage` rejects bad rows: no key, a null key, unknown columns, wrong types."""
        typed.admin.create(SUMS)
        three: pa.Array[Any] = pa.array([3], pa.int64())
        wrong: list[dict[str, pa.Array[Any]]] = [
            {"n": three},
            {"id": pa.array([None], pa.int64())},
            {"id": three, "unknown": three},
            {"id": three, "list": three},
            {"id": three, "list": pa.array(["nul\0"])},
        ]
        for mode in (WriteMode.UPSERT, WriteMode.CHANGES):
            job = self.begin_job(typed, mode)
            for one in wrong:
                kinds: dict[str, pa.Array[Any]] = {} if mode is WriteMode.UPSERT else {"_change_type": pa.array(["+I"])}
                with pytest.raises(InvalidFieldError):
                    typed.stage(job, 0, 0, [pa.record_batch({**one, **kinds})])
            typed.abort_write(job)
        assert typed.table("t").count() == 0

    def test_refused_retracts_are_refused_when_staged(self, typed: Storage) -> None:
        """`stage` rejects a retract that its table refuses for every row."""
        typed.admin.create(PARTIAL)
        typed.admin.create(FIRST_ROW.evolve(name="first"))
        typed.admin.create(SUMS.evolve(name="sums"))
        refused: list[tuple[str, Step]] = [
            ("t", delete(id=1)),
            ("first", preimage(id=1)),
            ("sums", delete(id=1, top=1)),
        ]
        for table, step in refused:
            job = self.begin_job(typed, WriteMode.CHANGES, table)
            with pytest.raises(UnsupportedOperationError):
                stage_changes(typed, job, [add(id=2), step])
            typed.abort_write(job)
            assert typed.table(table).count() == 0

    def test_merge_job_committed_twice(self, typed: Storage) -> None:
        """Committing a job again merges nothing again, also under an id that is begun again."""
        for spec in (BLIND, SUMS):
            typed.admin.create(spec)
            job = self.begin_job(typed, WriteMode.CHANGES)
            staged = stage_changes(typed, job, [add(id=1, n=1), preimage(id=1, n=3), add(id=2, n=5)])
            assert typed.commit_write(job, staged)
            assert not typed.commit_write(job, staged)
            again = typed.begin_write("t", mode=WriteMode.CHANGES, job_id=job.job_id)
            assert again.committed
            assert not typed.commit_write(again, staged)
            assert [row["n"] for row in typed.table("t").scan()] == [-2, 5]
            typed.admin.drop("t")

    def test_aborted_merge_job(self, typed: Storage) -> None:
        """An aborted job merges nothing, and cannot be committed."""
        typed.admin.create(SUMS)
        job = self.begin_job(typed, WriteMode.UPSERT)
        staged = [typed.stage(job, 0, 0, [batch([{"id": 1, "n": 1}], spec=SUMS)])]
        typed.abort_write(job)
        with pytest.raises(TransactionClosedError):
            typed.commit_write(job, staged)
        assert typed.table("t").count() == 0

    def test_merge_job_takes_effect_as_of_its_commit(self, typed: Storage) -> None:
        """Rows that others changed since `stage` do not conflict: the job is merged into them."""
        for spec in (BLIND, SUMS, BY_SEQUENCE, FIRST_ROW):
            typed.admin.create(spec)
            view = typed.table("t")
            view.upsert_many([{"id": 1, "n": 10}, {"id": 2, "n": 10}])
            job = self.begin_job(typed, WriteMode.CHANGES)
            staged = stage_changes(typed, job, [postimage(id=key, n=11) for key in (1, 2, 3)])
            view.upsert({"id": 1, "n": 20})
            view.delete((2,))
            view.upsert({"id": 3, "n": 5})
            assert typed.commit_write(job, staged)
            sums = {BLIND: [41, 11, 16], SUMS: [41, 11, 16], BY_SEQUENCE: [20, 11, 11], FIRST_ROW: [10, 11, 5]}
            assert [row["n"] for row in view.scan()] == sums[spec]
            typed.admin.drop("t")

    def test_overflow_of_a_merge_job(self, typed: Storage) -> None:
        """A row that does not fit after the merge is an error of the commit, and the whole job writes nothing."""
        for spec in (BLIND, SUMS):
            typed.admin.create(spec)
            view = typed.table("t")
            view.insert_many([{"id": key, "n": 2**62} for key in range(0, 300, 3)])
            job = self.begin_job(typed, WriteMode.UPSERT)
            rows: list[Record] = [{"id": key, "n": 2**62 if key == 298 or key == 150 else 1} for key in range(300)]
            staged = [typed.stage(job, 0, 0, [batch(rows, spec=spec)])]
            with pytest.raises(InvalidFieldError):
                typed.commit_write(job, staged)
            assert [(row["id"], row["n"]) for row in view.scan()] == [(key, 2**62) for key in range(0, 300, 3)]
            with pytest.raises(StructableError):
                typed.commit_write(job, staged)
            assert view.count() == 100
            typed.admin.drop("t")

    def test_window_of_a_merge_job(self, typed: Storage) -> None:
        """However many rows of few keys a partition has, each is merged once and in its order."""
        last = TableSpecification(
            "t",
            FIELDS,
            ["id"],
            options={
                **BLIND.options,
                "fields.last.aggregate-function": "last_value",
                "fields.list.aggregate-function": "first_value",
            },
        )
        typed.admin.create(last)
        number = 2 * WINDOW + 100
        ids = pa.array([place % 7 for place in range(number)], pa.int64())
        ones = pa.array([1] * number, pa.int64())
        texts = pa.array([str(place) for place in range(number)])
        columns: dict[str, pa.Array[Any]] = {"id": ids, "n": ones, "top": ids, "list": texts, "last": texts}
        whole: pa.RecordBatch = pa.record_batch(columns)
        job = self.begin_job(typed, WriteMode.UPSERT)
        staged: list[StagedWrite] = [
            typed.stage(job, 0, 0, [whole.slice(first, 10_000) for first in range(0, number, 10_000)]),
            typed.stage(job, 1, 0, [whole.slice(0, 7)]),
        ]
        typed.commit_write(job, staged)
        found = [tuple(row[name] for name in ("id", "n", "top", "list", "last")) for row in typed.table("t").scan()]
        times = [len(range(key, number, 7)) + 1 for key in range(7)]
        assert found == [(key, times[key], key * times[key], str(key), str(key)) for key in range(7)]

    def test_changes_of_one_key_in_a_job(self, typed: Storage) -> None:
        """A row may be put, deleted and made again within a job, over several partitions."""
        spec = BY_SEQUENCE.evolve(options={})
        typed.admin.create(spec)
        steps: list[Step] = [add(id=1, list="a"), delete(id=1), add(id=1, last="b"), add(id=1, top=3)]
        more: list[Step] = [preimage(id=1, top=3), postimage(id=1, top=4), add(id=2, top=4), delete(id=2)]
        run_job(typed, "t", [*steps, *more])
        assert plain(typed.table("t").scan()) == [{"id": 1, "n": None, "top": 4, "list": None, "last": None}]
        assert keys(typed.table("t").scan_index("top", 4)) == [(1,)]
        assert keys(typed.table("t").scan_index("top", 3)) == []

    def test_set_modes_of_merge_tables(self, typed: Storage) -> None:
        """Modes replace, insert, update, delete and overwrite have the same effect under every merge engine."""
        for spec in (SUMS, BLIND, BY_SEQUENCE, PARTIAL, FIRST_ROW):
            typed.admin.create(spec)
            for mode, rows, expected in [
                (WriteMode.INSERT, [{"id": 1, "n": 5, "top": 1}, {"id": 2, "n": 5, "top": 1}], [(1, 5, 1), (2, 5, 1)]),
                (WriteMode.UPDATE, [{"id": 1, "n": 3}], [(1, 3, 1), (2, 5, 1)]),
                (WriteMode.REPLACE, [{"id": 1, "n": 2}, {"id": 3, "n": 2}], [(1, 2, None), (2, 5, 1), (3, 2, None)]),
                (WriteMode.DELETE, [{"id": 3}, {"id": 4}], [(1, 2, None), (2, 5, 1)]),
                (WriteMode.OVERWRITE, [{"id": 7, "n": 1}, {"id": 7, "n": 0}], [(7, 0, None)]),
            ]:
                job = self.begin_job(typed, mode)
                typed.commit_write(job, [typed.stage(job, 0, 0, [batch(rows, spec=spec)])])
                assert [(row["id"], row["n"], row["top"]) for row in typed.table("t").scan()] == expected, mode
            job = self.begin_job(typed, WriteMode.INSERT)
            staged = [typed.stage(job, 0, 0, [batch([{"id": 6}, {"id": 7}], spec=spec)])]
            with pytest.raises(RecordExistsError):
                typed.commit_write(job, staged)
            assert typed.table("t").count() == 1
            typed.admin.drop("t")

    def test_merge_job_of_several_processes(self, typed: Storage, peer: StoreProcess) -> None:
        """Partitions staged by other processes merge; a commit by another process is the job's only one."""
        typed.admin.create(SUMS)
        typed.table("t").upsert({"id": 1, "n": 1, "list": "a"})
        job = self.begin_job(typed, WriteMode.UPSERT)
        staged = [
            peer.ask("stage", job, 1, [{"id": 1, "n": 10, "list": "c"}, {"id": 2, "n": 10}]),
            typed.stage(job, 0, 0, [batch([{"id": 1, "n": 5, "list": "b"}], spec=SUMS)]),
        ]
        assert peer.ask("commit_write", job, staged)
        assert not typed.commit_write(job, staged)
        assert [(row["n"], row["list"]) for row in typed.table("t").scan()] == [(16, "a,b,c"), (10, None)]
