"""Errors on their way between processes."""

from __future__ import annotations

import datetime

import pytest

from structable import spi
from structable.backends.leveldb.protocol.error_codec import pack_error, unpack_error
from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    RecordNotFoundError,
    SchemaIncompatibleError,
    StructableError,
    TableNotFoundError,
    TransactionConflictError,
)


@pytest.mark.parametrize(
    "error",
    [
        TransactionConflictError("why"),
        InvalidFieldError("t", "f", "reason"),
        FieldSizeLimitError("t", "f", 5, 4),
        TableNotFoundError("t"),
        SchemaIncompatibleError("t", ["one", "two"]),
        RecordNotFoundError("t", (1, b"\xff", "ü", True, datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3))),
    ],
    ids=lambda error: type(error).__name__,
)
def test_structable_errors_come_back_equal(error: StructableError) -> None:
    back = unpack_error(pack_error(error))
    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_every_error_class_travels() -> None:
    classes = [found for name in spi.__all__ if isinstance(found := getattr(spi, name), type)]
    errors = [found for found in classes if issubclass(found, StructableError)]
    assert errors
    for found in errors:
        error = found.__new__(found, "text")
        error.args = ("text",)
        assert type(unpack_error(pack_error(error))) is found


def test_other_errors_are_reported_and_nothing_is_executed() -> None:
    back = unpack_error(pack_error(KeyError("what")))
    assert type(back) is StructableError
    assert str(back) == "KeyError: 'what'"
    assert type(unpack_error(b'["os.system", "text", {}]')) is StructableError
