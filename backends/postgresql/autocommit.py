"""`AutoCommitPostgreSQLTable`: the auto-commit view, whose single operations are one statement each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from structable.spi import (
    FeedPosition,
    InvalidFieldError,
    Isolation,
    Key,
    RecordNotFoundError,
    Row,
    RowIterator,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableNotFoundError,
    Transaction,
    UnsupportedOperationError,
)
from structable.spi.authors import (
    Answer,
    AutoCommitTable,
    Effect,
    ListedRows,
    RangeWrite,
    RowMove,
    RowWrites,
    Scan,
    ScanRequest,
    Verb,
    check_channel,
    consumed,
    retry,
)

from .driver.errors import (
    STALE,
    BrokenConnectionError,
    ForeignSessionError,
    StatementRefusedError,
    translated,
    translating,
)
from .driver.signals import ServerSignals
from .driver.statement import Call, Values, require_sendable
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, lookup_call
from .sql.queries import MOST_FEW, few_rows, scan_query
from .transaction import PostgreSQLTransaction
from .txn.cursor_scan import ScanRows
from .txn.merges import SnapshotNeededError
from .txn.moves import plan_move
from .txn.one_row import PLANS, RowPlan, commit_alone
from .txn.store_context import StoreContext

Result = TypeVar("Result")


class AutoCommitPostgreSQLTable(AutoCommitTable):
    """The auto-commit view, with reads, small scans and writes of a row that are one statement each.

    Such a statement runs outside a transaction block; a write of one row is a transaction by itself.
    """

    def __init__(self, storage: Storage, parts: StoreContext, name: str) -> None:
        super().__init__(storage, name)
        self._parts = parts
        self._pool, self._catalog = parts.pool, parts.catalog
        self._binding()

    def _binding(self) -> TableBinding:
        name = self._name
        if not isinstance(name, str):
            raise TableNotFoundError(name)
        found = self._catalog.known(name)
        if found is not None:
            return found
        with self._pool.connection() as connection, translating("reading the catalog"):
            return self._catalog.lookup(connection.ask, name)

    def _write(self, writes: RowWrites) -> Answer | None:
        verb = writes.verb
        if writes.default is None and verb.name in PLANS and self._alone(verb, writes.rows[0]):
            return None
        known = self._catalog.known(self._name)
        if verb.effect is Effect.MERGE and known is not None and known.merges:
            with suppress(SnapshotNeededError):
                return self._once(lambda table: table._write(writes), waits=True)
        return self._once(lambda table: table._write(writes))

    def _move(self, move: RowMove) -> None:
        try:
            done = self._committed(lambda binding: plan_move(binding, move))
        except RecordNotFoundError as error:
            raise (move.expected[2] if move.expected else error) from None
        if not done:
            self._once(lambda table: table._move(move))

    def _write_range(self, write: RangeWrite) -> int:
        return self._once(lambda table: table._write_range(write))

    def _once(self, body: Callable[[StructuredTable], Result], *, waits: bool = False) -> Result:
        """Run a call in a transaction of its own."""
        return retry(self._storage, lambda: self._attempt(body, waits), writes=True)

    def _attempt(self, body: Callable[[StructuredTable], Result], waits: bool) -> Result:
        with PostgreSQLTransaction(
            self._parts, Isolation.SNAPSHOT, read_only=False, has_one_call=True, waits=waits
        ) as transaction:
            return body(transaction.table(self._name))

    def _alone(self, verb: Verb, given: object) -> bool:
        """Commit a write of one row, as `commit_alone` does; False if a transaction must try."""

        def plan(binding: TableBinding) -> RowPlan | None:
            known = given if binding.rules is None else binding.rules.alone(verb, given)
            return None if known is None else PLANS[verb.name](binding, known)

        return self._committed(plan)

    def _committed(self, make: Callable[[TableBinding], RowPlan | None]) -> bool:
        binding = self._catalog.known(self._name)
        if binding is None or binding.spec.keyless or binding.takes_input:
            return False
        try:
            plan = make(binding)
        except InvalidFieldError:
            return False  # the table may have changed
        if plan is None:
            return False
        done = retry(self._storage, lambda: commit_alone(self._parts, self._name, plan), writes=True)
        if done and binding.version.feed is not None:
            self._parts.feeds.used(self._name)
            self._parts.signals.send(binding.signals)
        return done

    def _owning(self, transaction: Transaction, rows: RowIterator) -> RowIterator:
        if not isinstance(rows, ScanRows):  # a rule computes fields of them
            return super()._owning(transaction, rows)
        rows.own()
        return rows

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        names = consumed(columns)
        binding = self._catalog.known(self._name)
        if binding is None or binding.spec.keyless or binding.computes:
            return super().read(key, names)
        try:
            shape = binding.shape_of(names)
            checked, pieces = binding.encoded_key(key)
        except InvalidFieldError:
            return super().read(key, names)  # the table may have changed
        found = self._at_once(lookup_call(binding, pieces, shape))
        if found is None:
            return super().read(key, names)
        return decode_row(found[0], checked, shape) if found else None

    def _scan(self, scan: Scan) -> RowIterator:
        binding, limit = self._catalog.known(self._name), scan.limit
        alone = scan.indexed is None and scan.limit_per_range is None and scan.ranges.__class__ is tuple
        if binding is not None and not binding.computes and alone and limit.__class__ is int and 0 < limit <= MOST_FEW:
            try:
                request = ScanRequest.checked(binding.spec, scan)
            except InvalidFieldError:
                pass  # the table may have changed
            else:
                query, values = scan_query(binding, request)
                is_small = query.by_index and limit <= few_rows(binding, request.columns)
                found = self._at_once(query.call(values)) if is_small else None
                if found is not None:
                    return ListedRows(list(build_rows(found, binding.shape_of(request.columns))))
        return super()._scan(scan)

    def _at_once(self, call: Call) -> list[Values] | None:
        """Return the rows of one statement, outside a transaction.

        None if that failed: a transaction looks the table up again, retries, and raises the error.
        """
        require_sendable(*call)
        pool = self._pool
        connection = pool.acquire()
        try:
            return connection.rows(connection.run(call))
        except ForeignSessionError as error:
            raise translated(error, "a read") from error
        except StatementRefusedError as error:
            if error.state in STALE:
                self._catalog.forget(self._name)
            elif translated(error, "a read").__class__ is not StorageUnavailableError:
                raise translated(error, "a read") from error
            return None
        except BrokenConnectionError:
            return None
        finally:
            pool.release(connection)


class AtOnce(Transaction):
    """The auto-commit views of a storage, for bodies with a single write. Threads may share it."""

    __slots__ = ("_signals", "_storage")

    def __init__(self, storage: Storage, signals: ServerSignals) -> None:
        self._storage = storage
        self._signals = signals

    def table(self, name: str) -> StructuredTable:
        return self._storage.table(name)

    def position(self, table: str) -> FeedPosition:
        raise UnsupportedOperationError(f"position({table!r}) of a single write; begin a transaction")

    def signal(self, channel: str) -> None:
        self._signals.send((check_channel(channel),))

    @property
    def closed(self) -> bool:
        return False

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass
