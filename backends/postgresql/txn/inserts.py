"""`insert_many`: one look-up of the keys, then the rows as new ones."""

from __future__ import annotations

from collections.abc import Mapping

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import lookup_many_call
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.spi import RecordExistsError, Value
from structable.spi.rules.rows import check_row

from .bound_table import BoundTable
from .row_arrays import portions
from .seen_rows import ABSENT
from .server_transaction import ServerTransaction
from .upsert_many import upsert_batch

__all__ = ["insert_batch"]


def insert_batch(tx: ServerTransaction, table: BoundTable, rows: list[Mapping[str, Value]]) -> None:
    """Insert rows; raises `RecordExistsError`, before anything is written, if a key exists or comes twice."""
    spec = table.binding.write_spec
    checked = [check_row(spec, row) for row in rows]
    keys: dict[Pieces, None] = {}
    for row in checked:
        key = tuple([row[name] for name in spec.primary_key])
        pieces = table.binding.key_pieces(key)
        if pieces in keys:
            raise RecordExistsError(spec.name, key)
        keys[pieces] = None
    tx.require_room(sum(map(at_most, keys)))
    for portion in portions(keys, at_most):

        def build(binding: TableBinding, portion: list[Pieces] = portion) -> Call:
            return lookup_many_call(binding, portion, binding.shape_of(binding.spec.primary_key))

        for found in tx.rows_of(tx.ask(table, build)):
            raise RecordExistsError(spec.name, tuple(found))
    for pieces in keys:
        table.seen.put(pieces, ABSENT)
    upsert_batch(tx, table, list(checked))
