"""The records that a transaction gives to feeds of the producer `input`: deferred as its writes are, in their order.

They do not count for the size of the transaction: the writes that they record are deferred already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.driver.type_oids import CHAR
from structable.backends.postgresql.feeds.layout import record_kind
from structable.backends.postgresql.feeds.record_statements import (
    GIVEN,
    RECORDED,
    record_given,
    record_rows_of_keys,
)
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.types import array
from structable.spi import RowKind, Value
from structable.spi.rules.rows import check_row

from .bound_table import BoundTable
from .row_arrays import arrays, portions
from .server_transaction import ServerTransaction

__all__ = ["InputRecords"]


class InputRecords:
    """What a transaction records of the writes to one table."""

    def __init__(self, tx: ServerTransaction, table: BoundTable) -> None:
        self._tx = tx
        self._table = table

    def begin(self) -> None:
        """Let the triggers record nothing from now on; to be called before each write."""
        if not self._tx.writes.gives_input:
            self._tx.require_writable()
            self._tx.precede(self._table, lambda _: GIVEN)
            self._tx.writes.gives_input = True

    def leave_to_triggers(self) -> None:
        """Let the triggers record the writes that come next, until `begin`."""
        if self._tx.writes.gives_input:
            self._tx.precede(self._table, lambda _: RECORDED)
            self._tx.writes.gives_input = False

    def add(self, changes: Iterable[tuple[RowKind, Mapping[str, Value]]]) -> None:
        """Record given rows that the table has accepted."""
        binding = self._table.binding
        rows = [(kind, row, _encoded(binding, row)) for kind, row in changes]
        for portion in portions(rows, lambda one: at_most(one[2])):
            self._add(binding, portion)

    def _add(self, first: TableBinding, rows: list[tuple[RowKind, Mapping[str, Value], Pieces]]) -> None:
        kinds = array(CHAR, [record_kind(kind).encode() for kind, _, _ in rows])

        def build(binding: TableBinding) -> Call:
            given = [pieces if binding is first else _encoded(binding, row) for _, row, pieces in rows]
            return Call(record_given(binding), [kinds, *arrays(binding, binding.shape.columns, given)])

        self._tx.precede(self._table, build, counts=False)

    def add_rows_of(self, keys: Iterable[Pieces]) -> None:
        """Record the rows of some keys as they are after the writes so far."""
        for portion in portions(dict.fromkeys(keys), at_most):

            def build(binding: TableBinding, portion: list[Pieces] = portion) -> Call:
                return Call(record_rows_of_keys(binding), arrays(binding, binding.spec.primary_key, portion))

            self._tx.precede(self._table, build, counts=False)


def _encoded(binding: TableBinding, row: Mapping[str, Value]) -> Pieces:
    names = binding.shape.columns
    return binding.encoder(names).pieces({**dict.fromkeys(names), **check_row(binding.write_spec, row)})
