"""`TransactionWrites`: the rows of a transaction, and its entries in the gates of feeds, as its record lists them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import DataCorruptionError

_GATED = b"E"[0]
"""The kind of a row that records where in the gate of a feed a transaction put its entries."""

WrittenRows: TypeAlias = Mapping[bytes, Mapping[bytes, int]]
"""Space to row to the first byte of its intent."""

GateKinds: TypeAlias = Mapping[bytes, bytes]
"""Space of a feed to the kind of gate rows that hold a transaction's entries, see `Gate`."""


class TransactionWrites(NamedTuple):
    """The rows that a transaction wrote, and the feeds that it appended to."""

    rows: WrittenRows
    gates: GateKinds


def encode_rows(writes: WrittenRows, gates: GateKinds = MappingProxyType({})) -> bytes:
    """Return the rows and gates of a transaction as bytes."""
    parts: list[bytes] = []
    for space, rows in (*writes.items(), *((feed, {gate: _GATED}) for feed, gate in gates.items())):
        parts.append(space + len(rows).to_bytes(4))
        parts += [bytes([kind]) + len(row).to_bytes(2) + row for row, kind in rows.items()]
    return b"".join(parts)


def decode_rows(raw: bytes) -> TransactionWrites:
    """Decode the result of `encode_rows`; `DataCorruptionError` if the bytes are damaged."""
    writes: dict[bytes, dict[bytes, int]] = {}
    gates: dict[bytes, bytes] = {}
    at = 0
    while at < len(raw):
        space = raw[at : at + SPACE_BYTES]
        at += SPACE_BYTES
        count = int.from_bytes(raw[at : at + 4])
        at += 4
        rows: dict[bytes, int] = {}
        for _ in range(count):
            end = at + 3 + int.from_bytes(raw[at + 1 : at + 3])
            if end > len(raw):
                raise DataCorruptionError(f"the written rows of a transaction are cut off after {len(raw)} bytes")
            if raw[at] == _GATED:
                gates[space] = raw[at + 3 : end]
            else:
                rows[raw[at + 3 : end]] = raw[at]
            at = end
        if rows or not count:
            writes.setdefault(space, {}).update(rows)
    return TransactionWrites(writes, gates)
