"""Every error is picklable, and has the bases that it promises."""

from __future__ import annotations

import pickle

import pytest

from structable.datasets import errors
from structable.spi import FeedPosition, RecordExistsError, RecordNotFoundError, StructableError

ERRORS = [
    errors.DatasetError("why"),
    errors.NotFoundError("table", ("a", 1)),
    errors.AlreadyExistsError("table", ("a", 1)),
    errors.StaleGenerationError(1, 2),
    errors.StaleParentError("a", None),
    errors.InUseError("a", "b"),
    errors.NotEmptyError({"runs": 1_000}),
    errors.IllegalTransitionError("a", "b"),
    errors.InvalidCursorError("why"),
    errors.RecordTypeError("why"),
    errors.DocumentError("table", "field", "why"),
    errors.RecordShapeError("table", ("a",), "field", "why"),
    errors.SchemaMissingError(["table"], ["other.field"]),
    errors.LeaseLostError("lease"),
    errors.MessagesLostError(FeedPosition("0" * 16, 1), FeedPosition("0" * 16, 2)),
    errors.SecretError("why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_is_picklable(error: errors.DatasetError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert isinstance(error, errors.DatasetError)
    assert isinstance(error, StructableError)


def test_every_error_is_tried() -> None:
    assert {type(error).__name__ for error in ERRORS} >= set(errors.__all__)


def test_bases() -> None:
    assert issubclass(errors.NotFoundError, RecordNotFoundError)
    assert issubclass(errors.AlreadyExistsError, RecordExistsError)
    for kind in (errors.InvalidCursorError, errors.RecordTypeError, errors.DocumentError):
        assert issubclass(kind, ValueError)
