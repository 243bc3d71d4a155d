"""The intents and versions of large transactions, found by searching tables: their records do not list rows."""

from __future__ import annotations

from collections.abc import Iterator

from structable.backends.hbase.layout import FAMILY, VALUE, Layout, intent_column
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway

from .status import Status
from .written_rows import decode_rows

__all__ = ["bulk_intents", "bulk_versions"]

_ROWS_AT_ONCE = 1_000


def bulk_intents(
    gateway: Gateway, layout: Layout, txid: bytes, status: Status
) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Yield space, and row to intent, page by page, for the remaining intents of a large transaction.

    The region servers search whole tables for the column.
    """
    column = intent_column(txid)
    for space in decode_rows(status.writes).rows:
        try:
            pages = gateway.pages(layout.table(space), b"", b"", [column], before=None, page_rows=_ROWS_AT_ONCE)
            for page in pages:
                yield space, {row: cells[column][0] for row, cells in page if column in cells}
        except TableMissingError:
            continue


def bulk_versions(gateway: Gateway, layout: Layout, status: Status) -> Iterator[tuple[bytes, dict[bytes, int]]]:
    """Yield space, and row to the first byte of its version, page by page, for the rows of a large commit."""
    for space in decode_rows(status.writes).rows:
        try:
            pages = gateway.pages(
                layout.table(space),
                b"",
                b"",
                [FAMILY],
                before=None,
                page_rows=_ROWS_AT_ONCE,
                server_filter=f"TimestampsFilter({status.commit})",
            )
            for page in pages:
                found = {
                    row: cells[VALUE][0][0]
                    for row, cells in page
                    if VALUE in cells and cells[VALUE][1] == status.commit
                }
                yield space, found
        except TableMissingError:
            continue
