"""A lasting error is not tried again."""

import pickle

import pytest

from structable.spi import StorageUnavailableError, Transaction, connect


@pytest.mark.parametrize(("lasting", "attempts"), [(True, 1), (False, 3)])
def test_run_repeats_no_lasting_failure(lasting: bool, attempts: int) -> None:
    made: list[int] = []

    def body(_tx: Transaction) -> None:
        made.append(len(made))
        error = StorageUnavailableError("the role lacks a right")
        error.lasting = lasting
        raise error

    with connect("memory://") as storage, pytest.raises(StorageUnavailableError, match="lacks a right"):
        storage.run(body, max_attempts=3)
    assert len(made) == attempts


def test_lasting_travels() -> None:
    error = StorageUnavailableError("the role lacks a right")
    error.lasting = True
    again = pickle.loads(pickle.dumps(error))
    assert again.lasting
    assert not StorageUnavailableError("away").lasting
