"""`SplitState`: the content of a split, the size of its chunks, and the errors of reading it."""

from __future__ import annotations

import re
from typing import NamedTuple

from structable.backends.base.ruled_batches import ComputedScan
from structable.backends.postgresql.driver.errors import (
    INVALID_PARAMETER_VALUE,
    NUMERIC_VALUE_OUT_OF_RANGE,
    OBJECT_NOT_IN_PREREQUISITE_STATE,
    STALE,
    UNDEFINED_OBJECT,
    StatementRefusedError,
    translated,
)
from structable.spi import (
    Aggregation,
    InvalidFieldError,
    StructableError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
)

_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]{1,64}\Z")
# Depending on the server's version, the file of the snapshot is missing or its transaction is over.
_GONE = frozenset({INVALID_PARAMETER_VALUE, OBJECT_NOT_IN_PREREQUISITE_STATE, UNDEFINED_OBJECT})


class PageRange(NamedTuple):
    """A range of a table's pages; `end` is excluded."""

    begin: int
    end: int

    def condition(self) -> str:
        """Return the SQL for the rows on these pages; it follows other conditions."""
        return f" and ctid >= '({self.begin},0)'::tid and ctid < '({self.end},0)'::tid"


class Grouping(NamedTuple):
    """The server's computation of partial aggregates instead of rows."""

    query: str
    """The split's query, with the columns that `read_groups` reads."""
    clause: str
    """The clause after the conditions."""


class SplitState(NamedTuple):
    """The content of a split."""

    spec: TableSpecification  # when the plan was made
    columns: tuple[str, ...]
    """The columns of the query."""
    query: str
    """A query without parameters that ends with a condition; the server rejects it once the table has changed."""
    pages: PageRange | None  # None if an index finds the rows
    inline: bool
    """Whether the pages hold all values, so that a run of pages never returns many more bytes than the pages have."""
    snapshot: str
    aggregation: Aggregation | None = None
    grouping: Grouping | None = None
    """The server's grouping; None if it sends the rows, and the reader groups them."""
    computed: ComputedScan | None = None
    """The computation on the batches."""

    @property
    def beginning(self) -> tuple[str, str]:
        """The commands that begin a transaction in the plan's snapshot; ValueError if its name is malformed."""
        if not _SNAPSHOT.match(self.snapshot):
            raise ValueError(f"{self.snapshot!r} is not the name of a snapshot")
        return "begin isolation level repeatable read read only", f"set transaction snapshot '{self.snapshot}'"

    @property
    def whole_query(self) -> str:
        """The SQL of the split's rows, or of its groups."""
        pages = "" if self.pages is None else self.pages.condition()
        if self.grouping is None:
            return self.query + pages
        return self.grouping.query + pages + self.grouping.clause


def next_size(size: int, received: int, wanted: int) -> int:
    """Return the number of rows or pages to request, given the bytes of the last request and the bytes wanted.

    At most twice as many as last time: the next rows may be longer.
    """
    return max(1, min(size * 2, size * wanted // max(received, 1)))


def refused(error: Exception, state: SplitState, *, importing: bool = False) -> StructableError:
    """Return the contract's error for a failure; `importing` means that the snapshot was being imported."""
    table = state.spec.name
    if isinstance(error, StatementRefusedError):
        if importing and error.state in _GONE:
            return TransactionClosedError(
                f"the snapshot of this split of table {table!r} is gone: the plan was closed, the connection that held "
                f"it ended (its process, a restart, pg_terminate_backend, a time-out of a pooler), or this server is "
                f"not the plan's: {error.message}"
            )
        if not importing and error.state in STALE:
            return TransactionConflictError(f"table {table!r} was changed or dropped since the scan was planned")
        if state.grouping is not None and error.state == NUMERIC_VALUE_OUT_OF_RANGE:
            return InvalidFieldError(
                table, "aggregate", f"an expression has a value of more than 38 digits: {error.message}"
            )
    return translated(error, f"reading a split of table {table!r}")
