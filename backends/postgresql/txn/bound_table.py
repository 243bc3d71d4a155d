"""`BoundTable`: a table in one transaction, with the sizes of its rows that the transaction knows.

Its statements are built again if another process changed the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import TypeVar

from psycopg import pq

from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, require_sendable
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT
from structable.spi import InvalidFieldError, StructableError, UnsupportedOperationError
from structable.spi.authors import MAX_ROW_SIZE

_MOST_SEEN = 4_096


class BoundTable:
    """A table in a transaction, in the newest version known to this process.

    `verify` lets the server accept or reject the binding; the transaction replaces an outdated one.
    """

    def __init__(self, binding: TableBinding, verify: Callable[[BoundTable], None]) -> None:
        self.binding = binding
        self.verified = False
        """Whether the server has accepted a statement of the binding in this transaction."""
        self.written = False
        """Whether a write was called."""
        self._verify = verify
        self.seen = SeenRows()

    def renew(self) -> bool:
        """Let the server check that the binding is current; return whether it was replaced."""
        if self.verified:
            return False
        before = self.binding
        self._verify(self)
        self.verified = True
        return self.binding is not before


RefusalHandler = Callable[[StatementRefusedError], StructableError | None]
"""Returns the error of a write that the server rejected because of its row; None if the reason was another one."""


class TableCall:
    """A statement that `build` makes for a version of a table, not yet run.

    `key` is the only row that it concerns, None is any row; `refusal` explains a rejected write that may not fit its
    row.
    """

    __slots__ = ("build", "call", "key", "refusal", "table")

    def __init__(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: RefusalHandler | None = None,
    ) -> None:
        self.table = table
        self.build = build
        self.refusal = refusal
        self.call = build(table.binding)
        require_sendable(*self.call)
        self.key = key

    def meets(self, other: TableCall) -> bool:
        """Return whether both statements may concern the same row."""
        return self.table is other.table and (self.key is None or other.key is None or self.key == other.key)


Table = TypeVar("Table", bound=BoundTable)


def on_current_schema(operation: Callable[[Table, Given], Result]) -> Callable[[Table, Given], Result]:
    """Decorate an operation: if it rejects its argument, check whether the table has changed, and if so try again.

    Arguments are checked against the schema this process knows, which another process may have changed.
    """

    @wraps(operation)
    def run(table: Table, given: Given) -> Result:
        try:
            return operation(table, given)
        except (InvalidFieldError, UnsupportedOperationError):
            if not table.renew():
                raise
        return operation(table, given)

    return run


class SeenRows:
    """The maximum sizes of rows, or `ABSENT` for rows that do not exist, by their binary keys.

    A row that is known to exist is changed by a plain UPDATE, which may be deferred to the commit, and so is a row of
    known size. Another transaction's change of the row is a conflict, so that the knowledge stays valid.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[Pieces, int] = {}

    def get(self, key: Pieces) -> int | None:
        """Return the size of a row; None if it is unknown."""
        return self._sizes.get(key)

    def known(self, keys: Iterable[Pieces]) -> dict[Pieces, int]:
        """Return the known sizes among some rows."""
        sizes = self._sizes
        return {key: sizes[key] for key in keys if key in sizes} if sizes else {}

    def put(self, key: Pieces, size: int | None) -> None:
        """Record the size of a row; None if it is no longer known."""
        if size is None:
            self._sizes.pop(key, None)
            return
        if len(self._sizes) >= _MOST_SEEN:
            self._sizes.clear()
        self._sizes[key] = size

    def put_each(self, sizes: Mapping[Pieces, int | None]) -> None:
        """Record the size of each of some rows, as `put` does."""
        known = {key: size for key, size in sizes.items() if size is not None}
        if len(known) < len(sizes):
            for key in sizes.keys() - known.keys():
                self._sizes.pop(key, None)
        if len(self._sizes) + len(known) > _MOST_SEEN:
            self._sizes.clear()
        if len(known) <= _MOST_SEEN:
            self._sizes.update(known)

    def put_all(self, keys: Collection[Pieces], size: int) -> None:
        """Record one maximum size of several rows."""
        if len(self._sizes) + len(keys) > _MOST_SEEN:
            self._sizes.clear()
        if len(keys) <= _MOST_SEEN:
            self._sizes.update(dict.fromkeys(keys, size))

    def clear(self) -> None:
        """Forget all rows."""
        self._sizes.clear()

    def note_one(self, key: Pieces, result: pq.abc.PGresult, is_whole: bool) -> None:
        """Record a row whose fields outside the key were read, all or some."""
        if not result.ntuples:
            self.put(key, ABSENT)
        elif is_whole:
            value = result.get_value
            self.put(key, at_most(key + tuple([value(0, place) for place in range(result.nfields)])))
        elif self._sizes.get(key, ABSENT) == ABSENT:
            self.put(key, MAX_ROW_SIZE)

    def note(self, result: pq.abc.PGresult, binding: TableBinding, columns: tuple[str, ...] | None) -> None:
        """Record rows read with some columns, the key's first; None is all columns."""
        count = result.ntuples
        if count > _MOST_SEEN:
            return
        value, width = result.get_value, len(binding.key_fields)
        places = range(width)
        fixed = binding.width_without(())
        if fixed is None and columns is None:
            fields = range(result.nfields)
            for row in range(count):
                pieces = tuple([value(row, place) for place in fields])
                self.put(pieces[:width], at_most(pieces))
            return
        for row in range(count):
            key = tuple([value(row, place) for place in places])
            # Any column that was not read may be large.
            if self._sizes.get(key, ABSENT) == ABSENT:
                self.put(key, MAX_ROW_SIZE if fixed is None else fixed)


Given = TypeVar("Given")
Result = TypeVar("Result")
