"""Specifications from Arrow schemas: the field of each type, and the names of fields for columns of any name."""

import re
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import Field, InvalidSpecificationError, TableSpecification
from structable.spi.arrow import cast_column, field_names, field_of, matched_fields
from structable.testing.conformance.arrow_samples import ARROW_SAMPLES
from tests.page_code import ROOT


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["id", "Body Mass (g)", "__index_level_0__", "", "2019"], "id Body_Mass_g index_level_0 column_4 column_2019"),
        (["Größe", "Année", "a.b", "a-b", "a b"], "Gro_e Annee a_b a_b_2 a_b_3"),
        (["a b", "a_b", "A_B"], "a_b_2 a_b A_B_3"),
        (["年齢", "_", "x" * 60, "x" * 48], f"column_1 column_2 {'x' * 46}_2 {'x' * 48}"),
        (["id", "id", "ID"], "id id_2 ID_3"),
        ([f"{'a' * 47} b"], "a" * 47),
    ],
)
def test_names_of_fields(columns: list[str], names: str) -> None:
    assert field_names(columns) == names.split()


def test_columns_have_fields_of_their_own_name_first() -> None:
    assert matched_fields(["a b", "a_b", "c"], ("a_b", "a_b_2")) == ["a_b_2", "a_b", None]
    assert matched_fields(["a b", "c"], ("a_b", "d"), {"c": "d"}) == ["a_b", "d"]
    with pytest.raises(ValueError, match="rename names the column 'x', which is not there; there are 'a b', 'c'"):
        matched_fields(["a b", "c"], ("a_b",), {"x": "d"})


def test_every_type_that_a_field_takes_has_one() -> None:
    for sample in ARROW_SAMPLES:
        kind: Any = sample.kind
        encodings: list[Any] = [kind, pa.dictionary(pa.int8(), kind), pa.run_end_encoded(pa.int32(), kind)]
        for encoded in encodings:
            if sample.fields:
                if kind == pa.decimal256(76, 20):
                    continue  # of more digits than a field has
                field = field_of("f", encoded)
                assert field.type in sample.fields
                values: Any = pa.nulls(1, encoded)
                cast_column(field, values)
            else:
                with pytest.raises(
                    InvalidSpecificationError, match=r"column 'f' is of the Arrow type .*, which no field"
                ):
                    TableSpecification.from_arrow("t", pa.schema([("f", encoded)]))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.uint8(), "f short"),
        (pa.uint16(), "f int"),
        (pa.uint32(), "f long"),
        (pa.uint64(), "f decimal(20,0)"),
        (pa.float16(), "f float"),
        (pa.decimal128(5, -2), "f decimal(7,0)"),
        (pa.decimal64(2, 4), "f decimal(4,4)"),
        (pa.uuid(), "f string"),
        (pa.null(), "f string"),
        (pa.date64(), "f date"),
        (pa.timestamp("s"), "f timestamp_ntz"),
        (pa.timestamp("ns", "Europe/Berlin"), "f timestamp"),
        (pa.binary(3), "f bytes"),
    ],
)
def test_fields_of_types(kind: pa.DataType, text: str) -> None:
    assert str(field_of("f", kind)) == text


def test_a_specification_from_a_schema() -> None:
    columns: list[tuple[str, pa.DataType]] = [("flight no", pa.uint64()), ("day", pa.date32()), ("ok", pa.bool_())]
    schema = pa.schema(columns)
    spec = TableSpecification.from_arrow("t", schema, ["flight_no", "day"], ["ok"], {"user.a": "b"})
    fields = [Field.long("flight_no"), Field.date("day"), Field.boolean("ok")]
    assert spec == TableSpecification("t", fields, ["flight_no", "day"], ["ok"], {"user.a": "b"})
    named = TableSpecification.from_arrow("t", schema.empty_table(), primary_key=["n"], rename={"flight no": "n"})
    assert named.field_names == ("n", "day", "ok")
    assert TableSpecification.from_arrow("t", schema).options == {"write-mode": "append-only"}
    for options, problem in (
        (
            {"primary_key": ["flight no"]},
            "primary_key names 'flight no', which is not a field; the fields are flight_no",
        ),
        ({"primary_key": "day"}, "primary_key is 'day'; it must be a list"),
        ({"primary_key": ["day"], "rename": {"x": "y"}}, "rename names the column 'x'"),
        ({"rename": {"day": "OK"}}, "rename gives the column 'day' the name 'OK', which another column has"),
    ):
        with pytest.raises(InvalidSpecificationError, match=re.escape(problem)):
            TableSpecification.from_arrow("t", schema, **options)


def test_the_core_does_without_arrow() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from structable.spi import TableSpecification, connect
for call in (lambda: TableSpecification.from_arrow("t", None), lambda: connect("memory://").load("t", None)):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert re.fullmatch(
        r"(.* need.* pyarrow, which is not installed; install what structable\[arrow\] needs: .*\n){2}", done.stdout
    )


def test_documented_names() -> None:
    """The table of the documentation is what the rule gives."""
    page = (ROOT / "docs" / "data-frames.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("| column | field |\n| --- | --- |\n")
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()]
    columns = [column.strip("`").replace("(empty)", "") for column, _ in rows]
    assert field_names(columns) == [name.strip("`") for _, name in rows]
