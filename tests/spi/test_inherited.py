"""What a backend inherits: a transaction as a context manager, and the scans of the auto-commit view."""

from __future__ import annotations

import pytest

from structable.spi import (
    FeedPosition,
    Row,
    RowIterator,
    StructuredTable,
    Transaction,
    TransactionClosedError,
    UnsupportedOperationError,
)
from structable.spi._autocommit import OwningRowIterator


class Plain(Transaction):
    """A transaction whose commit may be refused, and leaves it open then."""

    def __init__(self, *, refused: bool = False) -> None:
        self.refused = refused
        self.ended = ""

    def table(self, name: str) -> StructuredTable:
        raise NotImplementedError

    def position(self, table: str) -> FeedPosition:
        raise NotImplementedError

    def commit(self) -> None:
        if self.refused:
            raise UnsupportedOperationError("too large")
        self.ended = "committed"

    def rollback(self) -> None:
        self.ended = self.ended or "rolled back"

    @property
    def closed(self) -> bool:
        return bool(self.ended)


class NoRows(RowIterator):
    """No rows of a transaction, and the error of one that has ended."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    def __next__(self) -> Row:
        if self.transaction.closed:
            raise TransactionClosedError("the transaction has ended")
        raise StopIteration

    def close(self) -> None:
        return None


def test_block_rolls_back_what_its_commit_leaves_open() -> None:
    transaction = Plain(refused=True)
    with pytest.raises(UnsupportedOperationError), transaction:
        pass
    assert transaction.ended == "rolled back"
    with Plain() as other:
        pass
    assert other.ended == "committed"


def test_exhausted_scan_of_the_auto_commit_view_stays_exhausted() -> None:
    transaction = Plain()
    rows = OwningRowIterator(transaction, NoRows(transaction))
    assert list(rows) == []
    assert transaction.closed
    assert list(rows) == []
