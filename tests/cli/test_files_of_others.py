"""import of files as other programs write them: Arrow's types, INT96, byte-order marks, and digits of floats."""

import base64
import codecs
import datetime as dt
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from structable.spi import Field, FieldType, TableSpecification, Value, connect
from structable.testing.conformance.arrow_samples import ARROW_SAMPLES, taken_columns
from tests.cli.conftest import Command, Fails

Import = Callable[..., "dict[int, Value] | str"]


@pytest.fixture
def imported(structable: Command, url: str, tmp_path: Path) -> Import:
    """Import files into new tables of a key `k` and one more field; return its values, or the error, by their keys."""
    storage = connect(url)

    def run(field: Field, name: str, content: bytes, *, stdin: bool = False) -> dict[int, Value] | str:
        storage.admin.drop("t")
        storage.admin.create(TableSpecification("t", [Field.long("k"), field], ["k"]))
        file = tmp_path / name
        file.write_bytes(content)
        place = ("-", "--format", file.name.split(".")[1]) if stdin else (file,)
        outcome = structable("import", url, "t", *place, stdin=content if stdin else None)
        with storage.table("t").scan() as rows:
            found: dict[Any, Value] = {row["k"]: row[field.name] for row in rows}
        if outcome.code == 0:
            return found
        assert (outcome.code, found) == (2, {}), outcome
        return outcome.err.removeprefix("structable: ").strip().replace(str(file), "FILE")

    return run


