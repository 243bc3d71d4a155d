"""`Records`: typed operations on the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from structable.datasets.errors import AlreadyExistsError, NotFoundError
from structable.spi import (
    Filter,
    InvalidFieldError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    Storage,
    StructuredTable,
    Transaction,
    Value,
)

from .annotations import Record
from .cursors import Page, check_limit, decode_cursor, encode_cursor
from .record_iterator import RecordIterator
from .translation import translated_filter, translated_range

if TYPE_CHECKING:
    from .record_table import RecordTable

__all__ = ["Records"]

R = TypeVar("R", bound=Record)
Result = TypeVar("Result")

_ALL = Range()


class Records(Generic[R]):
    """The records of one table, in a transaction, or with each call a transaction of its own.

    Keys, filters and values are given as the record has them: enumerations and UUIDs included. `get`, `require` and
    `delete` take the key's fields as arguments, every other method one tuple in key order. Nothing is cached, tracked
    or written later. Every method may raise what `StructuredTable` raises, and

    - `SchemaMissingError`: the table lacks a field of the record class;
    - `RecordShapeError`: a row that is read does not fit the class;
    - `RecordTypeError`, `InvalidFieldError`, `DocumentError`: a record or a value does not fit; nothing is written.

    Attributes
    ----------
    table : StructuredTable
        The table, for what records do not offer.
    type : type
        The record class.
    """

    __slots__ = ("_codec", "_columns", "_decode", "_definition", "_row_type", "_storage", "table", "type")

    def __init__(self, definition: RecordTable[R], place: Transaction | Storage) -> None:
        self._definition = definition
        self._codec = definition.codec
        self._storage = place if isinstance(place, Storage) else None
        self.table: StructuredTable = place.table(definition.name)
        self.type = definition.type
        self._row_type: type[Row] | None = None
        self._columns: tuple[str, ...] | None = None
        self._decode: Callable[[Row], R] = self._first
        definition.require(self.table.specification)

    # Reading

    def get(self, *key: object) -> R | None:
        """Return the record of this key, or None."""
        row = self.table.read(self._key(key) if self._codec.coded_key else key)  # type: ignore[arg-type] # as in `_key`
        if row is None:
            return None
        return self._decode(row) if row.__class__ is self._row_type else self._first(row)

    def require(self, *key: object) -> R:
        """Return the record of this key.

        Raises
        ------
        NotFoundError
            If there is none.
        """
        encoded = self._key(key)
        row = self.table.read(encoded)
        if row is None:
            raise NotFoundError(self.table.specification.name, encoded)
        return self._record(row)

    def get_many(self, keys: Iterable[tuple[object, ...]]) -> list[R]:
        """Return the records of exactly these keys that exist, in key order, each once."""
        return [self._record(row) for row in self.table.multi_read([self._key(key) for key in keys])]

    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RecordIterator[R]:
        """Return the records of a key range, as `StructuredTable.scan` orders and limits them."""
        rows = self.table.scan(
            self._range(range), where=self._filter(where), order_by=order_by, reverse=reverse, limit=limit
        )
        return RecordIterator(rows, self._record)

    def find(
        self,
        field: str,
        value: object,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RecordIterator[R]:
        """Return the records whose indexed field equals `value` (None: is null), in key order.

        Raises
        ------
        InvalidFieldError
            If the field has no index.
        """
        rows = self.table.scan_index(
            field,
            self._codec.encode_value(field, value),
            range=self._range(range),
            where=self._filter(where),
            reverse=reverse,
            limit=limit,
        )
        return RecordIterator(rows, self._record)

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of records in the union of the ranges: all, if none is given."""
        translated = None if ranges is None else [self._range(one) for one in ranges]
        return self.table.count(translated, self._filter(where))

    def page(
        self,
        range: Range = _ALL,
        *,
        cursor: str | None = None,
        limit: int = 100,
        reverse: bool = False,
        where: Filter | None = None,
    ) -> Page[R]:
        """Return the first records of a range, or those behind a cursor, in key order.

        Paging is stable: a record present throughout is given once.

        Parameters
        ----------
        cursor : str, optional
            `Page.next` of the page before, called with the same range, filter and direction.
        limit : int
            1 to 1,000.

        Raises
        ------
        InvalidCursorError
            If the cursor is garbled, or of other pages.
        ValueError
            If the limit is out of its range.
        """
        check_limit(limit)
        within, kept = self._range(range), self._filter(where)
        spec = self.table.specification
        listing = repr((spec.name, "page", within, kept, reverse))
        if cursor is not None:
            last = decode_cursor(cursor, listing, spec.key_fields)
            if reverse:
                within = Range(within.begin, last, within.begin_inclusive, False)
            else:
                within = Range(last, within.end, False, within.end_inclusive)
        with self.table.scan(within, where=kept, reverse=reverse, limit=limit + 1) as rows:
            found = list(rows)
        items = [self._record(row) for row in found[:limit]]
        return Page(items, encode_cursor(listing, found[limit - 1].key) if len(found) > limit else None)

    # Writing

    def insert(self, record: R) -> None:
        """Put a new record.

        Raises
        ------
        AlreadyExistsError
            If a record of its key exists.
        """
        try:
            self.table.insert(self._codec.encode_record(record))
        except RecordExistsError as error:
            raise AlreadyExistsError(error.table, error.key) from None

    def put(self, record: R) -> None:
        """Make the row exactly the record, in the record's fields; other fields of a newer table keep their values.

        No merge engine acts.
        """
        row = self._codec.encode_record(record)
        if self._whole:
            self.table.replace(row)
        else:
            self.table.update(row, default={})

    def put_many(self, records: Iterable[R]) -> None:
        """`put` of all records, in their order; none of them if one is rejected."""
        rows = [self._codec.encode_record(record) for record in records]
        if self._whole:
            self.table.replace_many(rows)
        else:
            self.table.update_many(rows, default={})

    def change(self, key: tuple[object, ...], /, **changes: object) -> None:
        """Set the named fields of an existing record.

        Raises
        ------
        NotFoundError
            If there is no record of this key.
        InvalidFieldError
            If a name is no field of the class, or belongs to the key.
        """
        spec = self.table.specification
        for name in changes:
            if name in spec.primary_key:
                raise InvalidFieldError(spec.name, name, "it belongs to the key; put a new record and delete this one")
        row = {**self._key_row(key), **{name: self._codec.encode_field(name, value) for name, value in changes.items()}}
        try:
            self.table.update(row)
        except RecordNotFoundError as error:
            raise NotFoundError(error.table, error.key) from None

    def merge_document(self, key: tuple[object, ...], field: str, patch: Mapping[str, object]) -> None:
        """Change members of a stored document by a merge patch (RFC 7386), in one transaction.

        Members that the class does not know survive; None in the patch removes a member; a null counts as empty.

        Raises
        ------
        NotFoundError
            If there is no record of this key.
        InvalidFieldError
            If the field is not a document.
        DocumentError
            If the result does not fit the field's type.
        """
        document = self._codec.documents.get(field)
        if document is None:
            raise InvalidFieldError(self.table.specification.name, field, f"not a document of {self.type.__name__}")
        encoded = self._key(key)

        def merge(table: StructuredTable) -> None:
            row = table.read(encoded, [field])
            if row is None:
                raise NotFoundError(table.specification.name, encoded)
            stored = row[field]
            assert stored is None or isinstance(stored, str)
            table.update({**self._key_row(key), field: document.merge(stored, patch)})

        if self._storage is None:
            merge(self.table)
        else:
            name = self._definition.name
            self._storage.run(lambda transaction: merge(transaction.table(name)))

    def swap(self, key: tuple[object, ...], field: str, expected: object, value: object) -> bool:
        """Set the field to `value` if it equals `expected`, atomically, and return whether it did.

        An absent record and a null count as None, as in `StructuredTable.compare_and_swap`.
        """
        new = self._codec.encode_field(field, value)
        return self.table.compare_and_swap(self._key(key), field, self._codec.encode_value(field, expected), new)

    def increment(self, key: tuple[object, ...], field: str, amount: int = 1) -> None:
        """Add `amount` to an integer field; an absent record and a null count as 0.

        Two concurrent increments of one field may both commit, as `StructuredTable.increment` says.
        """
        self.table.increment(self._key(key), field, amount)

    def delete(self, *key: object) -> None:
        """Delete the record of this key; nothing is written if there is none."""
        self.table.delete(self._key(key))

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        """Delete the records of a range for which `where` is true, and return their number."""
        return self.table.delete_all(self._range(range), self._filter(where))

    # What the table keeps

    @property
    def _whole(self) -> bool:
        # `require` has found every field of the class in the table.
        return len(self.table.specification.fields) == len(self._codec.fields)

    def _record(self, row: Row) -> R:
        if row.__class__ is self._row_type:
            return self._decode(row)
        return self._first(row)

    def _first(self, row: Row) -> R:
        self._definition.require(self.table.specification)
        self._decode = self._definition.decoder(tuple(row))
        self._row_type = row.__class__
        return self._decode(row)

    def _key(self, key: tuple[object, ...]) -> tuple[Value, ...]:
        spec = self.table.specification
        if not isinstance(key, tuple):
            raise InvalidFieldError(spec.name, "key", f"{key!r} is not a tuple in key order")
        if self._codec.coded_key and len(key) == len(spec.primary_key):
            names = spec.primary_key
            return tuple(self._codec.encode_value(name, value) for name, value in zip(names, key, strict=True))
        return key  # type: ignore[return-value] # the store checks it

    def _key_row(self, key: tuple[object, ...]) -> dict[str, Value]:
        spec = self.table.specification
        encoded = self._key(key)
        if len(encoded) != len(spec.primary_key):
            raise InvalidFieldError(spec.name, "key", f"{key!r} must have the fields {', '.join(spec.primary_key)}")
        return dict(zip(spec.primary_key, encoded, strict=True))

    def _range(self, range: Range) -> Range:
        return translated_range(self._codec, self.table.specification.primary_key, range)

    def _filter(self, where: Filter | None) -> Filter | None:
        return None if where is None else translated_filter(self._codec, where)
