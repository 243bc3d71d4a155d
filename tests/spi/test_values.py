"""The stored form of values, where it is more than the value. The suite has the values that a field accepts."""

from decimal import Decimal

import pytest

from structable.spi import Field, InvalidFieldError, Value
from structable.spi.authors import check_value, value_size


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
