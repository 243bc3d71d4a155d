"""Positions of transactions: snapshots that are exactly a version of the store."""

from __future__ import annotations

from functools import partial

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.change_feed import require_feed
from structable.backends.postgresql.driver.statement import Ask, Call, Statement
from structable.backends.postgresql.feeds.gate import VersionGate
from structable.backends.postgresql.feeds.layout import FEEDS
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.names import qualified
from structable.spi import FeedPosition, Isolation, TableNotFoundError

from .server_transaction import ServerTransaction

__all__ = ["feed_position"]


def feed_position(
    transaction: ServerTransaction, catalog: Catalog, gate: VersionGate, isolation: Isolation, table: str
) -> FeedPosition:
    """Return the position of a transaction's snapshot; see `Transaction.position`.

    The first call begins the transaction, which is of this isolation.
    """
    if transaction.position is None:
        begin = partial(gate.begin, is_serializable=isolation is Isolation.SERIALIZABLE)
        transaction.begin_exactly(begin, lambda ask: _recorded(ask, catalog, table))
    assert transaction.position is not None
    feeds = qualified(catalog.schema, FEEDS)
    number = _recorded(transaction.rows_alone, catalog, table)
    token = Call(Statement(f"select token from {feeds} where feed = {number}", prepare=False))
    return FeedPosition(str(transaction.rows_alone(token)[0][0]), transaction.position)


def _recorded(ask: Ask, catalog: Catalog, table: str) -> int | None:
    """Return the number of a table's feed; raises the errors of `Transaction.position`."""
    version = catalog.find(ask, table)
    if version is None:
        raise TableNotFoundError(table)
    require_unretired(version.spec)
    require_feed(version.spec)
    return version.feed
