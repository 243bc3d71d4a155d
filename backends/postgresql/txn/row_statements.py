"""`RowStatement`: a statement that writes rows of a table, made for the table's version at the time of sending.

All writes of rows are such statements. A call that is one statement, and reads nothing before, can be a transaction by
itself, with a receipt. A transaction defers statements, and sends them together. Only many new rows are copied instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from structable.backends.postgresql.driver.statement import Call, Statement
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import oversized
from structable.backends.postgresql.sql.names import HIDDEN_KEY
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import refusal, require_size
from structable.backends.postgresql.sql.write_statements import WriteShape, write_statement
from structable.spi import Value
from structable.spi.authors import Effect, check_row

from .bound_table import BoundTable, RefusalHandler
from .server_transaction import ServerTransaction

Item = TypeVar("Item")
Given: TypeAlias = Mapping[str, Value]

_SINGLE = 3
"""The number of rows up to which a statement for each takes less time than one for all."""
_CHUNK = 8 << 20
"""The approximate size of one statement's arrays, in bytes."""


class EncodedRow(NamedTuple):
    """A row in one version of its table, and a copy of the given row, which the caller may change."""

    row: Given
    pieces: Pieces
    size: int
    """An upper bound of the bytes of its fields."""


def encoded_row(binding: TableBinding, row: Given) -> tuple[tuple[str, ...], EncodedRow]:
    """Check a row; return its fields in the order of statements, and the row with their values in binary."""
    names = tuple(row) if row.__class__ is dict else ()
    ordered = binding.known_names(names)
    if ordered is None:
        row = check_row(binding.write_spec, row)  # raises, unless the row is another kind of mapping
        names = tuple(row)
        ordered = binding.ordered(names)
    pieces = binding.encoder(names).pieces(row)
    return ordered, EncodedRow(dict(row), pieces, at_most(pieces))


def whole_row(binding: TableBinding, row: Given) -> Given:
    """Return a row with nulls for the fields that it does not name; checked, unless it names all fields."""
    names = tuple(row) if row.__class__ is dict else ()
    if len(names) == len(binding.spec.fields) and binding.known_names(names) is not None:
        return row  # the encoder checks it in a tenth of the time
    return {**dict.fromkeys(binding.spec.field_names), **check_row(binding.write_spec, row)}


def encoded_whole(binding: TableBinding, row: Given) -> Pieces:
    """Check a row; return the values of all fields in the order of statements, null for fields not named."""
    return binding.encoder(binding.shape.columns).pieces(whole_row(binding, row))


def pieces_for(binding: TableBinding, first: TableBinding, names: tuple[str, ...], one: EncodedRow) -> Pieces:
    """Return the values, for another version of the table, of a row encoded for the `first` one."""
    if binding is first or len(names) == len(first.key_fields):  # keys never change their types
        return one.pieces
    if names[:1] == (HIDDEN_KEY,):
        return one.pieces[:1] + binding.row_pieces(names[1:], one.row)
    return binding.row_pieces(names, one.row)


class RowStatement(NamedTuple):
    """One statement, and its rows; `first` is the version of the table that they were encoded for.

    A row that is `whole` has nulls for all fields that it does not name. With `many` false it writes one row, by a
    statement that may be `known` for the first version.
    """

    first: TableBinding
    shape: WriteShape
    rows: Sequence[EncodedRow]
    many: bool = False
    whole: bool = False
    known: Statement | None = None

    def call(self, binding: TableBinding) -> Call:
        """Return the call for a version of the table."""
        if self.known is not None and binding is self.first:
            return Call(self.known, self.rows[0].pieces)
        shape, names = self.shape, self.shape.names
        if not self.many:
            [one] = self.rows
            if self.whole and binding is not self.first:
                names = binding.shape.columns
                shape, one = shape._replace(names=names), one._replace(row={**dict.fromkeys(names), **one.row})
            pieces = pieces_for(binding, self.first, names, one)  # raises if the changed table does not accept the row
            return Call(write_statement(binding, shape, many=False), pieces)
        given = [pieces_for(binding, self.first, names, one) for one in self.rows]
        # The server finds rows that lie close together a fifth faster, and two such statements lock rows in the same
        # order.
        ordered = sorted(given) if binding.spec.primary_key else given
        return Call(write_statement(binding, shape, many=True), binding.arrays(names, ordered))

    @property
    def key(self) -> Pieces:
        """The key of its first row, in binary."""
        return self.rows[0].pieces[: len(self.first.key_fields)]

    @property
    def refusal(self) -> RefusalHandler | None:
        """The explanation of a rejection by the server; None if its rows surely fit."""
        shape = self.shape
        if not (shape.checked or shape.effect in (Effect.STEP, Effect.MERGE)):
            return None
        return partial(refusal, self.first.spec, shape.effect, shape.names)


def defer(tx: ServerTransaction, table: BoundTable, statement: RowStatement) -> None:
    """Make a transaction run a statement before the next one that may see its rows, at the latest at the commit."""
    # A statement of one row may run alone, at READ COMMITTED, where a merge would not insert a row that is deleted
    # while it waits. Without `key` it runs in a snapshot.
    merges = statement.shape.effect is Effect.MERGE and tx.has_one_call and not tx.waits
    tx.defer(table, statement.call, None if statement.many or merges else statement.key, statement.refusal)


def defer_rows(
    tx: ServerTransaction, table: BoundTable, first: TableBinding, shape: WriteShape, rows: Sequence[EncodedRow]
) -> None:
    """Defer a write of rows with distinct keys, by one statement, or by one for each row if they are few."""
    if len(rows) > _SINGLE:
        defer(tx, table, RowStatement(first, shape, rows, many=True))
        return
    for one in rows:
        defer(tx, table, RowStatement(first, shape, (one,)))


def chunks(all_of_it: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items in lists of about the size of one statement."""
    chunk: list[Item] = []
    size = 0
    for one in all_of_it:
        chunk.append(one)
        size += size_of(one)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def size_of_rows(rows: Iterable[EncodedRow]) -> int:
    """Return an upper bound of the bytes of rows."""
    return sum(one.size for one in rows)


def require_sizes(
    tx: ServerTransaction, table: BoundTable, first: TableBinding, names: tuple[str, ...], rows: Iterable[EncodedRow]
) -> None:
    """Reject rows, encoded for the `first` version, that would be too large together with fields they do not name."""
    for chunk in chunks(rows, lambda one: one.size):

        def build(binding: TableBinding, chunk: list[EncodedRow] = chunk) -> Call:
            given = [pieces_for(binding, first, names, one) for one in chunk]
            return Call(oversized(binding, names), binding.arrays(names, given))

        for (size,) in tx.rows_of(tx.ask(table, build)):
            require_size(table.binding.spec.name, int(str(size)))
