"""`SplitReader`: the rows of a split as Arrow batches, by ADBC where it is installed, else by a cursor."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

from structable.spi import (
    FieldType,
    ScanSplit,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
)

from .connecting import Connecting
from .failures import STALE, ConnectionLostError, ServerError, translated
from .pool import SessionPool
from .session import command

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

__all__ = ["SplitReader", "SplitState", "read_one_split"]

_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]{1,64}\Z")
# Depending on the server's version, the file of the snapshot is missing or its transaction is over.
_GONE = frozenset({"22023", "55000", "42704"})
_BATCH_BYTES = 1 << 20
_FETCHED_ROWS = 5_000
_MOST_IDLE = 4
_BEGIN = "begin isolation level repeatable read read only"
# Rows come as they lie: splits beside one another have no use for it, and a scan does not begin in the middle.
_SETTINGS = {"synchronize_seqscans": "off"}


class SplitState(NamedTuple):
    """What a split has to know.

    Parameters
    ----------
    spec : TableSpecification
        The table when the plan was made.
    columns : tuple of str
        The columns of the batches.
    query : str
        The SQL of the rows, without parameters; it is refused when the table was changed.
    snapshot : str
        The exported snapshot.
    """

    spec: TableSpecification
    columns: tuple[str, ...]
    query: str
    snapshot: str


class SplitReader:
    """Reads the splits of one storage. Safe to share between threads.

    Parameters
    ----------
    connecting : Connecting
        The way to the database.
    pool : SessionPool
        Where connections come from without ADBC, which needs its own.
    most_idle : int
        How many of ADBC's connections are kept for the next splits.
    """

    def __init__(self, connecting: Connecting, pool: SessionPool, *, most_idle: int = _MOST_IDLE) -> None:
        self._connecting = connecting
        self._pool = pool
        self._most_idle = most_idle
        self._process = os.getpid()
        self._idle: deque[Any] = deque()

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
        if not _SNAPSHOT.match(state.snapshot):
            raise ValueError(f"{state.snapshot!r} is not the name of a snapshot")
        from structable.spi.arrow import arrow_schema

        schema = arrow_schema(state.spec, state.columns)
        batches = self._by_adbc(state, schema) if _has_adbc() else self._by_cursor(state, schema)
        for batch in batches:
            if self._pool.closed:
                raise StorageUnavailableError("the storage was closed")
            split.require_open()
            yield batch
        split.require_open()

    def _by_cursor(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        import pyarrow as pa

        with self._pool.session() as session:
            try:
                try:
                    session.pipeline((command(_BEGIN), command(_import(state))))
                except ServerError as error:
                    raise _refused(error, state, importing=True) from error
                session.pipeline((command(f"declare c no scroll cursor for {state.query}"),))
                while True:
                    rows = session.rows(session.pipeline((command(f"fetch {_FETCHED_ROWS} from c"),))[0])
                    if rows:
                        columns = zip(*rows, strict=True)
                        arrays: list[pa.Array[Any]] = [
                            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
                        ]
                        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                    if len(rows) < _FETCHED_ROWS:
                        return
            except (ServerError, ConnectionLostError) as error:
                raise _refused(error, state) from error
            finally:
                if not session.closed:
                    with suppress(ServerError, ConnectionLostError):
                        session.pipeline((command("rollback"),))

    def _by_adbc(self, state: SplitState, schema: Schema) -> Iterator[RecordBatch]:
        import adbc_driver_manager as adbc
        import pyarrow as pa

        connection = self._begun(state)
        done = False
        try:
            with adbc.AdbcStatement(connection) as statement:
                try:
                    statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                    statement.set_sql_query(state.query)
                    stream, _ = statement.execute_query()
                except adbc.Error as error:
                    raise _refused(_failure(error), state) from error
                with pa.RecordBatchReader._import_from_c(stream.address) as reader:
                    while not done:
                        try:
                            batch = reader.read_next_batch()
                        except StopIteration:
                            done = True
                        except (pa.ArrowException, OSError) as error:
                            raise _refused(ConnectionLostError(_said(error)), state) from error
                        else:
                            if batch.num_rows:
                                yield _conformed(state, batch, schema)
        finally:
            self._give_back(connection, done=done)

    def _begun(self, state: SplitState) -> Any:  # noqa: ANN401 - ADBC's connection
        """Return a connection with a transaction of the snapshot."""
        import adbc_driver_manager as adbc

        while True:
            try:
                connection, new = self._idle.pop(), False
            except IndexError:
                connection, new = self._connected(), True
            try:
                _execute(connection, f"{_BEGIN}; {_import(state)}")
            except adbc.Error as error:
                self._close(connection)
                failure = _failure(error)
                if isinstance(failure, ServerError):
                    raise _refused(failure, state, importing=True) from error
                if new:
                    raise _refused(failure, state) from error
                # The server has ended it while it was idle.
            else:
                return connection

    def _connected(self) -> Any:  # noqa: ANN401 - ADBC's connection
        import adbc_driver_manager as adbc

        try:
            connection = adbc.AdbcConnection(_database(self._connecting.conninfo, os.getpid()))
            _execute(connection, _settings({**self._connecting.settings, **_SETTINGS}))
        except adbc.Error as error:
            raise StorageUnavailableError(f"cannot connect to {self._connecting.shown}: {_said(error)}") from error
        return connection

    def _give_back(self, connection: Any, *, done: bool) -> None:  # noqa: ANN401 - ADBC's connection
        """Keep a connection for the next split, unless the server is still sending on it."""
        import adbc_driver_manager as adbc

        if done and not self._pool.closed and len(self._idle) < self._most_idle:
            try:
                _execute(connection, "rollback")
            except adbc.Error:
                done = False
            else:
                self._idle.append(connection)
                if self._pool.closed:  # meanwhile
                    self.close()
                return
        self._close(connection)

    @staticmethod
    def _close(connection: Any) -> None:  # noqa: ANN401 - ADBC's connection
        import adbc_driver_manager as adbc

        with suppress(adbc.Error):
            connection.close()

    def close(self) -> None:
        """End the connections that are kept; idempotent. In a forked process they are the other one's."""
        if os.getpid() != self._process:
            return
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return
            self._close(connection)


