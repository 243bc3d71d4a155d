"""The calls of a gateway that the store uses. A call is only a description; `Gateway.call` and `flight` send it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .messages import cells, deleting, descriptor, found_rows, one_put, putting, putting_column, scan_of

ROWS_AT_ONCE = 500
"""The maximum number of rows of one call: more would gain nothing, and the gateway holds all of them in memory."""
_CALL_BYTES = 1 << 20
_KEYS_BYTES = 32 << 10

Cell = tuple[bytes, int]
"""A value and its timestamp."""

Cells = dict[bytes, Cell]
"""The newest cell of each existing column among those requested."""

FoundRow = tuple[bytes, Cells]
"""A row's key and its cells."""

Result_co = TypeVar("Result_co", covariant=True)
Written = TypeVar("Written")


@dataclass(slots=True)  # not frozen: every call of a gateway makes one, and that would take three times as long
class ThriftCall(Generic[Result_co]):
    """One request; the API and the arguments have their names of the IDL."""

    api: str
    arguments: Mapping[str, object]
    decode: Callable[[Any], Result_co]  # converts the reply's result to the call's
    repeatable: bool = True  # sending it twice has the effect of once: it is repeated after a lost answer
    reserve: int = 0  # bytes by which its frame may exceed the limit of the others


@dataclass(frozen=True, slots=True)
class Family:
    """A column family to create; cells never expire, blocks are cached, and Bloom filters are by row."""

    name: str  # without a colon
    versions: int = 2**31 - 1  # kept for each cell
    in_memory: bool = False  # blocks are evicted last


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a table; `end` is excluded."""

    start: bytes  # empty for the first region
    end: bytes  # empty for the last region
    server: str  # the host that serves it; empty if the region is offline


def _nothing(_reply: object) -> None:
    return None


def get_row(table: str, row: bytes, columns: Sequence[bytes]) -> ThriftCall[Cells]:
    """Get the newest cells of one row; empty if the row is absent.

    A column is b"family:qualifier", or b"family" for all of a family, here and below.
    """
    arguments = {"tableName": table, "row": row, "columns": columns}
    return ThriftCall("getRowWithColumns", arguments, cells)


def get_rows(
    table: str, rows: Sequence[bytes], columns: Sequence[bytes], before: int | None = None
) -> ThriftCall[list[FoundRow]]:
    """Get the newest cells of many rows; rows without cells are left out, and the others keep their order.

    Only cells with a timestamp smaller than `before` count.
    """
    arguments = {"tableName": table, "rows": rows, "columns": columns}
    if before is None:
        return ThriftCall("getRowsWithColumns", arguments, found_rows)
    return ThriftCall("getRowsWithColumnsTs", {**arguments, "timestamp": before}, found_rows)


def put_rows(table: str, rows: Mapping[bytes, Mapping[bytes, bytes]], timestamp: int | None = None) -> ThriftCall[None]:
    """Put cells, all at one timestamp, or at HBase's own time for None; not atomic across rows."""
    batches = [putting(row, cells) for row, cells in rows.items()]
    if timestamp is None:
        return ThriftCall("mutateRows", {"tableName": table, "rowBatches": batches}, _nothing)
    return ThriftCall("mutateRowsTs", {"tableName": table, "rowBatches": batches, "timestamp": timestamp}, _nothing)


def put_column(table: str, column: bytes, rows: Mapping[bytes, bytes], timestamp: int) -> Iterator[ThriftCall[None]]:
    """Put one cell of each row, all in one column and with one timestamp, in calls cut by `split_rows`."""
    each = len(column) + 64
    size = sum(map(len, rows)) + sum(map(len, rows.values())) + each * len(rows)
    parts: Iterable[Mapping[bytes, bytes]] = [rows] if rows else []
    if len(rows) > ROWS_AT_ONCE or size > _CALL_BYTES:
        parts = _cut(rows, lambda value: len(value) + each, ROWS_AT_ONCE, _CALL_BYTES)
    for part in parts:
        batches = putting_column(column, part)
        yield ThriftCall("mutateRowsTs", {"tableName": table, "rowBatches": batches, "timestamp": timestamp}, _nothing)


def put_then_delete(
    table: str,
    puts: Mapping[bytes, Mapping[bytes, bytes]],
    deletes: Mapping[bytes, Sequence[bytes]],
    timestamp: int,
) -> ThriftCall[None]:
    """Put cells at a timestamp, and then delete all versions of columns up to it.

    HBase executes all puts before the first delete; neither is atomic across rows. A row that fitted the frame of its
    intent fits this one, which has its key twice.
    """
    batches = [putting(row, cells) for row, cells in puts.items()]
    batches += [deleting(row, columns) for row, columns in deletes.items()]
    arguments = {"tableName": table, "rowBatches": batches, "timestamp": timestamp}
    return ThriftCall("mutateRowsTs", arguments, _nothing, reserve=_KEYS_BYTES)


