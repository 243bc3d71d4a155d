"""`Tables`: HBase's tables of a prefix, made, checked and dropped."""

from __future__ import annotations

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi.errors import (
    DataCorruptionError,
    StorageUnavailableError,
    StoreNotFoundError,
    TransactionConflictError,
)

from .layout import CLOCK, FAMILY, FORMAT, FORMAT_VERSION, MARKER, STATE, TICK, VALUE, Layout
from .thrift.errors import ServerError, TableDisabledError, TableExistsError, TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import (
    Cells,
    Family,
    compare_and_put,
    create_table,
    delete_table,
    disable_table,
    get_row,
    get_rows,
    is_enabled,
    list_tables,
)

__all__ = ["FIRST_TIMESTAMP", "Tables", "drop_table"]

FIRST_TIMESTAMP = 1 << 52
"""Beyond every wall clock in milliseconds: what an operator deletes by hand, at HBase's own time, masks no version."""

_VERSIONED = Family("x")
_OLDER = {b"%d" % version for version in range(1, FORMAT_VERSION)}


class Tables:
    """Makes the tables of a prefix.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    """

    def __init__(self, gateway: Gateway, layout: Layout) -> None:
        self._gateway = gateway
        self._layout = layout
        self._has_staging = False

    def prepare(self, *, create: bool = True) -> None:
        """Make the transaction table where it is missing, and check its format.

        Parameters
        ----------
        create : bool
            Whether anything may be made. A store that is still being made by another process is not there yet.

        Raises
        ------
        StoreNotFoundError
            If it is missing, and must not be made.
        DataCorruptionError
            If a version made it that keeps things otherwise, or something else did.
        """
        table = self._layout.transactions
        clock: Cells = {}
        try:
            rows = dict(self._gateway.call(get_rows(table, [FORMAT, CLOCK], [STATE, TICK])))
            cells, clock = rows.get(FORMAT, {}), rows.get(CLOCK, {})
        except TableMissingError:
            if not create:
                raise self._missing() from None
            self._create(table, [Family("c", versions=1, in_memory=True), _VERSIONED])
            cells = {}
        except ServerError as error:
            if "NoSuchColumnFamily" in error.message:
                raise DataCorruptionError(
                    f"the HBase table {table} is not structable's: it lacks the families c and x; choose another prefix"
                ) from error
            raise
        if STATE not in cells:
            if clock:
                raise DataCorruptionError(f"the HBase table {table} has a clock but no format: it is damaged")
            if not self.is_empty(table) and not self._gateway.call(get_row(table, FORMAT, [STATE])):
                raise DataCorruptionError(
                    f"the HBase table {table} is not structable's: it has rows, but not the one of their format; "
                    "choose another prefix"
                )
            if not create:
                raise self._missing()
            self._gateway.call(compare_and_put(table, FORMAT, STATE, None, b"%d" % FORMAT_VERSION))
            cells = self._gateway.call(get_row(table, FORMAT, [STATE]))
        found = cells[STATE][0]
        if found != b"%d" % FORMAT_VERSION:
            maker = "an older one made it" if found in _OLDER else "a newer one made it, or it is not structable's"
            raise DataCorruptionError(
                f"the HBase table {table} has the format {found[:40]!r}; this version of structable reads "
                f"{FORMAT_VERSION}: {maker}"
            )
        # Whoever comes second finds it there. It is never dropped and never set back: versions are ordered by it.
        if not clock:
            if not create:
                raise self._missing()
            self._gateway.call(compare_and_put(table, CLOCK, TICK, None, FIRST_TIMESTAMP.to_bytes(8)))

    def _missing(self) -> StoreNotFoundError:
        return StoreNotFoundError(
            f"HBase has no store of the prefix {self._layout.prefix} (its table {self._layout.transactions}); connect "
            "without create=False or read_only=True to make it"
        )

    def _create(self, table: str, families: list[Family]) -> None:
        try:
            self._gateway.call(create_table(table, families))
        except TableExistsError:
            return  # somebody else, or an earlier attempt, was faster
        except ServerError as error:
            if "NamespaceNotFoundException" in error.message:
                namespace = self._layout.namespace
                raise StorageUnavailableError(
                    f"HBase has no namespace {namespace}: create it in its shell (create_namespace '{namespace}')"
                ) from error
            raise

    def create_space(self, space: bytes) -> None:
        """Make the table of a space; see `Engine.create_space`."""
        table = self._layout.table(space)
        self._create(table, [_VERSIONED])
        if self.has_rows(table):
            raise TransactionConflictError(
                f"the HBase table {table} has rows, and the catalog has no table of its number: if that stays so, drop "
                "it by hand"
            )

    def has_rows(self, table: str) -> bool:
        """Tell whether a table of a space has been written to.

        Others may be about to record a table of theirs under its number, or have died over it: then there is an intent
        in the marker's row, and the catalog tells who is first.
        """
        pages = self._gateway.pages(table, b"", b"", [FAMILY], before=None, page_rows=2)
        return any(row != MARKER or VALUE in cells for page in pages for row, cells in page)

    def ensure_staging(self) -> str:
        """Make the table of staged rows where it is missing, and return its name."""
        if not self._has_staging:
            if self._layout.staging not in self._gateway.call(list_tables()):
                self._create(self._layout.staging, [_VERSIONED])
            self._has_staging = True
        return self._layout.staging

    def spaces(self) -> list[bytes]:
        """Return the spaces that have a table, in their order."""
        head = f"{self._layout.prefix}_"
        names = (name.removeprefix(head) for name in self._gateway.call(list_tables()) if name.startswith(head))
        numbers = (int(name) for name in names if name.isdecimal() and name == f"{int(name):08d}")
        return sorted(number.to_bytes(SPACE_BYTES) for number in numbers if number < 1 << 8 * SPACE_BYTES)

    def is_empty(self, table: str) -> bool:
        """Tell whether a table has no cell at all."""
        return not any(self._gateway.pages(table, b"", b"", [], before=None, page_rows=1))


def drop_table(gateway: Gateway, table: str) -> None:
    """Disable and delete an HBase table; absent: nothing happens."""
    try:
        if gateway.call(is_enabled(table)):
            gateway.call(disable_table(table))
    except (TableMissingError, TableDisabledError):
        pass  # somebody else is at it
    try:
        gateway.call(delete_table(table))
    except TableMissingError:
        return
    except ServerError:
        if table in gateway.call(list_tables()):
            raise
