"""Tables without a key: the calls that they accept, and the hidden key under which a store keeps their rows."""

from __future__ import annotations

import decimal
import hashlib
import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter

from structable.spi._bulk import WriteMode
from structable.spi._changes import RowKind
from structable.spi._errors import UnsupportedOperationError
from structable.spi._specification import TableSpecification
from structable.spi._values import Value

DIGEST_BYTES = 16
_KEYLESS = frozenset({"insert", "insert_many", "apply_changes", "delete_all"})
"""The verbs of tables without a key, apart from scans."""
_CLOCK = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")


def keyless_refusal(spec: TableSpecification, operation: str) -> UnsupportedOperationError:
    """Return the error of an operation that a table without a key does not have."""
    kind = spec.table_options.write_mode
    if spec.table_options.log:
        return UnsupportedOperationError(
            f"table {spec.name!r} has no {operation}: a log keeps no rows: read its changes"
        )
    return UnsupportedOperationError(
        f"table {spec.name!r} has no primary key (write-mode={kind}): it has no {operation}"
    )


def check_verb(spec: TableSpecification, operation: str) -> None:
    """Check that a table has an operation.

    Raises
    ------
    UnsupportedOperationError
        If the table has no key, and the operation needs one, or removes rows of one that is append-only.
    """
    if spec.keyless and (operation not in _KEYLESS or (operation == "delete_all" and spec.table_options.append_only)):
        raise keyless_refusal(spec, operation)


def check_rows_kept(spec: TableSpecification) -> None:
    """Check that a table keeps rows to scan.

    Raises
    ------
    UnsupportedOperationError
        If the table is a log.
    """
    if spec.table_options.log:
        raise keyless_refusal(spec, "scan")


def check_kind(spec: TableSpecification, kind: RowKind) -> None:
    """Check that a table takes rows of a kind.

    Raises
    ------
    UnsupportedOperationError
        If rows of the table can only be added, and the kind is not +I.
    """
    if spec.table_options.append_only and kind is not RowKind.INSERT:
        what = "a log" if spec.table_options.log else "an append-only table"
        raise UnsupportedOperationError(f"table {spec.name!r} is {what}: it takes no {kind}, only +I")


def check_mode(spec: TableSpecification, mode: WriteMode) -> None:
    """Check that a table takes write jobs of a mode.

    Raises
    ------
    UnsupportedOperationError
        If the table has no key, and the mode is neither insert nor, in a change-log table, changes.
    """
    if (
        spec.keyless
        and mode is not WriteMode.INSERT
        and (mode is not WriteMode.CHANGES or spec.table_options.append_only)
    ):
        raise keyless_refusal(spec, f"write jobs of mode {mode}")


def new_id(spec: TableSpecification, row: Mapping[str, Value]) -> bytes:
    """Return a new hidden key of a checked row: unique, and about in the order of time where rows are only added."""
    return new_ids(spec, (row,))[0]


def new_ids(spec: TableSpecification, rows: Sequence[Mapping[str, Value]]) -> list[bytes]:
    """Return new hidden keys for checked rows, see `new_id`; rows of an append-only table are not inspected."""
    clock, random = _CLOCK.pack(time.time_ns()), os.urandom(8 * len(rows))
    unique = [clock + random[start : start + 8] for start in range(0, len(random), 8)]
    if spec.table_options.append_only:
        return unique
    return [row_digest(row) + one for row, one in zip(rows, unique, strict=True)]


def row_digest(row: Mapping[str, Value]) -> bytes:
    """Return the digest of a checked row, the prefix of the hidden keys of all rows equal to it.

    Rows are equal if their fields are: null equals null, NaN equals NaN, 0.0 equals -0.0, and numbers count by their
    value. Fields that were added or widened later make no difference.
    """
    parts = [
        len(part).to_bytes(4) + part
        for name, value in sorted(row.items(), key=itemgetter(0))
        if value is not None
        for part in (name.encode(), _canonical(value))
    ]
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def _canonical(value: Value) -> bytes:
    """Return bytes that are equal for equal values of a field, of any width."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return _DOUBLE.pack(math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, decimal.Decimal):
        return b"%d/%d" % value.as_integer_ratio()
    return str(value).encode()
