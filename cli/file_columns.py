"""The columns that a file to import may have: the fields of its table, and in mode changes the kind of each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from structable.spi import Field, InvalidFieldError, RowKind, TableSpecification, Value, WriteMode
from structable.spi.changes import CHANGE_TYPE
from structable.spi.merging import Merger
from structable.spi.rules.keyless import check_kind
from structable.spi.rules.rows import check_row

__all__ = ["FileColumns", "NamedFields"]

_FEED_FIELDS = (Field.string(CHANGE_TYPE), Field.long("_commit_version"), Field.timestamp("_commit_timestamp"))


class NamedFields(Protocol):
    """Fields by name, such as those of a specification."""

    @property
    def field_names(self) -> tuple[str, ...]: ...

    def field(self, name: str) -> Field: ...

    def __contains__(self, name: object) -> bool: ...


class FileColumns:
    """The columns of one import."""

    def __init__(self, spec: TableSpecification, mode: WriteMode) -> None:
        self.spec = spec
        self.with_kinds = mode is WriteMode.CHANGES
        self._feed = {field.name: field for field in _FEED_FIELDS} if self.with_kinds else {}
        self._merger = Merger(spec) if self.with_kinds and not spec.keyless else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """All columns that are allowed."""
        return (*self.spec.field_names, *self._feed)

    def field(self, name: str) -> Field:
        """Return the type of a column."""
        return self._feed.get(name) or self.spec.field(name)

    def __contains__(self, name: object) -> bool:
        return name in self.spec or name in self._feed

    def of_feed(self, name: str) -> bool:
        """Tell whether a column is one of changes, which is no field of the table."""
        return name in self._feed

    def missing(self, names: Collection[str]) -> str:
        """Return what the columns of a file lack; nothing if they lack nothing."""
        if not self.with_kinds or CHANGE_TYPE in names:
            return ""
        kinds = ", ".join(kind.value for kind in RowKind)
        words = ", ".join(kind.change_type for kind in RowKind)
        return f"--mode changes needs a column {CHANGE_TYPE} with the kind of each row: {kinds} (or {words})"

    def check(self, row: Mapping[str, Value]) -> None:
        """Check a row as the store does.

        Raises
        ------
        InvalidFieldError, UnsupportedOperationError
            As `Storage.stage` does.
        """
        if not self.with_kinds:
            check_row(self.spec, row)
            return
        try:
            kind = RowKind.of(row.get(CHANGE_TYPE))
        except ValueError as error:
            raise InvalidFieldError(self.spec.name, CHANGE_TYPE, str(error)) from None
        check_kind(self.spec, kind)
        checked = check_row(self.spec, {name: value for name, value in row.items() if name not in self._feed})
        if self._merger is not None:
            self._merger.refuse(kind, checked)
