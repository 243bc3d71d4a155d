"""`StructuredTable`: the operations on one table. Every rule here is one test of the conformance suite."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping

from ._changes import Change, RowKind, UpdateMessage
from ._filters import Filter
from ._frames import Frames
from ._operations import (
    APPLY_CHANGES,
    COMPARE_AND_SWAP,
    COMPARE_AND_SWAP_ABSENT,
    DELETE,
    DELETE_MANY,
    INCREMENT,
    INCREMENT_MANY,
    INSERT,
    INSERT_MANY,
    REPLACE,
    REPLACE_MANY,
    UPDATE,
    UPDATE_MANY,
    UPSERT,
    UPSERT_MANY,
    Answer,
    Lookup,
    RangeWrite,
    RowMove,
    RowWrites,
    Scan,
    Verb,
    consumed,
)
from ._ranges import Range
from ._rows import Row
from ._rules.changes import check_changes
from ._scans import RowIterator, ScanExplanation
from ._specification import TableSpecification
from ._values import Key, Value

_ALL = Range()


class StructuredTable(Frames):
    """One table, inside a transaction or as an auto-commit view (each call is then a transaction of its own).

    A key is a mapping of all key fields, or a tuple in key order. Iterables of rows and keys are consumed once, before
    anything is done. Wrong arguments raise when the method is called, never at the first row, and a call that raises
    has no effect. Every method may raise

    - `InvalidFieldError`: an argument names an unknown field, or holds a value that does not fit;
    - `FieldSizeLimitError`: a key or indexed value over 2,000 bytes, both together over 2,500, a row over 8 MiB;
    - `UnsupportedOperationError`: a write under `read_only=True`;
    - `TransactionClosedError`: the transaction has ended;
    - `TransactionConflictError`, `StorageUnavailableError`: the transaction can only be left.

    Each method passes a value of `operations`, made of its arguments as given, to a method that a backend implements.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def specification(self) -> TableSpecification:
        """The table's schema as of the transaction's snapshot."""

    @property
    def auto_commit(self) -> bool:
        """Whether each call is a transaction of its own, as in the view `Storage.table`; threads may share it then."""
        return False

    def upsert(self, row: Mapping[str, Value]) -> None:
        """Insert the row, or change the fields it names and keep the others; a merge engine merges it instead."""
        self._write(RowWrites(UPSERT, (row,)))

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`upsert` of all rows, in their order; all or nothing."""
        self._write_many(UPSERT_MANY, rows)

    def replace(self, row: Mapping[str, Value]) -> None:
        """Make the row exactly this: fields that it does not name become null."""
        self._write(RowWrites(REPLACE, (row,)))

    def replace_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`replace` of all rows, in their order; all or nothing."""
        self._write_many(REPLACE_MANY, rows)

    def insert(self, row: Mapping[str, Value]) -> None:
        """Put a new row.

        Raises
        ------
        RecordExistsError
            If a row of this key exists.
        """
        self._write(RowWrites(INSERT, (row,)))

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`insert` of all rows, in their order; all or nothing.

        Raises
        ------
        RecordExistsError
            If a row of one of the keys exists, or a key comes twice.
        """
        self._write_many(INSERT_MANY, rows)

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        """Merge changes into the table, in their order, as its merge engine says; all or nothing.

        +I and +U add the row as `upsert` does, -U and -D retract it: without a merge engine they delete the row of the
        key, if there is one. In a table without a key, +I and +U put one row, and -U and -D take one equal row away, if
        there is one.

        Parameters
        ----------
        changes : iterable of Change, or of (kind, row)
            The kind is a `RowKind`, or its text in either notation. A retract names the key, and other fields as far as
            the merge engine needs them; in a table without a key, all fields that are not null.

        Raises
        ------
        InvalidFieldError
            If an element is not a change, its kind is unknown, a row does not fit, or a result overflows; an overflow
            is raised now, at a later call of the transaction, or at the commit.
        UnsupportedOperationError
            If the merge engine refuses a retract, the table only takes +I, or the store has no table types.
        """
        self._write_many(APPLY_CHANGES, changes)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        """Change the named fields of an existing row; if it is absent, put `default` and apply the change to it.

        Parameters
        ----------
        row : mapping
            The key and the fields to change.
        default : mapping, optional
            A row to start from; it may leave the key out, and must not name another one.

        Raises
        ------
        RecordNotFoundError
            If the row is absent and there is no default.
        """
        self._write(RowWrites(UPDATE, (row,), default))

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        """`update` of all rows, in their order; an absent row without a default is skipped. All or nothing.

        Later updates see what earlier ones left.

        Parameters
        ----------
        updates : iterable of mapping or UpdateMessage
            The key and the fields to change, each; the default of a message takes precedence over `default`.
        default : mapping, optional
            The row to start from where there is none; it may leave the key out, and must not name another one.

        Returns
        -------
        list of tuple
            The skipped keys, each once, in the order of their first skip. Without updates the store is not asked.
        """
        self._admit(UPDATE_MANY.name)
        given = consumed(updates)
        if isinstance(given, list) and not given:
            return []
        return self._write(RowWrites(UPDATE_MANY, given, default)) or []  # type: ignore[arg-type]  # or rejected

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        """Return the row of this key, or None.

        Parameters
        ----------
        key : tuple or mapping
            The whole primary key.
        columns : iterable of str, optional
            The columns to return; key fields are always among them. All, if not given; an empty list is an error.
        """
        found = self._lookup(Lookup("read", (key,), consumed(columns)))
        return found[0] if found else None

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        """Return the existing rows of exactly these keys, in key order, each once.

        Keys without a row are left out, so rows need not line up with keys: pair them by `Row.key`.
        """
        return self._lookup(Lookup("multi_read", consumed(keys), consumed(columns)))

    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        """Return the rows of a key range.

        Parameters
        ----------
        range : Range
            The interval of keys.
        where : Filter, optional
            Only rows for which it is true; null is unknown, hence not true.
        columns : iterable of str, optional
            The columns to return; key fields are always among them.
        order_by : str, optional
            A key field or an indexed field: nulls first, ties by primary key. Default is key order.
        reverse : bool
            Return the exact reverse, ties included.
        limit : int, optional
            The maximum number of rows; 0 returns none.

        Returns
        -------
        RowIterator
            The rows of the transaction's snapshot and of its own writes up to this call.
        """
        return self._scanned(Scan((range,), where, consumed(columns), order_by, reverse, limit))

    def multi_scan(
        self,
        ranges: Iterable[Range],
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        limit_per_range: int | None = None,
    ) -> RowIterator:
        """Return the rows of several ranges, as `scan` returns the rows of one: each row once, one order, one limit.

        Parameters
        ----------
        limit_per_range : int, optional
            Keep at most this many rows of each range, the first in the requested order for which `where` is true. A row
            of two ranges counts in each, and is returned once. `limit` applies to the result.
        """
        names = consumed(columns)
        return self._scanned(Scan(consumed(ranges), where, names, order_by, reverse, limit, limit_per_range))

    def scan_index(
        self,
        field: str,
        value: Value,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        """Return the rows whose indexed field equals `value` (None: is null), in key order unless `order_by` is given.

        Raises
        ------
        InvalidFieldError
            If the field has no index.
        """
        return self._scanned(Scan((range,), where, consumed(columns), order_by, reverse, limit, indexed=(field, value)))

    def explain(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> ScanExplanation:
        """Return how `scan` with these arguments would run, without running it.

        It is the plan for committed rows, with neither numbers nor times; own writes are merged into any path.
        """
        return self._explain(Scan((range,), where, consumed(columns), order_by, reverse, limit))

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of distinct rows in the union of the ranges: all, if none is given; 0 for an empty list."""
        wanted = (_ALL,) if ranges is None else (ranges,) if isinstance(ranges, Range) else consumed(ranges)
        return self._count(Scan(wanted, where))

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        """Set the field to `value` if it equals `expected`, atomically, and return whether it did.

        An absent row and an unset field count as None; `expected=None` on an absent row creates it, also with
        `value=None`. NaN equals NaN.

        Raises
        ------
        InvalidFieldError
            If `field` belongs to the primary key.
        """
        verb = COMPARE_AND_SWAP_ABSENT if expected is None else COMPARE_AND_SWAP
        return not self._write(RowWrites(verb, ((key, field, expected, value),)))

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        """Add `amount` to an integer field; an absent row and a null count as 0.

        Two concurrent increments of one field may both commit; against any other write of the row an increment
        conflicts. Because increments need not conflict, a transaction that increments and reads the field does not own
        the number that it reads: another may read the same. To draw numbers, read the field and write it by `upsert` or
        `compare_and_swap` in `Storage.run`, or use SERIALIZABLE.

        Raises
        ------
        InvalidFieldError
            If the field is not an integer field or is part of the key; on overflow, now or at the commit.
        """
        self._write(RowWrites(INCREMENT, ((key, field, amount),)))

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        """`increment` of all keys, fields and amounts, in their order; all or nothing."""
        self._write_many(INCREMENT_MANY, increments)

    def delete(self, key: Key) -> None:
        """Delete the row of this key; nothing is written if there is none."""
        self._write(RowWrites(DELETE, (key,)))

    def delete_many(self, keys: Iterable[Key]) -> None:
        """`delete` of all keys, in their order; all or nothing."""
        self._write_many(DELETE_MANY, keys)

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        """Delete the rows of a range for which `where` is true, and return their number."""
        return self._write_range(RangeWrite("delete_all", range, None, where))

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        """Change the named fields of the rows of a range for which `where` is true, and return their number.

        Raises
        ------
        InvalidFieldError
            If `changes` names a key field, or is not a mapping.
        """
        if changes is None:  # which would stand for a removal
            check_changes(self.specification, changes)
        return self._write_range(RangeWrite("update_all", range, changes, where))

    def _scanned(self, scan: Scan) -> RowIterator:
        rows = self._scan(scan)
        rows._origin = (self, scan)
        return rows

    def _write_many(self, verb: Verb, rows: Iterable[object]) -> None:
        self._admit(verb.name)
        self._write(RowWrites(verb, consumed(rows)))  # type: ignore[arg-type]  # rejected unless it is a sequence

    def _move(self, move: RowMove) -> None:
        """Replace rows by rows of other keys, all or none."""
        move.check(self._lookup)
        self.upsert_many(move.whole(self.specification, self._lookup))
        self.delete_many(move.keys)

    # The methods that a backend implements. They check their arguments, against the schema that the operation meets.

    def _admit(self, operation: str) -> None:
        """Raise if the table refuses a bulk verb whatever its rows are, before they are consumed."""
        return None

    def _stored(self) -> StructuredTable:
        """Return the table with its stored fields alone, as if it had no rules; itself, if it has none."""
        return self

    @abstractmethod
    def _lookup(self, lookup: Lookup) -> list[Row]:
        """Return the existing rows of the keys, in key order, each once."""

    @abstractmethod
    def _scan(self, scan: Scan) -> RowIterator:
        """Return the rows of the ranges, as `multi_scan` does."""

    @abstractmethod
    def _explain(self, scan: Scan) -> ScanExplanation:
        """Return how a scan of one range would run."""

    @abstractmethod
    def _count(self, scan: Scan) -> int:
        """Return the number of rows of the ranges."""

    @abstractmethod
    def _write(self, writes: RowWrites) -> Answer | None:
        """Do all writes, as `outcome.Outcomes` defines, or none if one is rejected; return the keys left out, if any.

        A write whose answer is not needed at once may be done later, by the commit at the latest.
        """

    @abstractmethod
    def _write_range(self, write: RangeWrite) -> int:
        """Write the rows of a range, and return their number."""
