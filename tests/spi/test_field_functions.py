"""The functions of derived fields: every small rule, the same whatever the process."""

import sys
from collections.abc import Callable
from decimal import Decimal

import pytest

from structable.spi import Cast, Computed, Field, FieldFunction, FieldType, InvalidSpecificationError, JsonField, Lower
from structable.spi.text import function_from_document, function_to_document

FAILED = Computed(None, failed=True)
NULL = Computed(None)


def number(kind: FieldType | str, text: str) -> Computed:
    return JsonField(("a",), kind).computed('{"a": ' + text + "}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (FieldType.LONG, "5", 5),
        (FieldType.LONG, "-9223372036854775808", -(2**63)),
        ("int", " 7 ", 7),
        (FieldType.BOOLEAN, "true", True),
        (FieldType.STRING, '"a\\u00e9"', "aé"),
        (FieldType.DOUBLE, "1", 1.0),
        (FieldType.DOUBLE, "1.5e2", 150.0),
        (FieldType.FLOAT, "0.1", 0.10000000149011612),
        ("decimal(10,2)", "1.5", Decimal("1.50")),
        ("decimal(10,2)", "15e-1", Decimal("1.50")),
        ("decimal(10,2)", "3", Decimal("3.00")),
        (FieldType.STRING, '"' + "x" * 2_000 + '"', "x" * 2_000),
        (FieldType.STRING, '"b", "a": "c"', "c"),
    ],
)
def test_value_at_a_path(kind: FieldType | str, text: str, value: object) -> None:
    found = number(kind, text)
    assert found == Computed(value)  # type: ignore[arg-type]  # of any type
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FieldType.LONG, "1.0"),
        (FieldType.LONG, "1e2"),
        (FieldType.LONG, "true"),
        (FieldType.LONG, '"5"'),
        (FieldType.LONG, "9223372036854775808"),
        (FieldType.BYTE, "128"),
        (FieldType.LONG, "9" * 5_000),
        (FieldType.DOUBLE, "9" * 5_000),
        (FieldType.DOUBLE, "1e999"),
        (FieldType.DOUBLE, "9007199254740993"),
        (FieldType.FLOAT, "1e39"),
        (FieldType.DOUBLE, "NaN"),
        (FieldType.DOUBLE, "-Infinity"),
        (FieldType.BOOLEAN, "1"),
        (FieldType.STRING, "1"),
        (FieldType.STRING, "1.5"),
        (FieldType.STRING, "[]"),
        (FieldType.STRING, '"\\ud800"'),
        (FieldType.STRING, '"\\u0000"'),
        (FieldType.STRING, '"' + "é" * 1_001 + '"'),
        ("decimal(3,2)", "10"),
        ("decimal(3,2)", "1.234"),
        ("decimal(3,2)", "1e99999999999999999999"),
        ("decimal(3,2)", "0." + "0" * 5_000 + "1"),
        (FieldType.LONG, '5, "b": NaN'),
        (FieldType.LONG, "5} x {"),
        (FieldType.LONG, "[" * 100_000),
        (FieldType.LONG, '5, "b": ' + "[" * 250 + "]" * 250),
    ],
)
def test_value_that_does_not_fit_is_null_and_counted(kind: FieldType | str, text: str) -> None:
    assert number(kind, text) == FAILED


def test_paths() -> None:
    document = '{"a": [{"b": 1}, [2, 3]], "1": 4, "": {"c": null}}'
    for path, value in ((("a", 0, "b"), 1), (("a", 1, 1), 3), (("1",), 4), (("", "c"), None)):
        assert JsonField(path, FieldType.LONG).computed(document) == Computed(value)
    absent: list[tuple[str | int, ...]] = [("b",), ("a", "0"), ("a", 2), (1,), ("a", 0, "b", "c"), ("", "c", "d")]
    for none in absent:
        assert JsonField(none, FieldType.LONG).computed(document) == FAILED
    for text in ("", "x", "5", "\ufeff{}", "{'a': 5}", "[1, 2"):
        assert JsonField(("a",), FieldType.LONG).computed(text) == FAILED
    assert JsonField(("a",), FieldType.LONG).computed(None) == NULL


