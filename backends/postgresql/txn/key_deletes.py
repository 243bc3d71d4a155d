"""`delete_many`: one statement for all rows."""

from __future__ import annotations

from collections.abc import Iterable

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import batches
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most

from .bound_table import BoundTable
from .row_arrays import arrays_by_key, portions
from .seen_rows import ABSENT
from .server_transaction import ServerTransaction

__all__ = ["delete_keys"]


def delete_keys(tx: ServerTransaction, table: BoundTable, keys: Iterable[Pieces]) -> None:
    """Delete the rows of some keys, which may repeat."""
    distinct = list(dict.fromkeys(keys))
    tx.require_room(sum(map(at_most, distinct)))
    for portion in portions(distinct, at_most):
        _defer(tx, table, portion)
    for key in distinct:
        table.seen.put(key, ABSENT)


def _defer(tx: ServerTransaction, table: BoundTable, keys: list[Pieces]) -> None:
    def build(binding: TableBinding) -> Call:
        return Call(batches.delete_many(binding), arrays_by_key(binding, binding.spec.primary_key, keys))

    tx.defer(table, build)
