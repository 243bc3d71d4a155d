"""`Records`: typed operations on the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

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
    TableSpecification,
    Transaction,
    Value,
)

from .annotations import Record
from .cursors import Page, check_limit, decode_cursor, encode_cursor
from .generated import Codec
from .reading import RecordIterator, translated_filter, translated_range

R = TypeVar("R", bound=Record)
Result = TypeVar("Result")

_ALL = Range()


class RecordDefinition(Protocol[R]):
    """What records need of their `RecordTable`."""

    codec: Codec
    decode: Callable[[Row], R]
    specification: TableSpecification

    @property
    def name(self) -> str: ...

    def require(self, specification: TableSpecification) -> None: ...


class Records(Generic[R]):
    """The records of one table, in a transaction, or with each call a transaction of its own.

    Keys, filters and values are given as the record has them: enumerations and UUIDs included. `get`, `require` and
    `delete` take the key's fields as arguments, every other method one tuple in key order. Nothing is cached, tracked
    or written later. Every method may raise the errors of `StructuredTable`, and

    - `SchemaMissingError`: the table lacks a field of the record class;
    - `RecordShapeError`: a row that is read does not fit the class;
    - `RecordTypeError`, `InvalidFieldError`, `DocumentError`: a record or a value does not fit; nothing is written.

    Attributes
    ----------
    table : StructuredTable
        The table itself, for operations that records do not offer.
    type : type
        The record class.
    """

    __slots__ = ("_codec", "_definition", "_is_plain", "_storage", "_unchecked", "table", "type")

    def __init__(
        self,
        definition: RecordDefinition[R],
        record_type: type[R],
        source: Transaction | Storage,
        *,
        checked: bool = False,
    ) -> None:
        self._definition = definition
        self._codec = definition.codec
        self._is_plain = not self._codec.coded_key
        self._storage = source if isinstance(source, Storage) else None
        self._unchecked = not checked
        self.table: StructuredTable = source.table(definition.name)
        self.type = record_type

    def get(self, *key: object) -> R | None:
        """Return the record of this key, or None."""
        # The table is checked after the first read: a check before it would cost a round trip of its own.
        try:
            row = self.table.read(key if self._is_plain else self._codec.encode_key(key))  # type: ignore[arg-type] # the table checks it
        except InvalidFieldError:
            self._check()  # as in `_read`, whose two calls would cost 0.2 us
            raise
        if self._unchecked:
            self._check()
        return None if row is None else self._definition.decode(row)

    def require(self, *key: object) -> R:
        """Return the record of this key.

        Raises
        ------
        NotFoundError
            If there is none.
        """
        found = self.get(*key)
        if found is None:
            raise NotFoundError(self._definition.name, self._codec.encode_key(key))
        return found

    def get_many(self, keys: Iterable[tuple[object, ...]]) -> list[R]:
        """Return the records of exactly these keys that exist, in key order, each once."""
        encoded = [self._codec.encode_key(key) for key in keys]
        return list(map(self._definition.decode, self._read(lambda: self.table.multi_read(encoded))))

    def scan(
        self,
        range: Range | Iterable[Range] = _ALL,
        *,
        where: Filter | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RecordIterator[R]:
        """Return the records of a key range, or the union of several, as `StructuredTable.scan` orders and limits."""
        within, kept = self._ranges(range), self._filter(where)
        rows = self._read(
            lambda: self.table.multi_scan(within, where=kept, order_by=order_by, reverse=reverse, limit=limit)
        )
        return RecordIterator(rows, self._definition.decode)

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
        stored, within, kept = self._codec.encode_value(field, value), self._range(range), self._filter(where)
        rows = self._read(
            lambda: self.table.scan_index(field, stored, range=within, where=kept, reverse=reverse, limit=limit)
        )
        return RecordIterator(rows, self._definition.decode)

    def count(self, ranges: Range | Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """Return the number of records of a key range, or in the union of several: all, if none is given."""
        within, kept = None if ranges is None else self._ranges(ranges), self._filter(where)
        return self._read(lambda: self.table.count(within, kept))

    def page(
        self,
        range: Range = _ALL,
        *,
        cursor: str | None = None,
        limit: int = 100,
        reverse: bool = False,
        where: Filter | None = None,
    ) -> Page[R]:
        """Return the first records of a range, or the records behind a cursor, in key order.

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
            If the cursor is garbled, or belongs to another listing.
        ValueError
            If the limit is out of its range.
        """
        check_limit(limit)
        within, kept = self._range(range), self._filter(where)
        listing = repr((self._definition.name, "page", within, kept, reverse))
        if cursor is not None:
            last = decode_cursor(cursor, listing, self._definition.specification.key_fields)
            if reverse:
                within = Range(within.begin, last, within.begin_inclusive, False)
            else:
                within = Range(last, within.end, False, within.end_inclusive)
        with self._read(lambda: self.table.scan(within, where=kept, reverse=reverse, limit=limit + 1)) as rows:
            found = list(rows)
        items = list(map(self._definition.decode, found[:limit]))
        return Page(items, encode_cursor(listing, found[limit - 1].key) if len(found) > limit else None)

    def insert(self, record: R) -> None:
        """Put a new record.

        Raises
        ------
        AlreadyExistsError
            If a record of its key exists.
        """
        row = self._codec.encode(record)
        self._check()
        try:
            self.table.insert(row)
        except RecordExistsError as error:
            raise AlreadyExistsError(error.table, error.key) from None

    def put(self, record: R) -> None:
        """Make the row exactly the record, in the record's fields; other fields of a newer table keep their values.

        No merge engine acts.
        """
        row = self._codec.encode(record)
        self._write(lambda table: table.replace(row) if self._is_whole(table) else table.update(row, default={}))

    def put_many(self, records: Iterable[R]) -> None:
        """Like `put` for every record, in order; all or nothing."""
        rows = list(map(self._codec.encode, records))
        self._write(
            lambda table: table.replace_many(rows) if self._is_whole(table) else table.update_many(rows, default={})
        )

    def change(self, key: tuple[object, ...], /, **changes: object) -> None:
        """Set the named fields of an existing record.

        Raises
        ------
        NotFoundError
            If there is no record of this key.
        InvalidFieldError
            If a name is not a field of the class, or belongs to the key.
        """
        codec = self._codec
        for name in changes:
            if name in codec.key:
                raise InvalidFieldError(
                    codec.table, name, "it belongs to the key; put a new record and delete this one"
                )
        row = {**self._key_row(key), **{name: codec.encode_field(name, value) for name, value in changes.items()}}
        self._check()
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
            raise InvalidFieldError(self._definition.name, field, f"not a document of {self.type.__name__}")
        encoded = self._codec.encode_key(key)

        def merge(table: StructuredTable) -> None:
            row = table.read(encoded, [field])
            if row is None:
                raise NotFoundError(self._definition.name, encoded)
            stored = row[field]
            assert stored is None or isinstance(stored, str)
            table.update({**self._key_row(key), field: document.merge(stored, patch)})

        self._write(merge)

    def swap(self, key: tuple[object, ...], field: str, expected: object, value: object) -> bool:
        """Set the field to `value` if it equals `expected`, atomically, and return whether it did.

        An absent record and a null count as None, as in `StructuredTable.compare_and_swap`, even where the record
        reads as the field's default. Documents are compared by value, not by text; a document with members that
        the class does not know equals no value.
        """
        codec = self._codec
        encoded, old, new = codec.encode_key(key), codec.encode_value(field, expected), codec.encode_field(field, value)
        document = None if expected is None else codec.documents.get(field)
        self._check()
        while not self.table.compare_and_swap(encoded, field, old, new):
            row = None if document is None else self.table.read(encoded, [field])
            old = None if row is None else row[field]
            if document is None or not isinstance(old, str) or not document.equals(old, expected):
                return False
        return True

    def increment(self, key: tuple[object, ...], field: str, amount: int = 1) -> None:
        """Add `amount` to an integer field; an absent record and a null count as 0.

        Two concurrent increments of one field may both commit, as `StructuredTable.increment` says.
        """
        self._check()
        self.table.increment(self._codec.encode_key(key), field, amount)

    def delete(self, *key: object) -> None:
        """Delete the record of this key; nothing is written if there is none."""
        self._check()
        self.table.delete(self._codec.encode_key(key))

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        """Delete the records of a range for which `where` is true, and return their number."""
        self._check()
        return self.table.delete_all(self._range(range), self._filter(where))

    def _check(self) -> None:
        """Check, once, that the table has the fields of the class."""
        if self._unchecked:
            self._definition.require(self.table.specification)
            self._unchecked = False

    def _read(self, read: Callable[[], Result]) -> Result:
        try:
            found = read()
        except InvalidFieldError:
            self._check()  # the field may be one that the table lacks
            raise
        self._check()
        return found

    def _write(self, write: Callable[[StructuredTable], object]) -> None:
        """Write in one transaction."""
        self._check()
        if self._storage is None:
            write(self.table)
        else:
            name = self._definition.name
            self._storage.run(lambda transaction: write(transaction.table(name)))

    def _is_whole(self, table: StructuredTable) -> bool:
        """Return whether the class has every field of the table."""
        specification = table.specification
        self._definition.require(specification)
        return len(specification.fields) == len(self._codec.fields)

    def _key_row(self, key: tuple[object, ...]) -> dict[str, Value]:
        names, encoded = self._codec.key, self._codec.encode_key(key)
        if len(encoded) != len(names):
            raise InvalidFieldError(self._definition.name, "key", f"{key!r} must have the fields {', '.join(names)}")
        return dict(zip(names, encoded, strict=True))

    def _ranges(self, ranges: Range | Iterable[Range]) -> list[Range]:
        if isinstance(ranges, Range) or not isinstance(ranges, Iterable):
            return [self._range(ranges)]
        return [self._range(one) for one in ranges]

    def _range(self, range: Range) -> Range:
        return translated_range(self._codec, range)

    def _filter(self, where: Filter | None) -> Filter | None:
        return None if where is None else translated_filter(self._codec, where)
