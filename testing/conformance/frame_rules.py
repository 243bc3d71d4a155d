"""Rules of tables as Arrow, and of `load`: one atomic job of any data with Arrow's interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import (
    InvalidFieldError,
    InvalidSpecificationError,
    Range,
    RecordExistsError,
    Storage,
    StructuredTable,
    TableNotFoundError,
    WriteMode,
    col,
)
from structable.spi.arrow import arrow_schema

from .samples import EXTREMES, ITEMS, TYPES, Record, item, plain
from .write_jobs import BEFORE, JobCase


class _Exporter:
    """Data of another library, known only by Arrow's interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        exported: object = self._table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return exported


class FrameRules(JobCase):
    """`to_arrow`, the PyCapsule interface, and `load`."""

    def test_table_as_arrow(self, storage: Storage) -> None:
        """`to_arrow` has the rows of `scan` in the types of `arrow_schema`, and exactly the columns asked for."""
        storage.admin.create(ITEMS)
        table = storage.table("items")
        assert table.to_arrow() == arrow_schema(ITEMS).empty_table()
        rows: list[Record] = [
            {"id": number * 7919 % 3001, "n": number, "tag": "ab"[number % 2], "cost": number / 2}
            for number in range(3000)
        ]
        table.upsert_many(rows)
        by_key = sorted(rows, key=lambda row: int(row["id"]))
        found = table.to_arrow()
        assert found.schema == arrow_schema(ITEMS)
        assert found.to_pylist() == [{**dict.fromkeys(ITEMS.field_names), **row} for row in by_key]
        found = table.to_arrow(Range.below((1000,)), where=col("tag") == "a", columns=["cost", "n"])
        wanted = [row for row in by_key if int(row["id"]) < 1000 and row["tag"] == "a"]
        assert found.column_names == ["cost", "n"]
        assert found.to_pylist() == [{"cost": row["cost"], "n": row["n"]} for row in wanted]
        found = table.to_arrow(order_by="tag", reverse=True, limit=2, columns=["id"])
        assert found.to_pylist() == [{"id": row["id"]} for row in by_key[::-1] if row["tag"] == "b"][:2]
        with pytest.raises(InvalidFieldError, match="nope"):
            table.to_arrow(columns=["nope"])

    def test_scan_as_arrow_stream(self, storage: Storage, target: StructuredTable) -> None:
        """A table and a scan export Arrow's PyCapsule interface: what pyarrow reads has the columns in their order."""
        sources: list[Any] = [target, target.scan()]  # the stubs do not know the interface
        for source in sources:
            assert pa.schema(source) == arrow_schema(ITEMS)
            assert pa.table(source).to_pylist() == BEFORE
        names = ["note", "id"]
        scans: list[Any] = [
            target.scan(where=col("id") == 1, columns=names),
            target.scan(columns=names, limit=1),
            target.multi_scan([Range.prefix((1,)), Range.prefix((1,))], columns=names),
            target.scan_index("tag", "a", range=Range.prefix((1,)), columns=names),
        ]
        for scan in scans:
            assert pa.schema(scan) == arrow_schema(ITEMS, names)
            assert pa.table(scan).to_pylist() == [{"note": "x", "id": 1}]
        assert pa.table(target.scan(Range.prefix((3,)))) == arrow_schema(ITEMS).empty_table()

    def test_arrow_of_a_transaction(self, storage: Storage, target: StructuredTable) -> None:
        """In a transaction, rows as Arrow are those of its snapshot and its own writes."""
        with storage.transaction() as transaction:
            table = transaction.table("items")
            assert table.count() == 2
            target.insert(item(3))
            table.upsert({"id": 1, "n": 5})
            for found in (table.to_arrow(columns=["n"]), pa.table(table.scan(columns=["n"]))):
                assert found.to_pylist() == [{"n": 5}, {"n": 2}]
            table.delete((1,))
        assert target.to_arrow(columns=["id"]).to_pylist() == [{"id": 2}, {"id": 3}]

    def test_load(self, storage: Storage, target: StructuredTable) -> None:
        """`load` writes a table, a batch, a reader or what exports Arrow's stream, by the names of columns."""
        data = pa.table({"n": pa.array([7.0, None]), "id": pa.array([1, 3], pa.uint8())})
        for number, given in enumerate((data, data.to_batches()[0], data.to_reader(), _Exporter(data))):
            assert storage.load("items", given)
            assert plain(target.scan()) == [{**BEFORE[0], "n": 7}, BEFORE[1], item(3)], number
            target.delete_many([(1,), (3,)])
            target.upsert(BEFORE[0])
        storage.load("items", data.to_reader(), mode="replace")
        assert plain(target.scan()) == [item(1, n=7), BEFORE[1], item(3)]
        storage.load("items", data.select(["id"]), WriteMode.DELETE)
        assert plain(target.scan()) == [BEFORE[1]]
        storage.load("items", data.schema.empty_table(), mode="overwrite")
        assert plain(target.scan()) == []

    def test_load_is_one_job(self, storage: Storage, target: StructuredTable) -> None:
        """`load` is atomic, and two loads with one id take effect once."""
        data = pa.table({"id": [5, 1]})
        with pytest.raises(RecordExistsError):
            storage.load("items", data, mode="insert")
        assert plain(target.scan()) == BEFORE
        name = self.fresh_id()
        assert storage.load("items", data, job_id=name)
        target.delete((5,))
        assert not storage.load("items", data, job_id=name)
        assert target.read((5,)) is None

    def test_load_names_what_does_not_fit(self, storage: Storage, target: StructuredTable) -> None:
        """`load` refuses what `stage` does, by the row of the data, the field and the value, and writes nothing."""
        ids: Any = pa.chunked_array([pa.array(range(100_000)), pa.array([100_000, None])])
        for column, reason in (
            ({"n": pa.array([None] * 100_001 + [1.5])}, "row 100002 of the data: 1.5 is not a whole number"),
            ({"note": pa.array([None] * 100_000 + ["a\0", None])}, "row 100001 of the data: 'a\\x00' holds a NUL"),
            ({}, "row 100002 of the data: is part of the primary key and must not be null"),
        ):
            with pytest.raises(InvalidFieldError) as refusal:
                storage.load("items", pa.table({"id": ids, **column}))
            assert reason in refusal.value.reason
        for wrong, field in (({"id": [1], "nope": [1]}, "nope"), ({"n": [1]}, "id")):
            with pytest.raises(InvalidFieldError) as refusal:
                storage.load("items", pa.table(wrong))
            assert refusal.value.field == field
        with pytest.raises(TypeError, match="upsert_many"):
            storage.load("items", [{"id": 1}])
        with pytest.raises(TableNotFoundError):
            storage.load("nope", pa.table({"id": [1]}))
        assert plain(target.scan()) == BEFORE

    def test_load_makes_the_table(self, storage: Storage) -> None:
        """`create` makes a table that is missing, with a field for each column; none is left of a load that fails."""
        data = pa.table({"Body Mass (g)": [1, 2], "name": ["a", "b"]})
        storage.load("made", data, create=True, primary_key=["name"])
        spec = storage.admin.get_specification("made")
        assert [str(field) for field in spec.fields] == ["Body_Mass_g long", "name string"]
        assert storage.table("made").to_arrow().to_pylist() == [
            {"Body_Mass_g": 1, "name": "a"},
            {"Body_Mass_g": 2, "name": "b"},
        ]
        storage.load("made", data.slice(1), create=True, primary_key=["name"])
        for wrong, error in (
            (pa.table({"k": [1, 1]}), RecordExistsError),
            (pa.table({"k": [1, None]}), InvalidFieldError),
            (pa.table({"k": [[1]]}), InvalidSpecificationError),
        ):
            with pytest.raises(error):
                storage.load("failed", wrong, mode="insert", create=True, primary_key=["k"])
            assert storage.admin.list() == ["made"]

    def test_stage_takes_tables_and_readers(self, storage: Storage, target: StructuredTable) -> None:
        """`stage` takes a table, a batch, a reader, or what exports Arrow's stream, as it takes batches."""
        data = pa.table({"id": [1, 4], "n": [8, 9]})
        for given in (data, data.to_batches()[0], data.to_reader(), _Exporter(data)):
            job = self.job(storage, WriteMode.OVERWRITE)
            staged = storage.stage(job, 0, 0, given)
            assert staged.rows == 2
            storage.commit_write(job, [staged])
            assert plain(target.scan()) == [item(1, n=8), item(4, n=9)]
            target.delete_all(Range.all())

    def test_all_types_as_arrow(self, storage: Storage) -> None:
        """A table loaded from what another one exports is the same, in all types."""
        storage.admin.create(TYPES)
        storage.admin.create(TYPES.evolve(name="copied"))
        rows = list(_types())
        storage.table("types").upsert_many(rows)
        storage.load("copied", storage.table("types"))
        assert repr(plain(storage.table("copied").scan())) == repr(plain(storage.table("types").scan()))


def _types() -> Iterator[Record]:
    most = max(map(len, EXTREMES.values()))
    for number in range(most):
        values = {kind.value: found[number] for kind, found in EXTREMES.items() if number < len(found)}
        yield {"id": number, **values}
