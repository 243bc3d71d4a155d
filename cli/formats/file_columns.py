"""The columns that a file to import may have: the fields of its table, and in mode `changes` the kind of each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from structable.spi import (
    CHANGE_TYPE,
    FEED_COLUMNS,
    Field,
    InvalidFieldError,
    RowKind,
    TableSpecification,
    Value,
    WriteMode,
)
from structable.spi.authors import Merger, check_kind, check_row, not_a_field

FEED_FIELDS = tuple(
    make(name) for make, name in zip((Field.string, Field.long, Field.timestamp), FEED_COLUMNS, strict=True)
)
"""The columns of a change feed in addition to the table's columns."""


class NamedFields(Protocol):
    """Fields by name, such as a specification's."""

    @property
    def field_names(self) -> tuple[str, ...]: ...

    def field(self, name: str) -> Field: ...

    def __contains__(self, name: object) -> bool: ...


def there_are(cells: int) -> str:
    """Return the number of cells of a row as text, for messages."""
    return "there is 1 cell" if cells == 1 else f"there are {cells} cells"


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns of a file that are imported, and their fields.

    Parameters
    ----------
    rename : mapping of str to str
        The fields of some columns.
    only : tuple of str
        The fields to import; empty for all.
    skips_unknown : bool
        Whether columns that are not fields are left out.
    names : tuple of str, optional
        The columns of a file that does not name them; empty for the default.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    skips_unknown: bool = False
    names: tuple[str, ...] | None = None

    def named(self, cells: int, usual: Sequence[str]) -> Sequence[str] | None:
        """Return the names of a file's columns, given the number of cells in a row; None if the file names them.

        Raises
        ------
        ValueError
            If the number of names differs from the number of cells.
        """
        if self.names is None:
            return None
        names = self.names or usual
        if cells and len(names) != cells:
            raise ValueError(
                f"{there_are(cells)}, and {len(names)} columns: {', '.join(names)}; --columns names those of the file"
            )
        return names

    def growing(self, columns: Sequence[str]) -> ColumnChoice:
        """Return the choice for the first columns of a file."""
        rename = {column: name for column, name in self.rename.items() if column in columns}
        return ColumnChoice(rename, self.only, self.skips_unknown or bool(self.only))

    def kept(self, found: Sequence[str | None], *, growing: bool) -> list[str | None]:
        """Return the fields of columns, None for columns that are left out; raises ValueError for wrong columns."""
        for one in self.only:
            if one not in found and not growing:
                raise ValueError(f"--columns names {one!r}, which is not one of its columns")
        kept: list[str | None] = []
        for name in found:
            wanted = name if not self.only or name in self.only else None
            if wanted is not None and wanted in kept:
                raise ValueError(f"the column {name!r} appears twice")
            kept.append(wanted)
        return kept


class Columns(NamedFields, Protocol):
    """The columns of a file, as its source needs them."""

    def named(self, cells: int) -> Sequence[str] | None:
        """Return the names of `cells` columns; None if the file names them; ValueError if the number is wrong."""

    def matched(self, columns: Sequence[str], *, growing: bool = False) -> list[str | None]:
        """Return the field of each column, None for a column that is left out; raises ValueError for wrong columns.

        With `growing`, further columns may follow.
        """

    def missing(self, names: Collection[str]) -> str:
        """Return the fault if required columns are missing; empty if none is."""

    def may_be_null(self, name: str) -> bool:
        """Return whether a field may be null."""

    @property
    def key(self) -> tuple[str, ...]:
        """The fields of the primary key."""

    def check(self, row: Mapping[str, Value]) -> None:
        """Check a row as the store does."""

    @property
    def fills_up(self) -> bool:
        """Whether a field that a row does not name becomes null."""


class FileColumns:
    """The columns of one import."""

    def __init__(self, spec: TableSpecification, mode: WriteMode, choice: ColumnChoice | None = None) -> None:
        self.spec = spec
        self.mode = mode
        self._choice = choice or ColumnChoice()
        self.with_kinds = mode is WriteMode.CHANGES
        self._feed = {field.name: field for field in FEED_FIELDS} if self.with_kinds else {}
        self._merger = Merger(spec) if self.with_kinds and not spec.keyless else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """All columns that are allowed."""
        return (*self.spec.field_names, *self._feed)

    def field(self, name: str) -> Field:
        """Return the field of a column, with its type."""
        return self._feed.get(name) or self.spec.field(name)

    def __contains__(self, name: object) -> bool:
        return name in self.spec or name in self._feed

    @property
    def fills_up(self) -> bool:
        return self.mode in (WriteMode.INSERT, WriteMode.REPLACE, WriteMode.OVERWRITE)

    @property
    def key(self) -> tuple[str, ...]:
        return self.spec.primary_key

    def may_be_null(self, name: str) -> bool:
        return name in self.spec and name not in self.spec.primary_key

    def named(self, cells: int) -> Sequence[str] | None:
        return self._choice.named(cells, self.field_names)

    def matched(self, columns: Sequence[str], *, growing: bool = False) -> list[str | None]:
        from structable.spi.arrow import matched_fields

        choice = self._choice.growing(columns) if growing else self._choice
        found = matched_fields(columns, self.field_names, choice.rename)
        for column, name in zip(columns, found, strict=True):
            if name is None and columns.count(column) > 1:
                raise ValueError(f"the column {column!r} appears twice")
            if name is None and not (choice.skips_unknown or choice.only):
                remedy = "--rename COLUMN=FIELD names its field, --skip-unknown leaves it out"
                raise ValueError(f"the column {column[:50]!r} {not_a_field(self.field_names)}; {remedy}")
        if not any(found) and not growing:
            raise ValueError(f"none of its columns is a field; the fields are {', '.join(self.field_names)}")
        return choice.kept(found, growing=growing)

    def missing(self, names: Collection[str]) -> str:
        """Return the text of the error for a missing column; empty if none is missing."""
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
