"""`PrefixTables`: creates, checks and drops the HBase tables of a prefix."""

from __future__ import annotations

from contextlib import suppress

from structable.backends.ordered.engine import SPACE_BYTES, SpaceTakenError
from structable.spi import DataCorruptionError, StorageUnavailableError, StoreNotFoundError, TransactionConflictError

from .layout import (
    CLOCK,
    FAMILY,
    FIRST_FORMAT,
    FORMAT,
    FORMAT_VERSION,
    GATE_FAMILY,
    GATE_LANES,
    MARKER,
    STATE,
    TICK,
    VALUE,
    Layout,
)
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

FIRST_TIMESTAMP = 1 << 52
"""A timestamp beyond every wall clock in milliseconds: a delete by hand, at HBase's own time, masks no version."""

_VERSIONED = Family("x")
_READ = {b"%d" % version for version in range(FIRST_FORMAT, FORMAT_VERSION + 1)}
_OLDER = {b"%d" % version for version in range(1, FIRST_FORMAT)}


class PrefixTables:
    """Makes the tables of a prefix."""

    def __init__(self, gateway: Gateway, layout: Layout) -> None:
        self._gateway = gateway
        self._layout = layout
        self._has_staging = False

    def prepare(self, *, create: bool = True) -> None:
        """Create the transaction table if it is missing, and check its format.

        Without `create`, a missing store is a `StoreNotFoundError`; one that another process is still creating counts
        as missing. A table of another format, or of another program, is a `DataCorruptionError`.
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
                    f"the HBase table {table} is not structable's: it has rows, but no format row; "
                    "choose another prefix"
                )
            if not create:
                raise self._missing()
            self._gateway.call(compare_and_put(table, FORMAT, STATE, None, b"%d" % FIRST_FORMAT))
            cells = self._gateway.call(get_row(table, FORMAT, [STATE]))
        found = cells[STATE][0]
        if found not in _READ:
            maker = (
                "it was made by an older one"
                if found in _OLDER
                else "it was made by a newer one, or is not structable's"
            )
            raise DataCorruptionError(
                f"the HBase table {table} has the format {found[:40]!r}; this version of structable reads "
                f"{FIRST_FORMAT} to {FORMAT_VERSION}: {maker}"
            )
        # A second process finds the counter. It orders versions, and is never dropped or set back.
        if not clock:
            if not create:
                raise self._missing()
            self._gateway.call(compare_and_put(table, CLOCK, TICK, None, FIRST_TIMESTAMP.to_bytes(8)))

    def format(self) -> int:
        """Return the format that the store has."""
        return int(self._gateway.call(get_row(self._layout.transactions, FORMAT, [STATE]))[STATE][0])

    def raise_format(self, version: int) -> None:
        """Raise the format to at least a version; older software then refuses the store. Idempotent."""
        while (old := self.format()) < version:
            call = compare_and_put(self._layout.transactions, FORMAT, STATE, b"%d" % old, b"%d" % version)
            self._gateway.call(call, retry=False)  # another process may have raised it first

    def _missing(self) -> StoreNotFoundError:
        return StoreNotFoundError(
            f"HBase has no store of the prefix {self._layout.prefix} (its table {self._layout.transactions}); connect "
            "without create=False or read_only=True to create it"
        )

    def _create(self, table: str, families: list[Family]) -> bool:
        """Create a table; False if it is there, made by another process or in an earlier attempt."""
        try:
            self._gateway.call(create_table(table, families))
        except TableExistsError:
            return False
        except ServerError as error:
            if "NamespaceNotFoundException" in error.message:
                namespace = self._layout.namespace
                raise StorageUnavailableError(
                    f"HBase has no namespace {namespace}; create it in its shell (create_namespace '{namespace}')"
                ) from error
            raise
        return True

    def create_space(self, space: bytes, *, feed: bool) -> None:
        table = self._layout.table(space)
        families = [_VERSIONED, Family("c", versions=1)] if feed else [_VERSIONED]
        if not self._create(table, families) and feed and not self._has_gate(table):
            raise SpaceTakenError(f"the HBase table {table} was made for rows, and cannot have a change feed")
        if self.has_rows(table):
            raise TransactionConflictError(
                f"the HBase table {table} has rows, but the catalog has no table of its number; if this error "
                "persists, drop it by hand"
            )

    def _has_gate(self, table: str) -> bool:
        try:
            self._gateway.call(get_row(table, GATE_LANES, [GATE_FAMILY]))
        except ServerError as error:
            if "NoSuchColumnFamily" in error.message:
                return False
            raise
        return True

    def has_rows(self, table: str) -> bool:
        """Return whether a table of a space has been written to.

        An intent in the marker's row does not count: another process is recording a table under its number, or died
        doing so, and the catalog decides.
        """
        pages = self._gateway.pages(table, b"", b"", [FAMILY], before=None, page_rows=2)
        return any(row != MARKER or VALUE in cells for page in pages for row, cells in page)

    def ensure_staging(self) -> str:
        if not self._has_staging:
            if self._layout.staging not in self._gateway.call(list_tables()):
                self._create(self._layout.staging, [_VERSIONED])
            self._has_staging = True
        return self._layout.staging

    def spaces(self) -> list[bytes]:
        """Return the spaces that have a table, sorted."""
        head = f"{self._layout.prefix}_"
        names = (name.removeprefix(head) for name in self._gateway.call(list_tables()) if name.startswith(head))
        numbers = (int(name) for name in names if name.isdecimal() and name == f"{int(name):08d}")
        return sorted(number.to_bytes(SPACE_BYTES) for number in numbers if number < 1 << 8 * SPACE_BYTES)

    def is_empty(self, table: str) -> bool:
        return not any(self._gateway.pages(table, b"", b"", [], before=None, page_rows=1))


def drop_table(gateway: Gateway, table: str) -> None:
    """Disable and delete an HBase table, if it exists."""
    with suppress(TableMissingError, TableDisabledError):  # another process is dropping it
        if gateway.call(is_enabled(table)):
            gateway.call(disable_table(table))
    try:
        gateway.call(delete_table(table))
    except TableMissingError:
        return
    except ServerError:
        if table in gateway.call(list_tables()):
            raise