def arrow_file(batch: pa.RecordBatch, *, streamed: bool = False) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) if streamed else pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def parquet_file(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - of pyarrow
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_arrow_types_whose_values_are_the_same(structable: Command, url: str, tmp_path: Path) -> None:
    columns = [(field, column, kept) for field, column, kept in taken_columns() if is_read_again(column.type)]
    keys = pa.array(range(len(columns[0][1])))
    batch = pa.record_batch({"k": keys, **{field.name: column for field, column, _ in columns}})
    written = {field.name: column for field, column, _ in columns if is_written(column)}
    assert 2 * len(written) > len(columns)
    files = {
        "f.arrow": arrow_file(batch),
        "f.arrows": arrow_file(batch, streamed=True),
        "f.parquet": parquet_file(pa.table({"k": keys, **written})),
    }
    with connect(url) as storage:
        storage.admin.create(TableSpecification("t", [Field.long("k"), *(field for field, _, _ in columns)], ["k"]))
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
            outcome = structable("import", url, "t", tmp_path / name, "--mode", "overwrite", "--yes")
            assert outcome.code == 0, outcome.err
            with storage.table("t").scan() as found:
                rows = list(found)
            for field, _, kept in columns:
                if name != "f.parquet" or field.name in written:
                    assert [repr(row[field.name]) for row in rows] == list(map(repr, kept)), (name, field)


def is_read_again(kind: pa.DataType) -> bool:
    """Whether pyarrow reads what it writes: of extension types no dictionaries and no runs."""
    values: Any = getattr(kind, "value_type", None)
    return not isinstance(values, pa.BaseExtensionType)


def is_written(column: "pa.Array[Any]") -> bool:
    """Whether pyarrow writes a column to Parquet."""
    try:
        parquet_file(pa.table({"f": column}))
    except (pa.ArrowException, OSError):
        return False
    return True


def test_other_arrow_types_are_refused_by_name(imported: Import) -> None:
    # One type of each name, as of the others `stage` refuses the same.
    for sample in {sample.name: sample for sample in ARROW_SAMPLES if not sample.fields}.values():
        kind: Any = sample.kind
        for field in (Field.long("f"), Field.string("f")):
            found = imported(
                field, "f.arrow", arrow_file(pa.record_batch({"k": pa.array([1]), "f": pa.nulls(1, kind)}))
            )
            assert f"FILE, field 'f': is of the Arrow type {kind};" in found


@pytest.mark.parametrize(
    ("field", "column", "reason"),
    [
        (Field.byte("f"), pa.array([300]), "300 is out of the range of byte, -128 to 127"),
        (Field.double("f"), pa.array([2**53 + 1]), "9007199254740993 has more digits than a 64-bit float keeps"),
        (Field.float("f"), pa.array([16777217], pa.int32()), "16777217 has more digits than a 32-bit float keeps"),
        (Field.decimal("f", 4, 1), pa.array([Decimal("1.25")]), "Decimal('1.25') does not fit decimal(4,1) exactly"),
        (Field.date("f"), pa.array([1], pa.date64()), "1970-01-01 00:00:00.001 is not a whole day"),
        (
            Field.timestamp_ntz("f"),
            pa.array([253_402_300_800_000_000], pa.timestamp("us")),
            "10000-01-01T00:00:00.000000 is outside of the years 1 to 9999",
        ),
        (Field.string("f"), pa.array(["nul\0"]), "'nul\\x00' holds a NUL character, which a string must not"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(
    imported: Import, field: Field, column: "pa.Array[Any]", reason: str
) -> None:
    kind: Any = column.type
    batch = pa.record_batch({"k": pa.array(range(5_001)), "f": pa.concat_arrays([pa.nulls(5_000, kind), column])})
    found = imported(field, "f.arrow", arrow_file(batch))
    assert re.fullmatch(rf"FILE, row 5001(:.*,|,) field 'f': {re.escape(reason)}", str(found)), found


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST, LAST = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)


def int96_file(column: "pa.Array[Any]", **options: Any) -> bytes:  # noqa: ANN401 - of pyarrow
    """Return a file as Spark writes it: `f` among columns that are not of the type."""
    table = pa.table({"k": pa.array(range(len(column)), pa.int32()), "f": column})
    return parquet_file(table, use_deprecated_int96_timestamps=True, **{"store_schema": False, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"row_group_size": 7_000, "data_page_size": 1_000}, {"use_dictionary": False}, {"store_schema": True}],
)
def test_int96_timestamps_are_instants_of_all_years(imported: Import, options: dict[str, Any]) -> None:
    instants = [FIRST, LAST, EPOCH, EPOCH - dt.timedelta(microseconds=1), dt.datetime(1600, 2, 29, tzinfo=dt.UTC), None]
    column = pa.array([*instants, *[None] * 9_000, *instants], pa.timestamp("us", "UTC"))
    found = imported(Field.timestamp("f"), "f.parquet", int96_file(column, **options))
    assert isinstance(found, dict)
    assert [found[key] for key in sorted(found)] == [*instants, *[None] * 9_000, *instants]


@pytest.mark.parametrize(
    ("field", "column", "message"),
    [
        (
            Field.timestamp("f"),
            pa.array([0, 1_001], pa.timestamp("ns")),
            "FILE, row 2, field 'f': 1970-01-01 00:00:00.000001001Z is finer than a microsecond",
        ),
        (
            Field.timestamp("f"),
            pa.array([None, -1], pa.timestamp("ns")),
            "FILE, row 2, field 'f': 1969-12-31 23:59:59.999999999Z is finer than a microsecond",
        ),
        (
            Field.timestamp("f"),
            pa.array([0, 253_402_300_800_000_000], pa.timestamp("us")),
            "FILE, row 2, field 'f': 10000-01-01 00:00:00.000000000Z is outside of the years 1 to 9999",
        ),
        (
            Field.timestamp_ntz("f"),
            pa.array([0], pa.timestamp("us")),
            "FILE, field 'f': is of the Arrow type timestamp[us, tz=UTC]; timestamp[us] is needed; its values are",
        ),
        (
            Field.timestamp("f"),
            pa.array([[0]], pa.list_(pa.timestamp("us"))),
            "FILE, field 'f': is of the Arrow type list<element: timestamp[s]>; timestamp[us, tz=UTC] is needed",
        ),
    ],
)
def test_int96_timestamps_that_do_not_fit(
    imported: Import, field: Field, column: "pa.Array[Any]", message: str
) -> None:
    assert str(imported(field, "f.parquet", int96_file(column))).startswith(message)


def test_int96_columns_of_one_name(imported: Import) -> None:
    times = pa.array([0], pa.timestamp("us"))
    table = pa.Table.from_arrays([pa.array([1]), times, times], ["k", "f", "f"])
    content = parquet_file(table, use_deprecated_int96_timestamps=True)
    assert imported(Field.timestamp("f"), "f.parquet", content) == "FILE: the column 'f' appears twice"


def test_a_type_that_pyarrow_lacks_is_not_damage(imported: Import) -> None:
    """Polars writes integers of 128 bits; here they are those of a schema."""
    schema = pa.schema([("k", pa.int32()), ("f", pa.list_(pa.int64()))])
    batch = pa.RecordBatch.from_pylist([{"k": 1, "f": [1]}], schema)
    plain = schema.serialize().to_pybytes()
    wide = plain.replace(b"\x40\0\0\0", b"\x80\0\0\0")
    assert wide != plain
    files = {
        "f.arrow": arrow_file(batch).replace(b"\x40\0\0\0", b"\x80\0\0\0"),
        "f.arrows": arrow_file(batch, streamed=True).replace(plain, wide),
        "f.parquet": parquet_file(pa.table(batch)).replace(base64.b64encode(plain), base64.b64encode(wide)),
    }
    reason = "Integers with more than 64 bits not implemented"
    for name, content in files.items():
        found = imported(Field.long("f"), name, content)
        assert (
            found == f"FILE: pyarrow cannot read the column 'f': {reason}; write another type, or leave the column out"
        )


MARK = codecs.BOM_UTF8
FOREIGN = ("utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32")


@pytest.mark.parametrize("stdin", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.csv", b'"k","f"\r\n1,"\xef\xbb\xbfa"\r\n2,\xef\xbb\xbfb\r\n'),
        ("f.csv", b"k,f\n1,\xef\xbb\xbfa\n2,\xef\xbb\xbfb\n"),
        ("f.csv", b'"f",k\n"\xef\xbb\xbfa",1\n\xef\xbb\xbfb,2\n'),
        ("f.json", b'\r\n{"k": 1, "f": "\xef\xbb\xbfa"}\n{"k": 2, "f": "\xef\xbb\xbfb"}\n'),
    ],
)
def test_a_byte_order_mark_belongs_to_no_text(imported: Import, name: str, text: bytes, stdin: bool) -> None:
    for content in (text, MARK + text):
        for packed in (content, gzip.compress(content)):
            assert imported(Field.string("f"), name, packed, stdin=stdin) == {1: "\ufeffa", 2: "\ufeffb"}


@pytest.mark.parametrize("name", ["f.csv", "f.json"])
@pytest.mark.parametrize("encoding", FOREIGN)
def test_another_encoding_is_named(imported: Import, name: str, encoding: str) -> None:
    content = {"f.csv": "k,f\n1,a\n", "f.json": '{"k": 1, "f": "a"}\n'}[name].encode(encoding)
    found = encoding[:6].upper()
    wanted = f"FILE: the text is {found}, not UTF-8; convert it, as by iconv -f {found} -t UTF-8"
    for packed in (content, gzip.compress(content)):
        assert imported(Field.string("f"), name, packed) == wanted


def test_a_byte_order_mark_alone_is_an_empty_file(imported: Import) -> None:
    assert "is empty" in str(imported(Field.string("f"), "f.csv", MARK))


def test_a_byte_order_mark_in_specifications_and_rows(
    structable: Command, fails: Fails, url: str, tmp_path: Path
) -> None:
    toml = 'name = "t"\r\nprimary_key = ["k"]\r\nfields = { k = "string" }\r\n'
    document = json.dumps({"name": "t", "primary_key": ["k"], "fields": {"k": "string"}})
    row = '{"k": "\ufeffa"}'
    with connect(url) as storage:
        for name, text in (("t.toml", toml), ("t.json", document)):
            file = tmp_path / name
            for encoding in ("utf-8-sig", *FOREIGN):
                file.write_bytes(text.encode(encoding))
                if encoding in FOREIGN:
                    assert f"the text is {encoding[:6].upper()}, not UTF-8" in fails(2, "create", url, file)
                    stdin = file.read_bytes()
                    assert "standard input: the text is UTF-" in fails(2, "create", url, "-", stdin=stdin)
                else:
                    assert structable("create", url, file).code == 0
                    storage.admin.drop("t")
                    assert structable("create", url, "-", stdin=file.read_bytes()).code == 0
                    storage.admin.drop("t")
        structable("create", url, "-", stdin=document)
        assert structable("put", url, "t", "--json", "-", stdin=row.encode("utf-8-sig")).code == 0
        assert storage.table("t").read(("\ufeffa",)) is not None
        assert "the text is UTF-16" in fails(2, "put", url, "t", "--json", "-", stdin=row.encode("utf-16"))
        assert "line 1: the text is not UTF-8" in fails(2, "put", url, "t", "--json", "-", stdin=b'{"k": "\xff"}')


KEPT: list[tuple[str, str, float]] = [
    ("double", "9007199254740992", 2.0**53),
    ("double", "-9007199254740994.0", -(2.0**53) - 2),
    ("double", "1152921504606846976", 2.0**60),
    ("double", "123456789012345680000", 1.2345678901234568e20),  # as JavaScript writes it
    ("double", "9.999999999999999161e+22", 1e23),  # as NumPy's savetxt does
    ("double", "9007199254740993.5", 2.0**53 + 2),
    ("double", "0.1", 0.1),
    ("double", "0.1000000000000000055511151231257827", 0.1),
    ("double", "5e-324", 5e-324),
    ("double", "0e-400", 0.0),
    ("float", "16777216", 2.0**24),
    ("float", "1073741800", 2.0**30),  # as ClickHouse writes it
    ("float", "16777216.5", 2.0**24),
    ("float", "0.1", 0.10000000149011612),
]
LOST: list[tuple[str, str, str]] = [
    ("double", "9007199254740993", "has more digits than a 64-bit float keeps"),
    ("double", "-9007199254740993.00", "has more digits than a 64-bit float keeps"),
    ("double", "9.007199254740993e15", "has more digits than a 64-bit float keeps"),
    ("double", "1e-400", "is nearer to 0 than any double"),
    ("double", "1e400", "is beyond a 64-bit float"),
    ("float", "16777217", "has more digits than a 32-bit float keeps"),
    ("float", "1e-50", "is nearer to 0 than any float"),
    ("float", "1e39", "is beyond a 32-bit float"),
]


@pytest.mark.parametrize(("kind", "text", "value"), KEPT)
def test_digits_that_a_float_keeps(imported: Import, kind: str, text: str, value: float) -> None:
    field = Field("f", FieldType(kind))
    for name, content in files_of(text):
        assert imported(field, name, content) == {1: value}, name


@pytest.mark.parametrize(("kind", "text", "reason"), LOST)
def test_digits_that_a_float_would_lose(imported: Import, kind: str, text: str, reason: str) -> None:
    field = Field("f", FieldType(kind))
    for name, content in files_of(text):
        found = str(imported(field, name, content))
        assert reason in found, name
        assert re.match(r"FILE, (row 1|line [12]),? ?:? ?field 'f'", found), found


def files_of(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield files with the row 1 and a number, as text and, if it is one, as an integer of Arrow."""
    yield "f.csv", f"k,f\n1,{text}\n".encode()
    yield "f.jsonl", f'{{"k": 1, "f": {text}}}\n'.encode()
    if text.lstrip("-").isdigit() and abs(int(text)) < 1 << 63 and text != "1073741800":
        table = pa.table({"k": [1], "f": [int(text)]})
        yield "f.arrow", arrow_file(table.to_batches()[0])
        yield "f.parquet", parquet_file(table)
