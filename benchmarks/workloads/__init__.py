"""Whole programs: YCSB's core workloads and an order entry, on every store and by hand, with 1 and 4 client processes.

Programs take turns of `Scale.seconds` each with the same requests; what is compared is the time of a request, of all
clients together. Every step must have its effect, and the order entry's invariants are checked after each run.
`STRUCTABLE_BENCH_STORES=leveldb,postgresql` measures only these stores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.measuring import Measurement, Scale

from .embedded import measure_leveldb, measure_memory
from .servers import measure_hbase, measure_postgresql

__all__ = ["STORES_VARIABLE", "measure"]

STORES_VARIABLE = "STRUCTABLE_BENCH_STORES"
"""Names the stores to measure; all without it."""

_STORES: Mapping[str, Callable[[Path, Scale], Iterator[Measurement]]] = {
    "leveldb": measure_leveldb,
    "postgresql": measure_postgresql,
    "memory": measure_memory,
    "hbase": measure_hbase,
}


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the stores.

    Raises
    ------
    ValueError
        If `STRUCTABLE_BENCH_STORES` names a store that does not exist.
    """
    names = os.environ.get(STORES_VARIABLE, ",".join(_STORES)).split(",")
    if unknown := [name for name in names if name not in _STORES]:
        raise ValueError(f"{STORES_VARIABLE} names {', '.join(unknown)}; the stores are {', '.join(_STORES)}")
    for name in names:
        yield from _STORES[name](folder / name, scale)
