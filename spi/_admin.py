"""`TableAdmin`: creation, change and removal of tables."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ._errors import UnsupportedOperationError
from ._field_rules import FieldRule
from ._specification import TableSpecification

Progress: TypeAlias = Callable[[int, int | None], None]
"""Takes the number of rows done so far, and the number of all rows, or None where that is not known."""


class TableAdmin(ABC):
    """Creation, change and removal of tables. Each call is atomic, also between processes.

    A transaction that begins after a call returned sees its effect, in every process. A call that has to wait for open
    transactions waits at most `ddl_timeout` seconds, then raises `StorageUnavailableError` and has changed nothing.

    A migration passes the number of its `revision` where it takes a field or an index away for good: from then on a
    `create_or_update` that names this field or index is refused, unless that call passes a revision, too.
    """

    @abstractmethod
    def create(self, spec: TableSpecification) -> None:
        """Create an empty table.

        Raises
        ------
        TableAlreadyExistsError
            If there is a table of this name, even a retired one.
        InvalidSpecificationError
            If there is a table whose name differs by case alone, or a rule is not `ready`.
        """

    @abstractmethod
    def create_or_update(
        self, spec: TableSpecification, *, progress: Progress | None = None, revision: int | None = None
    ) -> None:
        """Create the table, or add missing parts: new fields outside the key, new indexes, wider integers and floats.

        Existing rows read null in new fields, and new indexes cover them. BYTE, SHORT, INT and LONG may become a later
        one of these, FLOAT may become DOUBLE. The order of fields is ignored.

        The table keeps what it has beyond the specification: fields outside the key, indexes, wider numbers; and its
        rules, if the specification has none. A call that adds nothing writes nothing and waits for nothing, so a
        program of an earlier release can start while a later one runs. Nothing is ever dropped.

        Parameters
        ----------
        spec : TableSpecification
            The fields, indexes and rules that the table must have.
        progress : callable, optional
            Called with the number of rows that the new indexes cover so far, and the number of all rows or None.
        revision : int, optional
            The revision that adds fields and indexes, also those which another one took away.

        Raises
        ------
        SchemaIncompatibleError
            With every difference that is not allowed; nothing was changed. Rules other than the table's count as a
            difference, and so do a retired table, and a field or an index that a revision took away.
        InvalidSpecificationError
            If there is a table whose name differs by case alone.
        """

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Return whether there is a table of exactly this name that is not retired."""

    @abstractmethod
    def get_specification(self, table: str) -> TableSpecification:
        """Return the table's specification, even if it is retired.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """

    @abstractmethod
    def list(self) -> builtins.list[str]:
        """Return the names of all tables but retired ones, in code point order."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table and its rows; an absent table is not an error. A later table of the name is empty."""

    @abstractmethod
    def drop_index(self, table: str, field: str, *, revision: int | None = None) -> None:
        """Remove the index of a field.

        Parameters
        ----------
        table, field : str
            The table and the field.
        revision : int, optional
            The revision that takes the index away for good.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        InvalidFieldError
            If the field has no index.
        """

    def set_rules(
        self,
        table: str,
        rules: Iterable[FieldRule],
        *,
        expected: Iterable[FieldRule] | None = None,
        revision: int | None = None,
    ) -> None:
        """Replace the rules of a table. A retired table is one with the rule `Retired`.

        Once the call has returned, no write that was made under the older rules can be committed. Equal rules change
        nothing.

        Parameters
        ----------
        table : str
            The table.
        rules : iterable of Derived, Renamed and Retired
            All its rules.
        expected : iterable of Derived, Renamed and Retired, optional
            The rules that the table must have now. A caller that read the rules, and changes some of them, passes what
            it read: a change that another caller made since is not undone.
        revision : int, optional
            The revision that retires the table.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        InvalidSpecificationError
            If the rules do not fit the table.
        SchemaIncompatibleError
            If the table has neither the `expected` rules nor `rules`; nothing was changed.
        UnsupportedOperationError
            If tables of the store have no rules, which is the default.
        """
        raise UnsupportedOperationError("this store does not support rules of fields")

    def drop_field(self, table: str, field: str, *, revision: int | None = None) -> None:
        """Remove a field and its values; a field that is added later under the name is null in every row.

        Parameters
        ----------
        table, field : str
            The table and the field.
        revision : int, optional
            The revision that takes the field away for good.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        InvalidFieldError
            If it has no such field.
        SchemaIncompatibleError
            If the field is of the key, is indexed, or is named by a rule or an option.
        UnsupportedOperationError
            If the store drops no fields, which is the default.
        """
        raise UnsupportedOperationError("this store does not support dropping fields")
