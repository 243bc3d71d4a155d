"""Sorting of records that do not fit in memory: sorted runs in temporary files, merged."""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, TypeAlias

SortRecord: TypeAlias = tuple[bytes, bytes, bytes]
"""The sort key, and two payloads."""

_RUN_BYTES = 32 << 20


def sort_records(
    records: Iterable[SortRecord], *, reverse: bool = False, limit: int | None = None
) -> Iterator[SortRecord]:
    """Yield records with distinct sort keys in order, holding at most some 32 MiB; a generator, to be closed early."""
    with ExitStack() as files:
        runs: list[Iterator[SortRecord]] = []
        run: list[SortRecord] = []
        size = 0
        for record in records:
            run.append(record)
            size += _size(record)
            if size >= _RUN_BYTES:
                run.sort(reverse=reverse)
                if limit is not None:
                    del run[limit:]
                    size = sum(map(_size, run))
                    if 2 * size <= _RUN_BYTES:
                        continue  # the first rows so far are few: no file is needed
                file = files.enter_context(tempfile.TemporaryFile())
                for one in run:
                    marshal.dump(one, file)
                runs.append(_read(file))
                run, size = [], 0
        run.sort(reverse=reverse)
        merged = heapq.merge(*runs, run, reverse=reverse)
        for number, record in enumerate(merged):
            if number == limit:
                return
            yield record


def _size(record: SortRecord) -> int:
    return sum(map(len, record)) + _OVERHEAD


_OVERHEAD = 200


def _read(file: IO[bytes]) -> Iterator[SortRecord]:
    # The merge calls this lazily, when the run is complete.
    file.seek(0)
    while True:
        try:
            yield marshal.load(file)
        except EOFError:
            return
