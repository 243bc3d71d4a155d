"""`RecordTable`: a record class, and the table whose rows are its instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from structable.datasets.errors import RecordTypeError, SchemaMissingError
from structable.spi import FieldType, Row, Storage, TableSpecification, Transaction

from .annotations import Record, fields_of
from .generated import Codec
from .records import Records

R = TypeVar("R", bound=Record)
_INTEGERS = (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG)
_FLOATS = (FieldType.FLOAT, FieldType.DOUBLE)
_MOST_DECODERS = 16


class RecordTable(Generic[R]):
    """A table of records; called with a transaction, or with a storage, it gives the records there.

    Parameters
    ----------
    record_type : type
        A subclass of `Record`.
    name : str
        The table's name.
    key : iterable of str
        The fields of the primary key, in key order; none may be optional or a document.
    indexes : iterable of str, optional
        Indexed fields.
    options : mapping of str to str, optional
        The table's options.

    Attributes
    ----------
    specification : TableSpecification
        The table that the class needs.

    Raises
    ------
    RecordTypeError
        If the class cannot be the record of a table; the message names class and field.
    InvalidSpecificationError
        If name, key, indexes or options break the rules of specifications.
    """

    def __init__(
        self,
        record_type: type[R],
        name: str,
        *,
        key: Iterable[str],
        indexes: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.type = record_type
        self.fields = fields_of(record_type)
        fields = [one.field for one in self.fields.values()]
        self.specification = TableSpecification(name, fields, key, indexes, options)
        self.codec = Codec(name, record_type, self.fields, self.specification.primary_key)
        for part in self.specification.primary_key:
            one = self.fields[part]
            if one.optional or part in self.codec.documents:
                kind = "a document" if part in self.codec.documents else "optional"
                raise RecordTypeError(f"{record_type.__name__}.{part} is a field of the key, and cannot be {kind}")
        self.decode: Callable[[Row], R] = self._decode_other
        """Returns the record of a row; fast while the row class is the same as in the last read."""
        self._decoders: dict[type[Row], Callable[[Row], R]] = {}
        self._fitting: TableSpecification | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.specification.name

    def named(self, name: str) -> RecordTable[R]:
        """Return the same table under another name."""
        spec = self.specification
        return RecordTable(self.type, name, key=spec.primary_key, indexes=spec.indexes, options=spec.options)

    def __call__(self, source: Transaction | Storage, *, checked: bool = False) -> Records[R]:
        """Return the records in a transaction, or in a storage, where each call is a transaction of its own.

        Parameters
        ----------
        checked : bool
            Whether the caller has already checked the table. Skips the check, which may cost a round trip.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """
        return Records(self, self.type, source, checked=checked)

    def check(self, specification: TableSpecification) -> list[str]:
        """Return the differences between a table and the needs of this class, a sentence each; empty if it fits.

        More fields and more indexes than needed, and wider numbers, fit.
        """
        wanted = self.specification
        found = [f"{wanted.name} lacks the field {name}" for name in self.fields if name not in specification]
        if specification.primary_key != wanted.primary_key:
            found.append(f"{wanted.name} has the key {specification.primary_key!r}; {wanted.primary_key!r} is needed")
        for field in wanted.fields:
            if field.name in specification and not _fits(specification, wanted, field.name):
                kind = specification.field(field.name).type_text
                found.append(f"{wanted.name}.{field.name} is of type {kind}; {field.type_text} is needed")
        lacking = [name for name in wanted.indexes if name not in specification.indexes]
        return found + [f"{wanted.name} lacks the index {name}" for name in lacking]

    def differences(self, specification: TableSpecification) -> list[str]:
        """Return the fields and indexes that a table lacks or that differ: "table.field", "index table.field"."""
        wanted = self.specification
        found = [
            f"{wanted.name}.{field.name}"
            for field in wanted.fields
            if field.name not in specification or not _fits(specification, wanted, field.name)
        ]
        if specification.primary_key != wanted.primary_key:
            found.append(f"{wanted.name}.primary_key")
        lacking = [name for name in wanted.indexes if name not in specification.indexes]
        return found + [f"index {wanted.name}.{name}" for name in lacking]

    def require(self, specification: TableSpecification) -> None:
        """Check that a table has every field of the class, once for each specification.

        Raises
        ------
        SchemaMissingError
            If it lacks a field, or has one of another type.
        """
        if specification is self._fitting:
            return
        problems = [one for one in self.differences(specification) if not one.startswith("index ")]
        if problems:
            raise SchemaMissingError([], problems)
        self._fitting = specification

    def _decode_other(self, row: Row) -> R:
        """Return the record of a row of another row class; `decode` expects that class from now on."""
        decode = self._decoders.get(type(row))
        if decode is None:
            decode = self.codec.decoder(type(row), tuple(row), self._decode_other)
            if len(self._decoders) >= _MOST_DECODERS:
                self._decoders.clear()
            self._decoders[type(row)] = decode
        self.decode = decode
        return decode(row)

    def __repr__(self) -> str:
        return f"RecordTable({self.type.__name__}, {self.name!r})"


def _fits(found: TableSpecification, wanted: TableSpecification, name: str) -> bool:
    one, other = found.field(name), wanted.field(name)
    for family in (_INTEGERS, _FLOATS):
        if one.type in family and other.type in family:
            return family.index(one.type) >= family.index(other.type)
    if one.type is FieldType.DECIMAL and other.type is FieldType.DECIMAL:
        return one.scale == other.scale and (one.precision or 0) >= (other.precision or 0)
    return one.type is other.type


class PrefixedTables:
    """Tables under the names that a prefix gives them; threads may share them."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._tables: dict[str, RecordTable[Any]] = {}

    def __getitem__(self, table: RecordTable[R]) -> RecordTable[R]:
        found = self._tables.get(table.name)
        if found is None:
            found = self._tables[table.name] = table.named(self.prefix + table.name)
        return found
