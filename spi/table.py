"""`StructuredTable`: the operations on one table. Every rule here is one test of the conformance suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from .changes import Change, RowKind
from .errors import RecordExistsError, UnsupportedOperationError
from .filters import Filter
from .ranges import Range
from .rows import Row
from .rules.arguments import check_many
from .rules.changes import check_increments, check_updates, incremented
from .rules.keyless import keyless_refusal
from .rules.rows import check_key, check_row, check_row_size
from .scans import RowIterator, ScanExplanation
from .specification import TableSpecification
from .updates import UpdateMessage
from .values import Key, Value

__all__ = ["StructuredTable"]

_ALL = Range()


class StructuredTable(ABC):
    """One table, inside a transaction or as an auto-commit view (each call is then a transaction of its own).

    A key is a mapping of all key fields, or a tuple in key order. Iterables of rows and keys are consumed once, before
    anything is done. Wrong arguments raise when the method is called, never at the first row, and a call that raises
    has no effect. Every method may raise

    - `InvalidFieldError`: an argument names an unknown field, or holds a value that does not fit;
    - `FieldSizeLimitError`: a key or indexed value over 2,000 bytes, both together over 2,500, a row over 8 MiB;
    - `UnsupportedOperationError`: a write under `read_only=True`;
    - `TransactionClosedError`: the transaction has ended;
    - `TransactionConflictError`, `StorageUnavailableError`: the transaction can only be left.
    """

    @property
    @abstractmethod
    def specification(self) -> TableSpecification:
        """The table's schema as of the transaction's snapshot."""

    @property
    def auto_commit(self) -> bool:
        """Whether each call is a transaction of its own, as in the view `Storage.table`; threads may share it then."""
        return False

    @abstractmethod
    def upsert(self, row: Mapping[str, Value]) -> None:
        """Insert the row, or change the fields it names and keep the others; a merge engine merges it instead."""

    @abstractmethod
    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`upsert` of all rows, in their order; none of them if one is rejected."""

    @abstractmethod
    def replace(self, row: Mapping[str, Value]) -> None:
        """Make the row exactly this: fields that it does not name become null."""

    def replace_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`replace` of all rows, in their order; none of them if one is rejected.

        A store overrides this if it has a shorter way.
        """
        spec = self.specification
        checked = [check_row(spec, row) for row in check_many(spec, "rows", rows)]
        if not spec.table_options.merges:
            # Without a merge engine, an upsert of all fields is a replacement, and has a shorter way in every store.
            self.upsert_many([{**dict.fromkeys(spec.field_names), **row} for row in checked])
            return
        for row in checked:
            self.replace(row)

    @abstractmethod
    def insert(self, row: Mapping[str, Value]) -> None:
        """Put a new row.

        Raises
        ------
        RecordExistsError
            If a row of this key exists.
        """

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """`insert` of all rows, in their order; none of them if one is rejected.

        A store overrides this if it has a shorter way than one call after the other.

        Raises
        ------
        RecordExistsError
            If a row of one of the keys exists, or a key comes twice.
        """
        spec = self.specification
        checked = [check_row(spec, row) for row in check_many(spec, "rows", rows)]
        if not spec.keyless:
            keys = [tuple(row[name] for name in spec.primary_key) for row in checked]
            taken = {row.key for row in self.multi_read(keys)}
            for key in keys:
                if key in taken:
                    raise RecordExistsError(spec.name, key)
                taken.add(key)
        for row in checked:
            self.insert(row)

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        """Merge changes into the table, in their order, as its merge engine says; none of them if one is rejected.

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
            If an element is no change or its kind is none, if a row does not fit, or a result overflows; an overflow is
            raised now, at a later call of the transaction, or at the commit.
        UnsupportedOperationError
            If the merge engine refuses a retract, the table only takes +I, or the store has no table types.
        """
        raise UnsupportedOperationError(
            f"this store does not support apply_changes (table {self.specification.name!r})"
        )

    @abstractmethod
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

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        """`update` of all rows, in their order; an absent row without a default is skipped. None if one is rejected.

        Later updates see what earlier ones left. A store overrides this if it has a shorter way.

        Parameters
        ----------
        updates : iterable of mapping or UpdateMessage
            The key and the fields to change, each; the default of a message goes before `default`.
        default : mapping, optional
            The row to start from where there is none; it may leave the key out, and must not name another one.

        Returns
        -------
        list of tuple
            The keys of which an update was skipped, each once, in the order of their first skip. An empty list, without
            asking the store, for no updates.
        """
        given = list(updates) if isinstance(updates, Iterable) and not isinstance(updates, str | bytes) else updates
        if given == []:
            return []
        spec = self.specification
        if spec.keyless:
            raise keyless_refusal(spec, "update_many")
        checked = check_updates(spec, given, default)
        self.upsert_many([])  # refused by what is read-only, also if every row is absent
        keys = [tuple(row[name] for name in spec.primary_key) for row, _ in checked]
        rows: dict[tuple[Value, ...], Mapping[str, Value]] = {row.key: row for row in self.multi_read(keys)}
        changed: dict[tuple[Value, ...], dict[str, Value]] = {}
        missing: dict[tuple[Value, ...], None] = {}
        for key, (row, start) in zip(keys, checked, strict=True):
            before = changed.get(key, rows.get(key, start))
            if before is None:
                missing[key] = None
            else:
                changed[key] = {**before, **row}
                check_row_size(spec, changed[key])
        for whole in changed.values():
            self.replace(whole)
        return list(missing)

    @abstractmethod
    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        """Return the row of this key, or None.

        Parameters
        ----------
        key : tuple or mapping
            The whole primary key.
        columns : iterable of str, optional
            The columns to return; key fields are always among them. All, if not given; an empty list is an error.
        """

    @abstractmethod
    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        """Return the existing rows of exactly these keys, in key order, each once.

        Keys without a row are left out, so rows need not line up with keys: pair them by `Row.key`.
        """

    @abstractmethod
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
            Only rows of which it is true; null is unknown, hence not true.
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
            Of the transaction's snapshot and its own writes up to this call.
        """

    @abstractmethod
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
        """Return the union of the ranges as `scan` does one: each row once, one order, one limit.

        Parameters
        ----------
        limit_per_range : int, optional
            Keep at most this many rows of each range, the first in the requested order for which `where` is true. A row
            of two ranges counts in each, and is returned once. `limit` applies to the result.
        """

    @abstractmethod
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
        """Return the rows whose indexed field equals `value` (None: is null), in key order without `order_by`.

        Raises
        ------
        InvalidFieldError
            If the field has no index.
        """

    @abstractmethod
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

        It is the current plan for the committed rows: it contains neither the number of rows nor the time of the scan,
        and leaves out a transaction's own writes, which are merged into any path.
        """

    @abstractmethod
    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of distinct rows in the union of the ranges: all, if none is given; 0 for an empty list."""

    @abstractmethod
    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        """Set the field to `value` if it equals `expected`, atomically, and return whether it did.

        An absent row and an unset field count as None; `expected=None` on an absent row creates it, also with
        `value=None`. NaN equals NaN.

        Raises
        ------
        InvalidFieldError
            If `field` belongs to the primary key.
        """

    @abstractmethod
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

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        """`increment` of all keys, fields and amounts, in their order; none of them if one is rejected.

        A store overrides this if it has a shorter way than one call after the other, which must leave increments blind:
        this one reads the rows first, to find an overflow before anything is written.
        """
        spec = self.specification
        checked = check_increments(spec, increments)
        rows = {row.key: row for row in self.multi_read([key for key, _, _ in checked])}
        totals: dict[tuple[tuple[Value, ...], str], Value] = {}
        for key, field, amount in checked:
            before = totals.get((key, field.name), rows[key][field.name] if key in rows else None)
            totals[key, field.name] = incremented(spec.name, field, before, amount)
        for key, field, amount in checked:
            self.increment(key, field.name, amount)

    @abstractmethod
    def delete(self, key: Key) -> None:
        """Delete the row of this key; nothing is written if there is none."""

    def delete_many(self, keys: Iterable[Key]) -> None:
        """`delete` of all keys, in their order; none of them if one is rejected.

        A store overrides this if it has a shorter way than one call after the other.
        """
        spec = self.specification
        for key in [check_key(spec, key) for key in check_many(spec, "keys", keys)]:
            self.delete(key)

    @abstractmethod
    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        """Delete the rows of a range for which `where` is true, and return their number."""

    @abstractmethod
    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        """Change the named fields of the rows of a range for which `where` is true, and return their number.

        Raises
        ------
        InvalidFieldError
            If `changes` names a key field.
        """
