"""`WrittenRows`: which rows a transaction wrote, as its record lists them."""

from __future__ import annotations

from collections.abc import Mapping

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi.errors import DataCorruptionError

__all__ = ["WrittenRows", "decode_rows", "encode_rows"]

WrittenRows = Mapping[bytes, Mapping[bytes, int]]
"""Space to row to the first byte of its intent."""


def encode_rows(writes: WrittenRows) -> bytes:
    """Return written rows as bytes."""
    parts: list[bytes] = []
    for space, rows in writes.items():
        parts.append(space + len(rows).to_bytes(4))
        parts += [bytes([kind]) + len(row).to_bytes(2) + row for row, kind in rows.items()]
    return b"".join(parts)


def decode_rows(raw: bytes) -> dict[bytes, dict[bytes, int]]:
    """Return the written rows of their bytes; `DataCorruptionError` if the bytes are damaged."""
    writes: dict[bytes, dict[bytes, int]] = {}
    at = 0
    while at < len(raw):
        space = raw[at : at + SPACE_BYTES]
        at += SPACE_BYTES
        count = int.from_bytes(raw[at : at + 4])
        at += 4
        rows = writes.setdefault(space, {})
        for _ in range(count):
            end = at + 3 + int.from_bytes(raw[at + 1 : at + 3])
            if end > len(raw):
                raise DataCorruptionError(f"the written rows of a transaction are cut off after {len(raw)} bytes")
            rows[raw[at + 3 : end]] = raw[at]
            at = end
    return writes
