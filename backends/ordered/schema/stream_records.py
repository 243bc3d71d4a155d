"""Records of streams in the catalog: the last committed batch of each stream of a table.

A record is written by the commit that makes the batch visible, and removed when the table is dropped, never by age.
Only this record shows whether a batch is committed: a batch's job has no record once all of its rows are in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from structable.backends.ordered.engine import EngineSnapshot, successor
from structable.backends.ordered.table_schema import TableSchema, folded_name
from structable.spi import DataCorruptionError

from .catalog import CATALOG_SPACE

_STREAMS = CATALOG_SPACE + b"\x16"
_END = b"\0"


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """The catalog's record of a stream of a table."""

    table: str
    identity: bytes  # `TableSchema.identity`
    batch: int  # this batch and all lower ones are committed
    decider: str  # the random name of the `commit_write` call that decided this batch
    missing: int = 0  # the result of that call

    def belongs_to(self, schema: TableSchema | None) -> bool:
        """Return whether this is a stream of this very table, not of a dropped one with the same name."""
        return schema is not None and (self.table, self.identity) == (schema.spec.name, schema.identity)

    def encode(self) -> bytes:
        document = {
            "table": self.table,
            "identity": self.identity.hex(),
            "batch": self.batch,
            "decider": self.decider,
            "missing": self.missing,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, stream: str, raw: bytes) -> Self:
        try:
            document = json.loads(raw)
            return cls(
                document["table"],
                bytes.fromhex(document["identity"]),
                int(document["batch"]),
                document["decider"],
                int(document["missing"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataCorruptionError(f"the record of the stream {stream!r} cannot be decoded: {error!r}") from error


def stream_key(table: str, stream: str) -> bytes:
    """Return the key of a stream's record."""
    return _of_table(table) + stream.encode()


def _of_table(table: str) -> bytes:
    return _STREAMS + folded_name(table) + _END


def read_stream(snapshot: EngineSnapshot, schema: TableSchema, stream: str) -> StreamRecord | None:
    """Return the record of a stream of a table."""
    raw = snapshot.get(stream_key(schema.spec.name, stream))
    record = None if raw is None else StreamRecord.decode(stream, raw)
    return record if record is not None and record.belongs_to(schema) else None


def is_committed(snapshot: EngineSnapshot, schema: TableSchema | None, stream: str | None, batch: int | None) -> bool:
    """Return whether a batch of a stream of a table is committed; false for a job that is not a batch."""
    if schema is None or stream is None or batch is None:
        return False
    last = read_stream(snapshot, schema, stream)
    return last is not None and batch <= last.batch


def stream_keys(snapshot: EngineSnapshot, table: str) -> list[bytes]:
    """Return the record keys of all streams of a table, and of dropped tables with its name."""
    begin = _of_table(table)
    return [key for key, _ in snapshot.scan(begin, successor(begin))]


def list_streams(snapshot: EngineSnapshot) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield the key, the stream's name and the encoded record of all streams."""
    for key, raw in snapshot.scan(_STREAMS, successor(_STREAMS)):
        yield key, key[len(_STREAMS) :].partition(_END)[2].decode(errors="replace"), raw
