"""`AutoCommitOrderedTable`: the auto-commit view, whose single reads and writes need no transaction's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NoReturn, TypeAlias

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import (
    InvalidFieldError,
    Key,
    Row,
    RowIterator,
    StorageUnavailableError,
    Transaction,
    Transactional,
    Value,
)
from structable.spi.authors import UPSERT, Answer, AutoCommitTable, RowRules, RowWrites, may_be_too_large, retry

from .codec.row_patching import RowPatch
from .codec.source import NewerLayoutError
from .engine import Engine, EngineSnapshot, SchemaChangedError, WriteSet
from .scan.execution import ScanRows
from .schema.binding import TableBinding
from .schema.catalog import Catalog
from .transaction import OrderedTransaction, bound_table

_Written: TypeAlias = tuple[WriteSet | None, Answer | None]
"""The writes of a call, if any, and its answer."""


class _OneCall(TransactionLifecycle):
    """The transaction of one auto-commit call: the call itself commits, and errors are raised unchanged."""

    def fail(self, error: Exception) -> NoReturn:
        raise error

    def commit(self) -> None:
        return None

    def _end(self) -> None:
        return None


_ONE_CALL = _OneCall()


class AutoCommitOrderedTable(AutoCommitTable):
    """The auto-commit view, with a read that needs no snapshot, and writes that need no transaction's objects.

    These are writes of one row to a table whose commit adds nothing to a row.
    """

    def __init__(self, storage: Transactional, engine: Engine, catalog: Catalog, name: str) -> None:
        super().__init__(storage, name)
        self._engine = engine
        self._catalog = catalog
        self._state = self._refreshed()

    def _refreshed(self) -> tuple[int, TableBinding]:
        def found(snapshot: EngineSnapshot) -> tuple[int, TableBinding]:
            binding = self._catalog.table(snapshot, self._name)
            return snapshot.epoch, binding

        self._state = self._engine.look(found)
        return self._state

    def _owning(self, transaction: Transaction, rows: RowIterator) -> RowIterator:
        assert isinstance(transaction, OrderedTransaction)
        if not isinstance(rows, ScanRows):  # a rule computes fields of them
            return super()._owning(transaction, rows)
        rows.own(transaction)
        return rows

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        engine = self._engine
        epoch, binding = self._state
        if columns is not None:
            return super().read(key, columns)
        try:
            if engine.epoch != epoch:
                epoch, binding = self._refreshed()
            raw_key = binding.encode_tuple(key)
            if raw_key is None:
                return super().read(key)
            raw = engine.get(raw_key)
            if raw is None or engine.traits.epoch_lags:
                # The table may have moved, and its old rows may be deleted. A row that was found is still valid,
                # unless the cached schema was out of date before the call.
                if engine.epoch != epoch:
                    return super().read(key)
                if raw is None:
                    return None
            return binding.row_of(raw, key)
        except (SchemaChangedError, NewerLayoutError, StorageUnavailableError):
            # The slow path reads the catalog again, retries and reports.
            return super().read(key)

    def upsert(self, row: Mapping[str, Value]) -> None:
        epoch, binding = self._state
        raw_key = raw = patch = None
        full = row
        if not binding.has_type and self._runs_alone(binding):
            if binding.rules is not None:
                full = _completed(binding.rules, row)
            encoded = binding.encode_full(full)
            if encoded is not None:
                raw_key, raw = encoded
            elif (patch := binding.patches.of(full)) is not None:
                raw_key = patch.key(full)
        if raw_key is None or not retry(
            self._storage,
            partial(self._alone, epoch, partial(_upserted, binding, raw_key, raw, patch, full)),
            writes=True,
        ):
            super().upsert(row)

    def _write(self, writes: RowWrites) -> Answer | None:
        engine = self._engine
        epoch, binding = self._state
        if writes.rows.__class__ is tuple and binding.rules is None and self._runs_alone(binding):
            done = retry(
                self._storage, partial(self._alone, epoch, partial(_written, engine, binding, writes)), writes=True
            )
            if done is not None:
                return done[1]
        return super()._write(writes)

    def _runs_alone(self, binding: TableBinding) -> bool:
        engine = self._engine
        return binding.bare and not (engine.closed or engine.traits.epoch_lags or may_be_too_large(1))

    def _alone(self, epoch: int, body: Callable[[EngineSnapshot], _Written]) -> _Written | None:
        """Commit the writes that `body` returns for a snapshot, and return them; None if the table was replaced."""
        engine = self._engine
        snapshot = engine.begin(False)
        try:
            if snapshot.epoch != epoch:
                self._state = self._refreshed()
                return None
            written = body(snapshot)
            if written[0] is not None:
                engine.commit(snapshot, written[0])
        except SchemaChangedError:
            return None
        finally:
            snapshot.close()
        return written


def _completed(rules: RowRules, row: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return a row with the fields that rules add; a value that no short path accepts, if the row must be checked."""
    try:
        full = rules.alone(UPSERT, row)
    except InvalidFieldError:  # the table may have changed
        full = None
    return full if isinstance(full, dict) else _NO_ROW


_NO_ROW: Mapping[str, Value] = {}


def _upserted(
    binding: TableBinding,
    raw_key: bytes,
    raw: bytes | None,
    patch: RowPatch | None,
    row: Mapping[str, Value],
    snapshot: EngineSnapshot,
) -> _Written:
    new = binding.patched(patch, raw_key, row, snapshot.get(raw_key)) if raw is None else raw
    return WriteSet({raw_key: new}, {}, {}, None, {binding.schema.space}, set(), {}), None


def _written(engine: Engine, binding: TableBinding, writes: RowWrites, snapshot: EngineSnapshot) -> _Written:
    table = bound_table(_ONE_CALL, None, binding, snapshot, engine)
    answer = table._write(writes)
    if not table.writes and not table.increments:
        return None, answer
    return WriteSet(table.writes, table.increments, {}, None, {binding.schema.space}, set(), {}), answer
