"""The values that a field accepts, and their stored form."""

import datetime as dt
import enum
import math
from collections.abc import Callable
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from structable.spi import Field, InvalidFieldError, Value, check_value, value_size
from structable.spi.conformance.samples import EXTREMES, TYPES, WRONG


class Status(str, enum.Enum):  # noqa: UP042  str() of a StrEnum is its value, of this one it is not
    RUNNING = "running"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize("field", TYPES.fields[1:], ids=lambda field: field.name)
def test_extremes_are_kept(field: Field) -> None:
    for value in EXTREMES[field.type]:
        kept = check_value("t", field, value)
        assert check_value("t", field, kept) == kept or (isinstance(kept, float) and math.isnan(kept))
        assert value_size(field, kept) >= 0


@pytest.mark.parametrize("field", TYPES.fields[1:], ids=lambda field: field.name)
def test_other_types_are_refused(field: Field) -> None:
    for value in (*WRONG[field.type], object(), None):
        with pytest.raises(InvalidFieldError, match=f"table 't', field '{field.name}': "):
            check_value("t", field, value)


@pytest.mark.parametrize(
    ("make", "value", "kept"),
    [
        (Field.string, Status.RUNNING, "running"),
        (Field.int, Level.HIGH, 3),
        (Field.double, 3, 3.0),
        (Field.float, 0.1, 0.10000000149011612),
        (Field.date, dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (
            Field.timestamp,
            dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
            dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
        ),
    ],
)
def test_values_are_kept_as_the_plain_type(make: Callable[[str], Field], value: object, kept: Value) -> None:
    found = check_value("t", make("v"), value)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize("field", [Field.int("v"), Field.double("v")], ids=str)
def test_integers_too_long_to_print_are_refused(field: Field) -> None:
    with pytest.raises(InvalidFieldError, match="very many digits"):
        check_value("t", field, 10**5_000)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Decimal("1.50"), "1.5"),
        (Decimal("1E+2"), "100.0"),
        (Decimal("-0.00"), "0.0"),
        (Decimal((0, (1,) + (0,) * 300_000, -300_000)), "1.0"),  # whose zeros cost no quadratic time
    ],
)
def test_decimals_get_the_scale_of_their_field(value: Decimal, kept: str) -> None:
    assert str(check_value("t", Field.decimal("v", 4, 1), value)) == kept


@pytest.mark.parametrize("value", [Decimal("1.55"), Decimal("1000"), Decimal("NaN"), Decimal("Infinity")])
def test_decimals_that_do_not_fit_are_refused(value: Decimal) -> None:
    with pytest.raises(InvalidFieldError):
        check_value("t", Field.decimal("v", 4, 1), value)


@pytest.mark.parametrize(
    ("field", "value", "size"),
    [
        (Field.string("v"), "abc", 3),
        (Field.string("v"), "äb", 3),
        (Field.bytes("v"), b"\0" * 7, 7),
        (Field.long("v"), 1, 8),
        (Field.decimal("v", 38, 0), Decimal(1), 16),
        (Field.string("v"), None, 0),
    ],
)
def test_sizes_that_limits_count(field: Field, value: Value, size: int) -> None:
    assert value_size(field, value) == size
