"""`run`: the errors that it retries, and how often."""

import pickle

import pytest

from structable.spi import StorageUnavailableError, Transaction, TransactionConflictError, connect


@pytest.mark.parametrize(("lasting", "attempts"), [(True, 1), (False, 3)])
def test_run_repeats_no_lasting_failure(lasting: bool, attempts: int) -> None:
    made: list[int] = []

    def body(_tx: Transaction) -> None:
        made.append(len(made))
        error = StorageUnavailableError("the role lacks a privilege")
        error.lasting = lasting
        raise error

    with connect("memory://") as storage, pytest.raises(StorageUnavailableError, match="lacks a privilege"):
        storage.run(body, max_attempts=3)
    assert len(made) == attempts


def test_lasting_travels() -> None:
    error = StorageUnavailableError("the role lacks a privilege")
    error.lasting = True
    again = pickle.loads(pickle.dumps(error))
    assert again.lasting
    assert not StorageUnavailableError("away").lasting


def test_more_attempts_than_a_float_has_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structable.spi._runner.time.sleep", lambda seconds: None)
    attempts = 0

    def body(_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise TransactionConflictError("lost")

    with connect("memory://") as storage, pytest.raises(TransactionConflictError):
        storage.run(body, max_attempts=2_000, deadline=600.0)
    assert attempts == 2_000
