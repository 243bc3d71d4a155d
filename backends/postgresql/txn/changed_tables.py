"""Tables that have changed since a transaction's snapshot."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from structable.backends.postgresql.driver.errors import STALE, PostgreSQLError, StatementRefusedError, translated
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.schema.inspection import require_intact
from structable.spi import StructableError, TransactionConflictError
from structable.spi.authors import holds_values_of

from .bound_table import BoundTable, TableCall

_MISFITS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, struct.error)


class NewerTableError(Exception):
    """A table was looked up after the transaction's snapshot was taken, and has changed in between."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def changed_since(name: str) -> TransactionConflictError:
    """Return the error of a transaction that uses a table changed since its snapshot."""
    return TransactionConflictError(f"table {name!r} was changed or dropped since the transaction's snapshot")


def rebind(pool: ServerPool, catalog: Catalog, tables: Mapping[str, BoundTable], works: Iterable[TableCall]) -> None:
    """Look the tables of a transaction up again, and make its statements for them.

    Raises
    ------
    StructableError
        If the statements, or their results, no longer fit the tables.
    """
    try:
        for name, table in tables.items():
            catalog.forget(name)
            with pool.connection() as connection:
                found = catalog.lookup(connection.ask, name)
            same_rules = found.spec.rules == table.binding.spec.rules
            if not (
                same_rules and found.has_verbs_of(table.binding) and holds_values_of(found.spec, table.binding.spec)
            ):
                raise changed_since(name)  # verbs, keys or values mean something else
            table.binding = found
        for one in works:
            one.call = one.build(one.table.binding)
    except PostgreSQLError as error:
        raise translated(error, "reading the catalog") from error
    except StructableError:
        raise
    except _MISFITS as error:
        # The arguments were checked against another table of this name.
        names = ", ".join(repr(name) for name in tables)
        raise TransactionConflictError(
            f"{names}: the table was dropped and created with other fields: {error!r}"
        ) from error


def explained(
    pool: ServerPool, catalog: Catalog, tables: Mapping[str, BoundTable], error: Exception, what: str
) -> StructableError:
    """Return the error of a transaction for one of the server, which may be due to a changed table."""
    if not isinstance(error, StatementRefusedError) or error.state not in STALE:
        return translated(error, what)
    # Another version in the catalog is the reason; otherwise the table was altered outside structable.
    try:
        with pool.connection() as connection:
            for name, table in tables.items():
                known = table.binding.version
                if catalog.find(connection.ask, name) != known:
                    catalog.forget(name)
                    return changed_since(name)
            for table in tables.values():
                require_intact(connection.ask, table.binding.schema, table.binding.version)
    except StructableError as found:
        return found
    except PostgreSQLError:
        return translated(error, what)
    return translated(error, what)
