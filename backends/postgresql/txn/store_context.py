"""`StoreContext`: the objects of a storage that all its transactions share."""

from __future__ import annotations

from typing import NamedTuple

from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.signals import ServerSignals
from structable.backends.postgresql.feeds.gate import StoreFeeds
from structable.backends.postgresql.schema.catalog import Catalog

from .receipts import Receipts


class StoreContext(NamedTuple):
    """The connections, tables, change feeds, receipts and signals of a storage."""

    pool: ServerPool
    catalog: Catalog
    feeds: StoreFeeds
    receipts: Receipts
    signals: ServerSignals