def read_one_split(connecting: Connecting, split: ScanSplit) -> Iterator[RecordBatch]:
    """Yield the rows of a split over one connection that is opened for it; see `SplitReader.read`."""
    pool = SessionPool(connecting.open, 1, 0.0)
    reader = SplitReader(connecting, pool, most_idle=0)
    try:
        yield from reader.read(split)
    finally:
        pool.close()
        reader.close()


@lru_cache(maxsize=16)
def _database(conninfo: str, process: int) -> Any:  # noqa: ANN401 - ADBC's database
    """Return ADBC's knowledge of a database's types, which holds no connection and takes seven times one's time.

    Kept for the life of the process: a Spark worker connects for each split that it reads.
    """
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(conninfo)


def _has_adbc() -> bool:
    return importlib.util.find_spec("adbc_driver_postgresql") is not None


def _import(state: SplitState) -> str:
    return f"set transaction snapshot '{state.snapshot}'"


def _settings(settings: dict[str, str]) -> str:
    parts = [f"set_config({sql.quote(name)}, {sql.quote(value)}, false)" for name, value in settings.items()]
    return "select " + ", ".join(parts)


def _execute(connection: Any, text: str) -> None:  # noqa: ANN401 - ADBC's connection
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


def _failure(error: Any) -> Exception:  # noqa: ANN401 - ADBC's error
    """Return the server's refusal, or the loss of the connection where it said nothing."""
    state = error.sqlstate
    if not state or state.startswith("57P0"):
        return ConnectionLostError(_said(error))
    return ServerError(state, _said(error))


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())


def _refused(error: Exception, state: SplitState, *, importing: bool = False) -> StructableError:
    table = state.spec.name
    if isinstance(error, ServerError):
        if importing and error.state in _GONE:
            return TransactionClosedError(
                f"the plan of this split of table {table!r} was closed, and its snapshot with it"
            )
        if not importing and error.state in STALE:
            return TransactionConflictError(f"table {table!r} was changed or dropped since the scan was planned")
    return translated(error, f"reading a split of table {table!r}")
