"""The two databases of a comparison, with the same rows: bare LevelDB through plyvel, and a structable storage.

Both are loaded in the same way, in key order and 1,000 rows per batch, and reopened, so that neither has rows in memory
that the other reads from a table file. The raw database has the options of the LevelDB store: cache, write buffer,
Bloom filter, size of its files, no compression.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import plyvel

from benchmarks.rows import TABLE, batches, make_rows, raw_entry, raw_key, raw_value, specification
from structable.spi import Storage, connect

RawDatabase: TypeAlias = Any
"""`plyvel.DB`, which has no types."""


def open_raw(folder: Path) -> RawDatabase:
    """Open a raw database, creating it if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    return plyvel.DB(
        str(folder),
        create_if_missing=True,
        write_buffer_size=16 << 20,
        lru_cache_size=64 << 20,
        max_open_files=1000,
        bloom_filter_bits=10,
        max_file_size=8 << 20,
        compression=None,
    )


def url_of(folder: Path, *, durability: str = "process") -> str:
    """Return the URL of a LevelDB store."""
    return f"leveldb://{folder.absolute()}?durability={durability}"


def load(folder: Path, count: int, *, index: bool = False) -> None:
    """Create both databases in a folder and load them with the same rows."""
    raw = open_raw(folder / "raw")
    for batch in batches(make_rows(count)):
        with raw.write_batch() as writes:
            for row in batch:
                key = raw_key(row)
                writes.put(key, raw_value(row))
                if index:
                    writes.put(raw_entry(str(row["status"]), key), b"\1")
    raw.close()
    with connect(url_of(folder / "ours")) as storage:
        storage.admin.create(specification(index=index))
        for batch in batches(make_rows(count)):
            with storage.transaction() as tx:
                tx.table(TABLE).upsert_many(batch)


@dataclass(frozen=True, slots=True)
class Stores:
    """The floor's database and structable's, both open."""

    raw: RawDatabase
    storage: Storage


@contextmanager
def opened(folder: Path, count: int, *, index: bool = False) -> Iterator[Stores]:
    """Load both databases in a folder, open them, and close them at the end."""
    load(folder, count, index=index)
    raw = open_raw(folder / "raw")
    try:
        with connect(url_of(folder / "ours")) as storage:
            yield Stores(raw, storage)
    finally:
        raw.close()
