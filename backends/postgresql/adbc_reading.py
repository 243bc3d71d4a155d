"""`AdbcReader`: the rows of a split as Arrow batches by ADBC, over connections of its own."""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from psycopg import sql

from structable.spi import FieldType, StorageUnavailableError

from .connecting import Connecting
from .failures import ConnectionLostError, ServerError
from .split_state import SplitState, refused

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection, AdbcDatabase, Error
    from pyarrow import RecordBatch, Schema

__all__ = ["AdbcReader", "has_adbc"]

_BATCH_BYTES = 1 << 20
# Rows come as they lie: splits beside one another have no use for it, and a scan does not begin in the middle.
_SETTINGS = {"synchronize_seqscans": "off"}


class AdbcReader:
    """Reads the splits of one storage. Safe to share between threads.

    Parameters
    ----------
    connecting : Connecting
        The way to the database.
    most_idle : int
        How many connections are kept for the next splits.
    """

    def __init__(self, connecting: Connecting, most_idle: int) -> None:
        self._connecting = connecting
        self._most_idle = most_idle
        self._process = os.getpid()
        self._idle: deque[AdbcConnection] = deque()
        self._closed = False

    def read(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        """Yield the rows of a split; see `SplitReader.read`."""
        import adbc_driver_manager as adbc
        import pyarrow as pa

        connection = self._begun(state)
        done = False
        try:
            with adbc.AdbcStatement(connection) as statement:
                try:
                    statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                    statement.set_sql_query(state.whole_query)
                    stream, _ = statement.execute_query()
                except adbc.Error as error:
                    raise refused(_failure(error), state) from error
                with pa.RecordBatchReader._import_from_c(stream.address) as reader:
                    while not done:
                        try:
                            batch = reader.read_next_batch()
                        except StopIteration:
                            done = True
                        except (pa.ArrowException, OSError) as error:
                            raise refused(ConnectionLostError(_said(error)), state) from error
                        else:
                            if batch.num_rows:
                                yield _conformed(state, batch, schema)
        finally:
            self._give_back(connection, done=done)

    def _begun(self, state: SplitState) -> AdbcConnection:
        """Return a connection with a transaction of the snapshot."""
        import adbc_driver_manager as adbc

        while True:
            try:
                connection, new = self._idle.pop(), False
            except IndexError:
                connection, new = self._connected(), True
            try:
                _execute(connection, "; ".join(state.beginning))
            except adbc.Error as error:
                self._close(connection)
                failure = _failure(error)
                if isinstance(failure, ServerError):
                    raise refused(failure, state, importing=True) from error
                if new:
                    raise refused(failure, state) from error
                # The server has ended it while it was idle.
            else:
                return connection

    def _connected(self) -> AdbcConnection:
        import adbc_driver_manager as adbc

        try:
            connection = adbc.AdbcConnection(_database(self._connecting.conninfo, os.getpid()))
            _execute(connection, _settings({**self._connecting.settings, **_SETTINGS}))
        except adbc.Error as error:
            raise StorageUnavailableError(f"cannot connect to {self._connecting.shown}: {_said(error)}") from error
        return connection

    def _give_back(self, connection: AdbcConnection, *, done: bool) -> None:
        """Keep a connection for the next split, unless the server is still sending on it."""
        import adbc_driver_manager as adbc

        if done and not self._closed and len(self._idle) < self._most_idle:
            try:
                _execute(connection, "rollback")
            except adbc.Error:
                done = False
            else:
                self._idle.append(connection)
                if self._closed:  # meanwhile
                    self.close()
                return
        self._close(connection)

    @staticmethod
    def _close(connection: AdbcConnection) -> None:
        import adbc_driver_manager as adbc

        with suppress(adbc.Error):
            connection.close()

    def close(self) -> None:
        """End the connections that are kept; idempotent. In a forked process they are the other one's."""
        self._closed = True
        if os.getpid() != self._process:
            return
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return
            self._close(connection)


def has_adbc() -> bool:
    """Return whether ADBC's driver is installed."""
    return importlib.util.find_spec("adbc_driver_postgresql") is not None


@lru_cache(maxsize=16)
def _database(conninfo: str, process: int) -> AdbcDatabase:
    """Return ADBC's knowledge of a database's types, which holds no connection and takes seven times one's time.

    Kept for the life of the process: a Spark worker connects for each split that it reads.
    """
    import adbc_driver_postgresql

    database: AdbcDatabase = adbc_driver_postgresql.connect(conninfo)
    return database


def _settings(settings: dict[str, str]) -> str:
    parts = [f"set_config({sql.quote(name)}, {sql.quote(value)}, false)" for name, value in settings.items()]
    return "select " + ", ".join(parts)


def _execute(connection: AdbcConnection, text: str) -> None:
    import adbc_driver_manager as adbc

    with adbc.AdbcStatement(connection) as statement:
        statement.set_sql_query(text)
        statement.execute_update()


def _conformed(state: SplitState, batch: RecordBatch, schema: Schema) -> RecordBatch:
    """Return a batch of ADBC's with the types of the contract; most columns are it already."""
    import pyarrow as pa

    arrays = list(batch.columns)
    for place, name in enumerate(state.columns):
        kind = state.spec.field(name).type
        if kind is FieldType.BYTE:
            arrays[place] = arrays[place].cast(pa.int8())
        elif kind is FieldType.DECIMAL:
            text: Any = arrays[place]
            text = text.storage if isinstance(text, pa.ExtensionArray) else text
            arrays[place] = text.cast(schema.field(place).type)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _failure(error: Error) -> Exception:
    """Return the server's refusal, or the loss of the connection where it said nothing."""
    state = error.sqlstate
    if not state or state.startswith("57P0"):
        return ConnectionLostError(_said(error))
    return ServerError(state, _said(error))


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())
