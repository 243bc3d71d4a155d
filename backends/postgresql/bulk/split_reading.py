"""`SplitReader`: the rows of a split as Arrow batches."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from structable.backends.base.shared_resources import SharedResources
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.connection_factory import ConnectionFactory
from structable.backends.postgresql.driver.errors import PostgreSQLError, StatementRefusedError
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.snapshot_text import without_limits
from structable.backends.postgresql.driver.statement import command
from structable.spi import Aggregation, DataCorruptionError, ScanSplit, StorageUnavailableError, TransactionClosedError

from .split_state import PageRange, SplitState, refused

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

_MOST_READERS = 1_000
_MOST_IDLE = 4
MOST_COLUMNS = 500
"""The maximum number of columns read at once. The server returns at most 1,664; joined values may take three each."""


class SplitReader:
    """Reads at most `most` splits at once, and keeps `most_idle` connections for the next ones. Threads may share it.

    A split of pages is read by column, unless values lie outside its pages; other splits are read by row.
    """

    def __init__(self, factory: ConnectionFactory, *, most: int = _MOST_READERS, most_idle: int = _MOST_IDLE) -> None:
        # Not the storage's pool: a plan holds a connection of it, perhaps the only one, and must not wait for itself.
        self.pool = ServerPool(factory.open, most, 0.0, most_idle=most_idle)

    def read(self, split: ScanSplit, holder: ServerConnection | None = None) -> Iterator[RecordBatch]:
        """Yield the rows of a split; a generator, to be exhausted or closed. It refers to the plan's snapshot.

        `holder` is the connection that holds the snapshot, if this process has that connection, which knows why the
        snapshot is gone.
        """
        split.require_open()
        # The split itself came as a pickle from the planning process: its content deserves the same trust.
        state = SplitState(*pickle.loads(split.state))
        import pyarrow as pa

        from structable.spi.arrow import arrow_schema

        try:
            for batch in self._results(state, arrow_schema(state.spec, state.columns)):
                if self.pool.closed:
                    raise StorageUnavailableError("the storage was closed; connect again")
                split.require_open()
                yield batch
        except pa.ArrowInvalid as error:
            raise DataCorruptionError(
                f"table {split.table!r} holds a value outside the contract, not written by structable: {error}"
            ) from error
        except TransactionClosedError as error:
            split.require_open()
            raise _with_cause(error, split, holder) from error
        split.require_open()

    def _results(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        if state.computed is not None:
            return state.computed.batches(self._batches(state, schema))
        if state.aggregation is None:
            return self._batches(state, schema)
        if state.grouping is not None:
            return self._by_groups(state, state.aggregation)
        from structable.spi.arrow import partial_aggregates

        return partial_aggregates(state.spec, state.aggregation, self._batches(state, schema))

    def _by_groups(self, state: SplitState, aggregation: Aggregation) -> Iterator[RecordBatch]:
        from .row_reading import UNSYNCHRONISED, read_groups

        with self._begun(state, UNSYNCHRONISED) as connection:
            yield from read_groups(connection, state, aggregation)

    def _batches(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        if state.pages is None or not state.inline or len(state.columns) > MOST_COLUMNS:
            return self._by_rows(state, schema)
        return self._by_columns(state, state.pages, schema)

    def _by_columns(self, state: SplitState, pages: PageRange, schema: Schema) -> Iterator[RecordBatch]:
        from .column_reading import ORDERLY, read_pages

        with self._begun(state, ORDERLY) as connection:
            yield from read_pages(connection, state, pages, schema)

    def _by_rows(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        from .row_reading import UNSYNCHRONISED, read_rows

        with self._begun(state, UNSYNCHRONISED) as connection:
            yield from read_rows(connection, state, schema)

    @contextmanager
    def _begun(self, state: SplitState, *settings: str) -> Iterator[ServerConnection]:
        """Lend a connection in a transaction of the plan's snapshot, with the reader's settings."""
        with self.pool.connection() as connection:
            begin = [command(text) for text in state.beginning]
            begin += [connection.plan_freely, *without_limits(connection), *(command(text) for text in settings)]
            try:
                try:
                    connection.pipeline(begin)
                except StatementRefusedError as error:
                    raise refused(error, state, importing=True) from error
                yield connection
            except PostgreSQLError as error:
                raise refused(error, state) from error
            finally:
                connection.roll_back()

    def close(self) -> None:
        self.pool.close()


def _with_cause(
    error: TransactionClosedError, split: ScanSplit, holder: ServerConnection | None
) -> TransactionClosedError:
    """Return the error with the reason why the plan's connection ended, if known."""
    if holder is None:
        return error
    try:
        holder.pipeline((command("select"),))
    except PostgreSQLError as lost:
        return TransactionClosedError(
            f"the snapshot of the plan of this split of table {split.table!r} is lost: the connection that held it "
            f"ended: {lost}; plan the scan again"
        )
    return error


_Database: TypeAlias = tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]


def _forget(reader: SplitReader) -> None:
    """Leave the connections to the process that forked this one; psycopg closes none of another process."""


_READERS: SharedResources[_Database, SplitReader] = SharedResources(SplitReader.close, _forget)
os.register_at_fork(after_in_child=_READERS.after_fork)


def read_one_split(factory: ConnectionFactory, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the rows of a split of another process's plan; see `SplitReader.read`.

    The connection stays open for some seconds, for the next split that this process reads: a small task takes less
    time than a new connection.
    """
    database = frozenset(factory.parameters.items()), frozenset(factory.settings.items())
    with _READERS.using(database, partial(SplitReader, factory, most_idle=1)) as reader:
        yield from reader.read(split)
