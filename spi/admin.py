"""`TableAdmin`: creation, change and removal of tables."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .specification import TableSpecification

__all__ = ["TableAdmin"]


class TableAdmin(ABC):
    """Creation, change and removal of tables. Each call is atomic, also between processes.

    A transaction that begins after a call returned sees its effect, in every process. A call that has to wait for open
    transactions waits at most `ddl_timeout` seconds, then raises `StorageUnavailableError` and has changed nothing.
    """

    @abstractmethod
    def create(self, spec: TableSpecification) -> None:
        """Create an empty table.

        Raises
        ------
        TableAlreadyExistsError
            If there is a table of this name.
        InvalidSpecificationError
            If there is a table whose name differs by case alone.
        """

    @abstractmethod
    def create_or_update(self, spec: TableSpecification) -> None:
        """Create the table, or add what it lacks: new fields outside the key, new indexes, wider integers and floats.

        Existing rows read null in new fields, and new indexes cover them. BYTE, SHORT, INT and LONG may become a later
        one of these, FLOAT may become DOUBLE. The order of fields is ignored.

        The table keeps what it has beyond the specification: fields outside the key, indexes, wider numbers. A call
        that adds nothing writes nothing and waits for no one, so a program of an earlier release starts beside a later
        one. Nothing is ever dropped.

        Raises
        ------
        SchemaIncompatibleError
            With every difference that is not allowed; nothing was changed.
        InvalidSpecificationError
            If there is a table whose name differs by case alone.
        """

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Tell whether there is a table of exactly this name."""

    @abstractmethod
    def get_specification(self, table: str) -> TableSpecification:
        """Return the table's specification.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        """

    @abstractmethod
    def list(self) -> list[str]:
        """Return the names of all tables, in code point order."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table and its rows; an absent table is not an error. A later table of the name is empty."""

    @abstractmethod
    def drop_index(self, table: str, field: str) -> None:
        """Remove the index of a field.

        Raises
        ------
        TableNotFoundError
            If there is no such table.
        InvalidFieldError
            If the field has no index.
        """