def test_settings_of_the_process_make_no_difference() -> None:
    digits = sys.get_int_max_str_digits()
    try:
        for most in (0, 640):
            sys.set_int_max_str_digits(most)
            assert number(FieldType.LONG, "1" * 700) == FAILED
            assert number(FieldType.DOUBLE, '5, "b": ' + "1" * 700) == Computed(5.0)
    finally:
        sys.set_int_max_str_digits(digits)
    text = '5, "b": ' + "[" * 150 + '"[[["' + "]" * 150
    assert number(FieldType.LONG, text) == Computed(5)


def test_cast_and_lower() -> None:
    assert Cast(FieldType.STRING).computed(-(2**63)) == Computed("-9223372036854775808")
    assert Cast("string").computed(Decimal("0E-2")) == Computed("0.00")
    assert Cast(FieldType.LONG).computed(5) == Computed(5)
    assert Lower().computed("ÀB") == Computed("àb")
    assert Cast("string").computed(None) == Lower().computed(None) == NULL


MISFITS: list[tuple[FieldFunction, Field, Field, str]] = [
    (JsonField(("a",), FieldType.DATE), Field.string("s"), Field.date("t"), "JSON has no date"),
    (JsonField(("a",), FieldType.LONG), Field.bytes("s"), Field.long("t"), "is a string"),
    (JsonField(("a",), FieldType.LONG), Field.string("s"), Field.int("t"), "int does not hold every long"),
    (JsonField(("a",), "decimal(5,2)"), Field.string("s"), Field.decimal("t", 5, 1), "does not hold"),
    (Cast(FieldType.INT), Field.long("s"), Field.int("t"), "cannot be cast"),
    (Cast(FieldType.DOUBLE), Field.int("s"), Field.double("t"), "cannot be cast"),
    (Cast(FieldType.STRING), Field.double("s"), Field.string("t"), "cannot be cast"),
    (Cast(FieldType.LONG), Field.int("s"), Field.int("t"), "does not hold"),
    (Lower(), Field.bytes("s"), Field.string("t"), "only a string"),
    (Lower(), Field.string("s"), Field.bytes("t"), "does not hold"),
]


@pytest.mark.parametrize(("function", "source", "target", "reason"), MISFITS)
def test_function_must_fit_its_fields(function: FieldFunction, source: Field, target: Field, reason: str) -> None:
    assert reason in (function.misfit(source, target) or "")


def test_function_fits_wider_fields() -> None:
    assert JsonField(("a",), FieldType.INT).misfit(Field.string("s"), Field.long("t")) is None
    assert Cast(FieldType.LONG).misfit(Field.long("s"), Field.long("t")) is None
    assert Cast(FieldType.STRING).misfit(Field.decimal("s", 5, 2), Field.string("t")) is None


@pytest.mark.parametrize(
    "function",
    [JsonField(("a", 0), FieldType.LONG, strict=True), JsonField(("a",), "decimal(5,2)"), Cast("long"), Lower()],
)
def test_documents_lose_nothing(function: FieldFunction) -> None:
    assert function_from_document(function_to_document(function)) == function


def test_wrong_functions_are_refused() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: JsonField((), FieldType.LONG),
        lambda: JsonField("a", FieldType.LONG),  # type: ignore[arg-type]
        lambda: JsonField(("a", -1), FieldType.LONG),
        lambda: JsonField((True,), FieldType.LONG),
        lambda: JsonField(("a\0",), FieldType.LONG),
        lambda: JsonField(("a",), "number"),
        lambda: JsonField(("a",), FieldType.DECIMAL),
        lambda: JsonField(("a",), FieldType.LONG, strict=1),  # type: ignore[arg-type]
        lambda: Cast(5),  # type: ignore[arg-type]
        lambda: function_from_document({"kind": "upper"}),
        lambda: function_from_document({"kind": "lower", "locale": "tr"}),
        lambda: function_from_document(["lower"]),
    ]
    for make in wrong:
        with pytest.raises(InvalidSpecificationError):
            make()