def delete_columns(
    table: str, rows: Iterable[bytes], columns: Sequence[bytes], timestamp: int, limit_rows: int = ROWS_AT_ONCE
) -> list[ThriftCall[None]]:
    """Delete all versions of the same columns of each row up to a timestamp, in calls of at most `limit_rows` rows."""
    names = list(rows)
    return [
        put_then_delete(table, {}, dict.fromkeys(names[begin : begin + limit_rows], columns), timestamp)
        for begin in range(0, len(names), limit_rows)
    ]


def compare_and_put(table: str, row: bytes, column: bytes, expected: bytes | None, new: bytes) -> ThriftCall[bool]:
    """Put a cell if it has the expected value, or, for None, is absent; to HBase an empty value counts as absent.

    The call is never sent twice: after a lost answer, only reading the cell can reveal the outcome.
    """
    arguments = {"tableName": table, "row": row, "column": column, "mput": one_put(column, new)}
    if expected is not None:
        arguments["value"] = expected
    return ThriftCall("checkAndPut", arguments, bool, repeatable=False)


def increment(table: str, row: bytes, column: bytes, amount: int) -> ThriftCall[int]:
    """Add to a counter and get its new value; repeated after a lost answer, it may add twice."""
    return ThriftCall("atomicIncrement", {"tableName": table, "row": row, "column": column, "value": amount}, int)


def delete_row(table: str, row: bytes) -> ThriftCall[None]:
    """Delete a row."""
    return ThriftCall("deleteAllRow", {"tableName": table, "row": row}, _nothing)


def list_tables() -> ThriftCall[list[str]]:
    """Get the names of all tables that the gateway's user may see."""
    return ThriftCall("getTableNames", {}, lambda names: [name.decode() for name in names])


def create_table(table: str, families: Sequence[Family]) -> ThriftCall[None]:
    """Create a table; `TableExistsError` may be due to an earlier attempt whose answer was lost."""
    columns = [
        descriptor(
            name=f"{family.name}:",
            maxVersions=family.versions,
            inMemory=family.in_memory,
            bloomFilterType="ROW",
            blockCacheEnabled=True,
            timeToLive=-1,
        )
        for family in families
    ]
    return ThriftCall("createTable", {"tableName": table, "columnFamilies": columns}, _nothing)


def is_enabled(table: str) -> ThriftCall[bool]:
    """Get whether a table is enabled."""
    return ThriftCall("isTableEnabled", {"tableName": table}, bool)


def disable_table(table: str) -> ThriftCall[None]:
    """Disable a table; only a disabled table can be deleted."""
    return ThriftCall("disableTable", {"tableName": table}, _nothing)


def delete_table(table: str) -> ThriftCall[None]:
    """Delete a disabled table."""
    return ThriftCall("deleteTable", {"tableName": table}, _nothing)


def regions(table: str) -> ThriftCall[list[Region]]:
    """Get the regions of a table, in key order."""
    return ThriftCall("getTableRegions", {"tableName": table}, _regions)


def _regions(found: Sequence[Any]) -> list[Region]:
    return sorted(
        (Region(region.startKey or b"", region.endKey or b"", (region.serverName or b"").decode()) for region in found),
        key=lambda region: region.start,
    )


def open_scanner(table: str, **settings: object) -> ThriftCall[int]:
    """Open a scanner with the settings of the IDL's `TScan`; None leaves one out."""
    return ThriftCall("scannerOpenWithScan", {"tableName": table, "scan": scan_of(**settings)}, int, repeatable=False)


def next_rows(scanner: int, count: int) -> ThriftCall[list[FoundRow]]:
    """Get a scanner's next rows; fewer than `count` are the last."""
    return ThriftCall("scannerGetList", {"id": scanner, "nbRows": count}, found_rows, repeatable=False)


def close_scanner(scanner: int) -> ThriftCall[None]:
    """Close a scanner."""
    return ThriftCall("scannerClose", {"id": scanner}, _nothing, repeatable=False)


def split_rows(
    rows: Mapping[bytes, Mapping[bytes, bytes]], limit_rows: int = ROWS_AT_ONCE, limit_bytes: int = _CALL_BYTES
) -> Iterator[dict[bytes, Mapping[bytes, bytes]]]:
    """Split rows into parts for one call each, in order, by rows and bytes; a row beyond the limit is its own part."""
    return _cut(
        rows,
        lambda cells: 32 + sum(len(column) + len(value) + 32 for column, value in cells.items()),
        limit_rows,
        limit_bytes,
    )


def _cut(
    rows: Mapping[bytes, Written], size_of: Callable[[Written], int], limit_rows: int, limit_bytes: int
) -> Iterator[dict[bytes, Written]]:
    part: dict[bytes, Written] = {}
    size = 0
    for row, written in rows.items():
        added = len(row) + size_of(written)
        if part and (len(part) >= limit_rows or size + added > limit_bytes):
            yield part
            part, size = {}, 0
        part[row] = written
        size += added
    if part:
        yield part
