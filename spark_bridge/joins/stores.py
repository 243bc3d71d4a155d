"""The stores of a join's tables, and `View`: the three tables in one transaction of each store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.base.table_ref import TableRef
from structable.spi import (
    ChangeFeed,
    Listener,
    Storage,
    StorageUrl,
    StoreNotFoundError,
    StructuredTable,
    TableNotFoundError,
    Transaction,
    connect,
)
from structable.spi.authors import feed_channel

from .definition import ForeignKeyJoin
from .progress import PROGRESS, Positions, ProgressRecord, intent_channel, read_record


@dataclass(frozen=True, slots=True)
class View:
    """A join's tables as one transaction of each store sees them.

    Attributes
    ----------
    positions : Positions
        The states of the left and the right table.
    result : StructuredTable, optional
        The result, in the transaction of its store; None if there is no such table.
    feed : str
        The result's feed; empty if there is no such table.
    progress : StructuredTable, optional
        The table of records, in the same transaction; None if there is no such table.
    record : ProgressRecord, optional
        The record of the join.
    """

    positions: Positions
    left: StructuredTable
    right: StructuredTable
    result: StructuredTable | None
    feed: str
    progress: StructuredTable | None
    record: ProgressRecord | None


class JoinStores:
    """Connections to the stores of a join's tables, one for each store.

    Parameters
    ----------
    join : ForeignKeyJoin
        The join.

    Raises
    ------
    StoreNotFoundError, BackendNotFoundError, StorageUnavailableError, ValueError
        As `connect` does; no store is created unless the reference to its table has the option `create`.
    """

    def __init__(self, join: ForeignKeyJoin) -> None:
        self.join = join
        self._open: dict[StoreClient, Storage] = {}
        try:
            self.result = self._connected(join.result)
            self.left = self._connected(join.left)
            self.right = self._connected(join.right)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; idempotent."""
        for storage in self._open.values():
            storage.close()

    @property
    def feeds(self) -> tuple[ChangeFeed, ChangeFeed]:
        """The feeds of the left and the right table."""
        return self.left.changes(self.join.left.name), self.right.changes(self.join.right.name)

    def listen(self) -> list[Listener]:
        """Return listeners, one for each store: to both tables' feeds, and to the ends of other workers' intents."""
        channels = {self.result: [intent_channel(self.join.name)]}
        for storage, ref in ((self.left, self.join.left), (self.right, self.join.right)):
            channels.setdefault(storage, []).append(feed_channel(ref.name))
        return [storage.listen(names) for storage, names in channels.items()]

    @contextmanager
    def view(self, tx: Transaction) -> Iterator[View]:
        """Yield the tables in a transaction of the result's store, and in read transactions of the other stores.

        The record is read first, so that no input is read at a state before the recorded step.
        """
        join = self.join
        with ExitStack() as stack:
            inputs = ((self.left, join.left.name), (self.right, join.right.name))
            feed = _feed_of(tx, join.result.name)
            # A transaction gives positions only before its first table.
            seen_in = {self.result: tx}
            at = {one: tx.position(one[1]) for one in dict.fromkeys(inputs) if one[0] is self.result}
            progress = _table_of(tx, PROGRESS.name)
            record = None if progress is None else read_record(progress, join.name)
            for storage, name in inputs:
                if storage not in seen_in:
                    seen_in[storage] = stack.enter_context(storage.transaction(read_only=True))
                if (storage, name) not in at:
                    at[storage, name] = seen_in[storage].position(name)
            left, right = inputs
            yield View(
                Positions(at[left], at[right]),
                seen_in[self.left].table(join.left.name),
                seen_in[self.right].table(join.right.name),
                tx.table(join.result.name) if feed else None,
                feed,
                progress,
                record,
            )

    def _connected(self, ref: TableRef) -> Storage:
        storage = self._open.get(ref.store)
        if storage is None:
            options = dict(ref.options)
            if "create" not in StorageUrl.parse(ref.url).parameters:
                options.setdefault("create", False)  # a mistyped URL must not become a store
            try:
                storage = self._open[ref.store] = connect(ref.url, **options)
            except StoreNotFoundError as error:
                reason = str(error).partition("; connect without")[0]
                raise StoreNotFoundError(f"{reason}; TableRef(url, name, create=True) makes it") from None
        return storage


def _feed_of(tx: Transaction, table: str) -> str:
    try:
        return tx.position(table).feed
    except TableNotFoundError:
        return ""


def _table_of(tx: Transaction, table: str) -> StructuredTable | None:
    try:
        return tx.table(table)
    except TableNotFoundError:
        return None
