"""The tables of the datasets in a store: made, and checked."""

from __future__ import annotations

from structable.spi import Storage, TableNotFoundError

from .errors import SchemaMissingError
from .system.context import PrefixedTables
from .tables import ALL_TABLES

__all__ = ["check_schema", "create_tables"]


def create_tables(storage: Storage, tables: PrefixedTables) -> None:
    """Make or extend every table; idempotent."""
    for table in ALL_TABLES:
        storage.admin.create_or_update(tables[table].specification)


def check_schema(storage: Storage, tables: PrefixedTables) -> None:
    """Check that the store has every table with its fields and indexes; more of them are accepted.

    Raises
    ------
    SchemaMissingError
        If it has not.
    """
    missing: list[str] = []
    differing: list[str] = []
    for table in ALL_TABLES:
        wanted = tables[table]
        try:
            found = storage.admin.get_specification(wanted.name)
        except TableNotFoundError:
            missing.append(wanted.name)
        else:
            differing += wanted.differences(found)
    if missing or differing:
        raise SchemaMissingError(missing, differing)
