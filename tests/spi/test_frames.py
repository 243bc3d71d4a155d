"""Tables and the frames of pandas, Polars and DuckDB, both ways; and what a person sees of them."""

import datetime as dt
import math
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    Range,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    TransactionClosedError,
    col,
    connect,
)

DAY = dt.date(2024, 5, 31)
NOON = dt.datetime(2024, 5, 31, 12, 0, 0, 5, tzinfo=dt.UTC)
SPEC = TableSpecification(
    "t",
    [
        Field.long("k"),
        Field.int("i"),
        Field.boolean("b"),
        Field.double("d"),
        Field.decimal("m", 10, 2),
        Field.string("s"),
        Field.date("day"),
        Field.timestamp("at"),
        Field.timestamp_ntz("local"),
        Field.bytes("raw"),
    ],
    ["k"],
    ["i"],
)
ROWS: list[dict[str, Any]] = [
    {
        "k": 2**60 + 1,
        "i": 7,
        "b": True,
        "d": 0.5,
        "m": Decimal("1.50"),
        "s": "a<b",
        "day": DAY,
        "at": NOON,
        "local": NOON.replace(tzinfo=None),
        "raw": b"\0",
    },
    {"k": 1, **dict.fromkeys(SPEC.field_names[1:])},
]


@pytest.fixture(params=["memory", "leveldb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with connect("memory://" if request.param == "memory" else f"leveldb://{tmp_path}/store") as storage:
        storage.admin.create(SPEC)
        storage.table("t").upsert_many(ROWS)
        yield storage


def test_to_pandas_keeps_every_digit(storage: Storage) -> None:
    table = storage.table("t")
    frame = table.to_pandas()
    assert list(frame.columns) == list(SPEC.field_names)
    assert str(frame["k"].dtype) == "int64"
    assert (str(frame["i"].dtype), str(frame["b"].dtype)) == ("Int32", "boolean")
    assert frame["k"].tolist() == [1, 2**60 + 1]
    assert frame["i"].isna().tolist() == [True, False]
    last = frame.iloc[1]
    assert (last["i"], last["b"], last["m"], last["day"], last["raw"]) == (7, True, Decimal("1.50"), DAY, b"\0")
    assert last["at"] == pd.Timestamp(NOON)
    first = table.to_pandas(Range.prefix((1,)), columns=["s", "k"])
    assert list(first.columns) == ["s", "k"]
    assert (first["k"].tolist(), first["s"].isna().tolist()) == ([1], [True])
    assert isinstance(last["s"], str)
    assert (str(frame["at"].dtype), str(frame["local"].dtype)) == ("datetime64[us, UTC]", "datetime64[us]")
    assert table.to_pandas(where=col("i") == 8).empty
    assert list(table.to_pandas(where=col("i") == 8).columns) == list(SPEC.field_names)


def test_to_polars(storage: Storage) -> None:
    table = storage.table("t")
    frame = table.to_polars(columns=["k", "m", "at"])
    assert frame.rows() == [(1, None, None), (2**60 + 1, Decimal("1.50"), NOON)]
    assert frame.schema["at"] == pl.Datetime("us", "UTC")
    assert table.to_polars(where=col("i") == 8).height == 0


def test_other_libraries_read_tables_and_scans(storage: Storage) -> None:
    table = storage.table("t")
    names = ["at", "k"]
    for source in (table.scan(columns=names), table.scan(columns=names, limit=5)):
        assert pl.DataFrame(source).columns == names
    assert pl.DataFrame(table).rows() == table.to_polars().rows()
    scan = table.scan(columns=["k", "i"])
    assert answer("select count(*), sum(i), max(k) from scan", scan) == [(2, 7, 2**60 + 1)]
    assert answer("select count(*) from scan", table.scan(where=col("i") == 8)) == [(0,)]
    assert answer("select count(*) from scan", table) == [(2,)]
    assert pa.RecordBatchReader.from_stream(table).read_all() == table.to_arrow()
    with storage.transaction() as transaction:
        own = transaction.table("t")
        own.delete((1,))
        assert pl.DataFrame(own)["k"].to_list() == [2**60 + 1]
        rows = own.scan()
    with pytest.raises((TransactionClosedError, pa.ArrowException, OSError)):
        pa.table(rows)


def answer(query: str, scan: object) -> list[Any]:
    """Return what DuckDB answers: it finds `scan` by its name."""
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


def test_a_scan_that_was_begun_in_a_transaction_goes_on(storage: Storage) -> None:
    with storage.transaction(read_only=True) as transaction:
        rows = transaction.table("t").scan(columns=["k"])
        assert next(rows).k == 1
        assert pa.table(rows).to_pylist() == [{"k": 2**60 + 1}]


def test_frames_are_loaded_as_they_were(storage: Storage) -> None:
    table = storage.table("t")
    storage.admin.create(SPEC.evolve(name="copy"))
    copy = storage.table("copy")
    for data in (
        table,
        table.scan(),
        table.to_arrow(),
        table.to_pandas(),
        table.to_polars(),
        duckdb.from_arrow(table.to_arrow()),
    ):
        storage.load("copy", data, mode="overwrite")
        assert copy.to_arrow() == table.to_arrow(), type(data)


def test_missing_values_of_pandas(storage: Storage) -> None:
    table = storage.table("t")
    frame = pd.DataFrame(
        {
            "k": [1, 2],
            "d": [float("nan"), 1.0],
            "i": [float("nan"), 181.0],
            "at": pd.to_datetime(pd.Series([None, "2024-05-31T12:00:00Z"]), utc=True),
            "s": [None, "x"],
            "b": pd.array([None, True], "boolean"),
        }
    )
    storage.load("t", frame)
    nulls = dict.fromkeys(("d", "i", "at", "s", "b"))
    assert {name: table.read((1,))[name] for name in nulls} == nulls  # type: ignore[index]
    second = table.read((2,))
    assert second is not None
    assert (second.d, second.i, second.s, second.b) == (1.0, 181, "x", True)
    storage.load("t", frame[["k", "d", "at"]], nan_is_null=False)
    first = table.read((1,))
    assert first is not None
    assert math.isnan(first.d)
    assert first["at"] is None
    polars = pl.DataFrame({"k": [1, 2], "d": [float("nan"), None]})
    storage.load("t", polars)
    assert math.isnan(table.read((1,)).d)  # type: ignore[union-attr]
    storage.load("t", polars, nan_is_null=True)
    assert table.read((1,)).d is None  # type: ignore[union-attr]
    with pytest.raises(InvalidFieldError, match=r"NaT.*use None"):
        table.upsert({"k": 1, "at": pd.NaT})  # type: ignore[dict-item]


def test_extension_types_of_pandas(storage: Storage) -> None:
    """What pandas takes for missing is null whatever the option says; another NaN is a NaN if it keeps them."""
    quotient = pd.Series([0.0, 1.0, None], dtype="Float64") / 0
    columns = {"masked": quotient, "arrow": pd.Series(pd.arrays.ArrowExtensionArray(pa.array([math.nan, 1.0, None])))}
    for name, column in columns.items():
        for nan_is_null in (False, True):
            storage.load("t", pd.DataFrame({"k": [1, 2, 3], "d": column}), "overwrite", nan_is_null=nan_is_null)
            first, _, last = (row.d for row in storage.table("t").scan())
            assert last is None, name
            assert first is None if nan_is_null or column.isna()[0] else math.isnan(first), name
    texts = pd.DataFrame({"k": [1, 2], "s": pd.array(["a", None], "string"), "i": pd.array([1, None], "Int64")})
    storage.load("t", texts, "overwrite")
    storage.load("t", texts.convert_dtypes(dtype_backend="pyarrow"), "overwrite")
    found = storage.table("t").to_arrow(columns=["k", "s", "i"]).to_pylist()
    assert found == [{"k": 1, "s": "a", "i": 1}, {"k": 2, "s": None, "i": None}]


def test_an_index_of_pandas(storage: Storage) -> None:
    """A named index is columns; one without a name is none."""
    frame = pd.DataFrame({"k": [1, 2, 3], "i": [1, 2, 3]})
    storage.load("t", frame[frame.i > 1], mode="overwrite")
    assert storage.table("t").to_arrow(columns=["k"]).to_pylist() == [{"k": 2}, {"k": 3}]
    storage.load("t", frame.set_index("k"), mode="overwrite")
    assert storage.table("t").count() == 3
    storage.load("u", frame.rename(columns={"i": 0}), create=True, primary_key=["k"])
    assert storage.admin.get_specification("u").field_names == ("k", "column_0")
    job = storage.begin_write("t", mode="upsert", job_id="staged")
    other = pd.DataFrame({"k": [7], "d": [float("nan")]}, index=[9])
    staged = [storage.stage(job, part, 0, data) for part, data in enumerate((other, other.set_index("k")))]
    storage.commit_write(job, staged)
    assert storage.table("t").to_arrow(Range.at_least((7,)), columns=["k", "d"]).to_pylist() == [{"k": 7, "d": None}]


def test_data_that_cannot_be_taken(storage: Storage) -> None:
    frame = pd.DataFrame({"k": [1, 2], "s": ["a", 2]})
    with pytest.raises(InvalidFieldError, match="field 's': Arrow rejects it") as refusal:
        storage.load("t", frame)
    assert refusal.value.field == "s"
    doubled = pd.DataFrame([[1, 2]], columns=["k", "k"])
    with pytest.raises(InvalidFieldError, match=r"[Dd]uplicate"):
        storage.load("t", doubled)
    with pytest.raises(TypeError, match=r"call collect\(\) first"):
        storage.load("t", pl.LazyFrame({"k": [1]}))
    others: list[object] = [5, pl.Series("k", [1]), pa.array([1]), pa.chunked_array([[1]])]
    for other in others:
        with pytest.raises(TypeError, match="a DataFrame of pandas or Polars"):
            storage.load("t", other)
    with pytest.raises(InvalidSpecificationError, match="no time of day"):
        storage.load("u", pl.DataFrame({"k": [1], "x": [dt.time(1)]}), create=True, primary_key=["k"])
    with pytest.raises(InvalidSpecificationError, match="primary_key names 'x'"):
        storage.load("u", pl.DataFrame({"k": [1]}), create=True, primary_key=["x"])


def test_polars_columns_without_an_arrow_type(storage: Storage) -> None:
    """Of a Python object, Polars would export the address in memory."""
    for values in ([object()], pl.Series([1], dtype=pl.Int128)):
        frame = pl.DataFrame({"k": [1], "raw": values})
        with pytest.raises(InvalidFieldError, match=r"table 't', field 'raw': is of the Polars type (Object|Int128)"):
            storage.load("t", frame)
        job = storage.begin_write("t", mode="upsert", job_id=f"a {frame.dtypes[1]}")
        with pytest.raises(InvalidFieldError, match=r"field 'raw': is of the Polars type (Object|Int128)"):
            storage.stage(job, 0, 0, frame)
        with pytest.raises(InvalidSpecificationError, match=r"table 'u'.* 'raw'.* is of the Polars type"):
            TableSpecification.from_arrow("u", frame, ["k"])


@pytest.mark.parametrize("nan_is_null", [None, True])
def test_a_failed_load_leaves_duckdb_free(storage: Storage, nan_is_null: bool | None) -> None:
    with duckdb.connect() as connection:
        relation = connection.sql("select 1::bigint as k, 1.5 as i")
        with pytest.raises(InvalidFieldError, match=r"1\.5") as kept:
            storage.load("t", relation, nan_is_null=nan_is_null)
        assert connection.sql("select 2").fetchall() == [(2,)], kept


def test_schemas_that_a_consumer_requests(storage: Storage) -> None:
    """A stream has the requested types where each value stays, and else its own, or is an error."""
    table = storage.table("t")
    source: Any = table.scan(columns=["k", "s"])
    for text in (pa.large_string(), pa.string_view()):
        wanted = pa.schema([("k", pa.int64()), ("s", text)])
        reader = pa.RecordBatchReader.from_stream(source, wanted)
        assert (reader.schema.types, reader.read_all()["s"].to_pylist()) == (wanted.types, [None, "a<b"])
    columns: list[tuple[str, pa.DataType]] = [("k", pa.int64()), ("other", pa.string())]
    other = pa.schema(columns)
    empty = table.scan(where=col("i") == 8, columns=["k", "s"])
    assert pa.RecordBatchReader.from_stream(empty).read_all().num_rows == 0
    with pytest.raises((pa.ArrowException, ValueError, TypeError)):
        pa.RecordBatchReader.from_stream(source, other).read_all()
    assert pa.schema(source) == table.to_arrow(columns=["k", "s"]).schema


class OwnFrame(pd.DataFrame):
    """As GeoPandas has one."""


def test_a_subclass_of_a_frame_is_one(storage: Storage) -> None:
    frame = OwnFrame({"k": [5, 6], "d": [float("nan"), 1.0]}, index=[7, 8])
    storage.load("t", frame)
    assert storage.table("t").to_arrow(Range.at_most((6,)), columns=["k", "d"]).to_pylist()[-2:] == [
        {"k": 5, "d": None},
        {"k": 6, "d": 1.0},
    ]
    assert TableSpecification.from_arrow("u", frame, ["k"]).field_names == ("k", "d")


def test_what_does_not_fit_a_load(storage: Storage) -> None:
    frame = pl.DataFrame({"k": [1], "i": [2]})
    for mode in ("nope", ""):
        with pytest.raises(ValueError, match=f"mode is '{mode}'; allowed are upsert"):
            storage.load("u", frame, mode, create=True, primary_key=["k"])
    assert not storage.admin.exists("u")
    with pytest.raises(SchemaIncompatibleError, match="table 't' exists with another primary_key: k, not i"):
        storage.load("t", frame, create=True, primary_key=["i"])
    with pytest.raises(InvalidSpecificationError, match="primary_key is 'k'; it must be a list"):
        storage.load("u", frame, create=True, primary_key="k")
    storage.load("t", frame, create=True, primary_key=iter(["k"]))
    assert storage.table("t").read((1,)).i == 2  # type: ignore[union-attr]
    for data in (({"k": 1} for _ in range(1)), [{"k": 1}], {"k": [1]}):
        with pytest.raises(TypeError, match="rows as mappings are written by upsert_many"):
            storage.load("t", data)
    storage.load("u", frame, create=True)
    assert storage.admin.get_specification("u").keyless


def test_polars_types(storage: Storage) -> None:
    frame = pl.DataFrame(
        {
            "k": pl.Series([1], dtype=pl.UInt64),
            "s": pl.Series(["x"], dtype=pl.Categorical),
            "i": pl.Series([7.0]),
            "m": pl.Series([Decimal("1.5")]),
            "day": pl.Series([dt.datetime(2024, 5, 31)]),
        }
    )
    storage.load("t", frame)
    row = storage.table("t").read((1,))
    assert row is not None
    assert (row.s, row.i, row.m, row.day) == ("x", 7, Decimal("1.50"), DAY)


def test_what_a_person_sees(storage: Storage, tmp_path: Path) -> None:
    table = storage.table("t")
    assert repr(storage) == f"<storage {storage.url}>"
    assert repr(table) == f"<table t of {storage.url}>"
    assert repr(table.scan()) == f"<scan of table t of {storage.url}>"
    with storage.transaction(read_only=True) as transaction:
        assert repr(transaction.table("t")) == "<table t of a transaction>"
    html = table._repr_html_()
    assert f"<caption>table t of {storage.url}</caption>" in html
    assert "<td>k</td><td>long</td><td>1</td><td></td>" in html
    assert "<td>i</td><td>int</td><td></td><td>yes</td>" in html
    assert "<td>a&lt;b</td>" in html
    assert "<i>null</i>" in html
    table.upsert_many({"k": number} for number in range(100, 120))
    assert "&hellip;" in table._repr_html_()
    row = table.read((1,), ["s"])
    assert row is not None
    assert row._repr_html_() == (
        "<table><thead><tr><th>k</th><th>s</th></tr></thead><tbody><tr><td>1</td><td><i>null</i></td></tr></tbody></table>"
    )
    assert table.explain(where=col("i") == 7)._repr_html_().startswith("<pre>index scan on i of t")
    with storage.plan_scan("t") as plan:
        assert "ScanPlan" in plan._repr_html_()
    storage.close()
    assert repr(storage) == f"<storage {storage.url} (closed)>"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("like", r"startswith\(prefix\)"), ("in_", r"isin\(values\)"), ("isNull", r"is_null\(\)"), ("nope", "no 'nope'$")],
)
def test_other_names_of_filters(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(col("s"), name)
    assert not hasattr(col("s"), "nope")
    assert pickle.loads(pickle.dumps(col("s"))).name == "s"
