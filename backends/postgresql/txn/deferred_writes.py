"""`DeferredWrites`: the statements that a transaction has still to send, in their order."""

from __future__ import annotations

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import PostgreSQLError, StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.spi import StructableError
from structable.spi.authors import check_transaction_size

from .bound_table import BoundTable, TableCall

_MOST = 256
_MOST_BYTES = 8 << 20
_SAVEPOINT = Call(Statement("savepoint structable_writes"))
_RELEASE = Call(Statement("release structable_writes"))
_ROLLBACK = Call(Statement("rollback to structable_writes"))


class DeferredWrites:
    """Statements to be sent with the next one that may see their rows, or with the commit.

    Attributes
    ----------
    works : list of TableCall
        The statements.
    written : int
        The bytes of all writes of the transaction.
    gives_input : bool
        Whether later statements write the records of feeds of the producer `input`, so that triggers do not.
    """

    def __init__(self) -> None:
        self.works: list[TableCall] = []
        self.written = 0
        self.gives_input = False
        self._bytes = 0

    def add(self, work: TableCall, *, counts: bool = True) -> bool:
        """Append a statement, and return whether there are many now. One that `counts` is rejected beyond the limit."""
        size = _size_of(work)
        if counts:
            check_transaction_size(self.written + size)
            self.written += size
        self.works.append(work)
        self._bytes += size
        return len(self.works) >= _MOST or self._bytes >= _MOST_BYTES

    def put_first(self, work: TableCall) -> None:
        """Put a statement before all others, and so before the guard of `calls`, whose rollback would not undo it."""
        self.works.insert(0, work)

    def clear(self) -> None:
        """Remove all statements."""
        self.works.clear()
        self._bytes = 0

    def supersede(self, table: BoundTable, key: Pieces) -> bool:
        """Remove statements that may not fit a row, and return whether there were any.

        The next write of the row replaces their effect, except on records of the row.
        """
        before = len(self.works)
        if self.may_not_fit and not table.binding.takes_input:
            self.works = [one for one in self.works if one.refusal is None or one.table is not table or one.key != key]
        return len(self.works) < before

    @property
    def may_not_fit(self) -> bool:
        """Whether the server may reject one of the statements because of its row."""
        return any(one.refusal is not None for one in self.works)

    def calls(self, *, guarded: bool) -> list[Call]:
        """Return the calls. If they are guarded, the transaction can continue after a rejection of one for its row."""
        found = [one.call for one in self.works]
        if guarded:
            unsure = [place for place, one in enumerate(self.works) if one.refusal is not None]
            found.insert(unsure[-1] + 1, _RELEASE)
            found.insert(unsure[0], _SAVEPOINT)
        return found

    def undo(self, connection: ServerConnection) -> None:
        """End the guard of `calls` after one of them was rejected; the statements before it have run."""
        connection.pipeline((_ROLLBACK, _RELEASE))
        while self.works[0].refusal is None:
            self._bytes -= _size_of(self.works.pop(0))

    def refusal(self, error: PostgreSQLError) -> StructableError | None:
        """Return the error of a statement that did not fit its row; None for any other failure."""
        if isinstance(error, StatementRefusedError) and error.call is not None:
            for one in self.works:
                if one.call is error.call and one.refusal is not None:
                    return one.refusal(error)
        return None


def _size_of(work: TableCall) -> int:
    return sum(map(len, filter(None, work.call.parameters)))
