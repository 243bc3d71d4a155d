"""Rules of write jobs: the effect of each mode, and the arguments of `stage`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from structable.spi import Field, InvalidFieldError, Storage, StructuredTable, TableSpecification, WriteMode
from structable.spi.arrow import arrow_schema, rows_to_batches

from .case import Begin
from .samples import ITEMS, Record, item, keys, plain
from .write_jobs import BEFORE, PLAIN_MODES, JobCase, batch


class JobModeRules(JobCase):
    """Each mode has the effect of the operation of the same name."""

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.REPLACE, WriteMode.OVERWRITE, WriteMode.UPDATE])
    def test_job_one_key_twice(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """Of a key's rows in a job the last of the last partition wins (mode update: any), in table and index."""
        job = self.job(storage, mode)
        staged = [
            storage.stage(job, 2, 0, [batch([{"id": 1, "tag": "q"}, {"id": 1, "tag": "r"}])]),
            storage.stage(job, 1, 0, [batch([{"id": 1, "tag": "p"}])]),
        ]
        storage.commit_write(job, staged)
        row = target.read((1,))
        assert row is not None
        assert row["tag"] == "r" or (mode is WriteMode.UPDATE and row["tag"] in ("p", "q"))
        tags = [tag for tag in "apqr" if (1,) in keys(target.scan_index("tag", tag))]
        assert tags == [row["tag"]]
        assert keys(target.scan()) == ([(1,)] if mode is WriteMode.OVERWRITE else [(1,), (2,)])

    def test_job_overwrite(self, storage: Storage, target: StructuredTable) -> None:
        """Mode overwrite replaces the whole table: rows, columns and index entries not in the job are gone."""
        self.run_job(storage, WriteMode.OVERWRITE, [{"id": 7, "tag": "a"}, {"id": 2, "tag": "b"}])
        assert plain(target.scan()) == [item(2, tag="b"), item(7, tag="a")]
        assert keys(target.scan_index("tag", "a")) == [(7,)]
        assert keys(target.scan_index("tag", None)) == []
        job = self.job(storage, WriteMode.OVERWRITE)
        storage.commit_write(job, [])
        assert target.count() == 0
        target.insert({"id": 2})
        assert keys(target.scan_index("tag", None)) == [(2,)]

    def test_job_overwrite_is_atomic(self, storage: Storage, target: StructuredTable, begin: Begin) -> None:
        """An overwrite is seen whole or not at all: a snapshot from before it continues to see the old rows."""
        old = begin(read_only=True)
        assert plain(old.table("items").scan()) == BEFORE
        with target.scan() as rows:
            first = next(rows)
            self.run_job(storage, WriteMode.OVERWRITE, [{"id": number, "tag": "b"} for number in range(100, 120)])
            assert [dict(first), *plain(rows)] == BEFORE
        assert plain(old.table("items").scan()) == BEFORE
        assert plain(old.table("items").scan_index("tag", "a")) == BEFORE
        assert keys(target.scan()) == [(number,) for number in range(100, 120)]

    @pytest.mark.parametrize("mode", [*PLAIN_MODES, *(mode.value for mode in PLAIN_MODES), "changes"], ids=repr)
    def test_mode_or_its_value(self, storage: Storage, target: StructuredTable, mode: WriteMode | str) -> None:
        """`mode` accepts a `WriteMode` or its value; the job has its table, mode and id."""
        if mode == WriteMode.CHANGES:
            self.require("table_types")
        job_id = self.fresh_id()
        job = storage.begin_write("items", mode=mode, job_id=job_id)
        assert (job.table, job.mode, job.job_id) == ("items", WriteMode(mode), job_id)
        storage.abort_write(job)

    def test_job_empty_partitions(self, storage: Storage, target: StructuredTable) -> None:
        """A partition may have no batch, or an empty one, and a job may have no partition."""
        job = self.job(storage, WriteMode.UPSERT)
        empty = arrow_schema(ITEMS, ["id", "n"]).empty_table().to_batches()
        staged = [
            storage.stage(job, 0, 0, []),
            storage.stage(job, 1, 0, empty),
            storage.stage(job, 2, 0, [batch([{"id": 3}])]),
        ]
        assert [one.rows for one in staged] == [0, 0, 1]
        storage.commit_write(job, staged)
        storage.commit_write(self.job(storage, WriteMode.UPSERT), [])
        assert keys(target.scan()) == [(1,), (2,), (3,)]

    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.DELETE, WriteMode.OVERWRITE])
    def test_bad_rows_are_refused_when_staged(self, storage: Storage, target: StructuredTable, mode: WriteMode) -> None:
        """`stage` rejects bad rows: unknown columns, wrong types, no key, values that do not fit, damaged data."""
        job = self.job(storage, mode)
        three = pa.array([3], pa.int64())
        wrong: list[dict[str, pa.Array[Any]]] = [
            {"id": three, "unknown": three},
            {"id": pa.array(["3"])},
            {"id": pa.array([None], pa.int64())},
            {"n": three},
        ]
        if mode is not WriteMode.DELETE:
            wrong += [
                {"id": three, "n": pa.array(["x"])},
                {"id": three, "tag": pa.array(["nul\0"])},
                {"id": three, "rank": three},
                {"id": three, "tag": pa.DictionaryArray.from_arrays(pa.array([7]), pa.array(["a"]), safe=False)},
            ]
        for one in wrong:
            with pytest.raises(InvalidFieldError):
                storage.stage(job, 0, 0, [batch([{"id": 8}]), pa.record_batch(one)])
        storage.abort_write(job)
        assert plain(target.scan()) == BEFORE

    def test_job_composite_keys(self, storage: Storage) -> None:
        """A job writes tables whose key is not at the front, and columns in any order."""
        spec = TableSpecification("t", [Field.string("v"), Field.bytes("b"), Field.short("s")], ["s", "b"], ["v"])
        storage.admin.create(spec)
        rows: list[Record] = [{"b": b, "v": f"{s}", "s": s} for s in (2, -1) for b in (b"\xff", b"", b"\x00")]
        job = storage.begin_write("t", mode="insert", job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(rows, spec=spec)])])
        assert keys(storage.table("t").scan()) == [(s, b) for s in (-1, 2) for b in (b"", b"\x00", b"\xff")]
        assert keys(storage.table("t").scan_index("v", "2")) == [(2, b""), (2, b"\x00"), (2, b"\xff")]

    def test_large_job(self, storage: Storage, target: StructuredTable) -> None:
        """A job of many rows over many partitions is one commit."""
        job = self.job(storage, WriteMode.UPSERT)
        staged = []
        for partition in range(4):
            rows: list[Record] = [
                {"id": number, "n": number, "tag": f"tag {number % 7}"} for number in range(partition, 12_000, 4)
            ]
            staged.append(storage.stage(job, partition, 0, rows_to_batches(ITEMS, rows, ["id", "n", "tag"])))
        storage.commit_write(job, staged)
        assert target.count() == 12_000
        assert len(keys(target.scan_index("tag", "tag 3"))) == len(range(3, 12_000, 7))
