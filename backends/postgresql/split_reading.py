"""`SplitReader`: the rows of a split as Arrow batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from structable.spi import ScanSplit, StorageUnavailableError

from .adbc_reading import AdbcReader, has_adbc
from .connecting import Connecting
from .failures import ConnectionLostError, ServerError
from .pool import SessionPool
from .session import Session, command
from .split_state import PageRange, SplitState, next_size, refused

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

__all__ = ["SplitReader", "read_one_split"]

_FIRST_ROWS = 64
_MOST_ROWS = 5_000
_BATCH_BYTES = 1 << 20
"""What a batch of rows is to have, about."""
_MOST_READERS = 1_000
_MOST_IDLE = 4
_MOST_COLUMNS = 500
"""A result of the server's has at most 1,664 columns, and those that the server joins may take three each."""


class SplitReader:
    """Reads the splits of one storage. Safe to share between threads.

    A split of pages comes in columns that the server made, where its values are all on those pages; else rows come, by
    ADBC where it is installed, by a cursor where not.

    Parameters
    ----------
    connecting : Connecting
        The way to the database.
    most : int
        How many splits may be read at once.
    most_idle : int
        How many connections are kept for the next splits, of each kind.
    """

    def __init__(self, connecting: Connecting, *, most: int = _MOST_READERS, most_idle: int = _MOST_IDLE) -> None:
        # Not the storage's own: a plan holds one of those, and must not wait for itself where there is but one.
        self._pool = SessionPool(connecting.open, most, 0.0, most_idle=most_idle)
        self._adbc = AdbcReader(connecting, most_idle)

    def read(self, split: ScanSplit) -> Iterator[RecordBatch]:
        """Yield the rows of a split; a generator, to be exhausted or closed. It refers to the plan's snapshot.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot is held no longer.
        TransactionConflictError
            If the table was changed or dropped.
        StorageUnavailableError
            If the server cannot be reached, or the storage was closed.
        """
        split.require_open()
        # A split is itself a pickle, from whoever made the plan: what is inside deserves the same trust.
        state = SplitState(*pickle.loads(split.state))
        from structable.spi.arrow import arrow_schema

        for batch in self._batches(state, arrow_schema(state.spec, state.columns)):
            if self._pool.closed:
                raise StorageUnavailableError("the storage was closed")
            split.require_open()
            yield batch
        split.require_open()

    def _batches(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        if state.pages is None or not state.inline or len(state.columns) > _MOST_COLUMNS:
            return self._adbc.read(state, schema) if has_adbc() else self._by_cursor(state, schema)
        return self._by_columns(state, state.pages, schema)

    def _by_columns(self, state: SplitState, pages: PageRange, schema: Schema) -> Iterator[RecordBatch]:
        from .column_reading import ORDERLY, read_pages

        with self._begun(state, ORDERLY) as session:
            yield from read_pages(session, state, pages, schema)

    def _by_cursor(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        import pyarrow as pa

        with self._begun(state) as session:
            session.pipeline((command(f"declare c no scroll cursor for {state.whole_query}"),))
            wanted = _FIRST_ROWS
            while rows := session.rows(session.pipeline((command(f"fetch {wanted} from c"),))[0]):
                columns = zip(*rows, strict=True)
                arrays: list[pa.Array[Any]] = [
                    pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
                ]
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                yield batch
                if len(rows) < wanted:
                    return
                wanted = min(next_size(wanted, batch.nbytes, _BATCH_BYTES), _MOST_ROWS)

    @contextmanager
    def _begun(self, state: SplitState, *settings: str) -> Iterator[Session]:
        """Lend a connection in a transaction of the plan's snapshot, with settings of its own."""
        begin = [command(text) for text in (*state.beginning, *settings)]
        with self._pool.session() as session:
            try:
                try:
                    session.pipeline(begin)
                except ServerError as error:
                    raise refused(error, state, importing=True) from error
                yield session
            except (ServerError, ConnectionLostError) as error:
                raise refused(error, state) from error
            finally:
                if not session.closed:
                    with suppress(ServerError, ConnectionLostError):
                        session.pipeline((command("rollback"),))

    def close(self) -> None:
        """End all connections; idempotent."""
        self._pool.close()
        self._adbc.close()


def read_one_split(connecting: Connecting, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the rows of a split over one connection that is opened for it; see `SplitReader.read`."""
    reader = SplitReader(connecting, most=1, most_idle=0)
    try:
        yield from reader.read(split)
    finally:
        reader.close()
