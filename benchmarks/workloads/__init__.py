"""Whole programs: YCSB's core workloads and an order entry, on every store and by hand, with 1 and 4 client processes.

Programs take turns of `Scale.seconds` each with the same requests; what is compared is the time of a request, of all
clients together. Every step must have its effect, and the order entry's invariants are checked after each run.
`STRUCTABLE_BENCH_STORES=leveldb,postgresql` measures only these stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.stores import chosen_stores

from .embedded import measure_leveldb, measure_memory
from .servers import measure_hbase, measure_postgresql

__all__ = ["measure"]

_STORES: Mapping[str, Callable[[Path, Scale], Iterator[Measurement]]] = {
    "leveldb": measure_leveldb,
    "postgresql": measure_postgresql,
    "memory": measure_memory,
    "hbase": measure_hbase,
}


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the stores; the errors are those of `chosen_stores`."""
    for name in chosen_stores(_STORES):
        yield from _STORES[name](folder / name, scale)
