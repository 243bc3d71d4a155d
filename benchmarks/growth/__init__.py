"""Tables that grow: the time of each operation on small and on large tables, compared with hand-written programs.

Each size and program has a process of its own, all of which take turns. Figures are medians of single calls.
`STRUCTABLE_BENCH_STORES=leveldb` measures one store only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.stores import chosen_stores

from .hbase import measure_hbase
from .leveldb import measure_leveldb
from .postgresql import measure_postgresql

__all__ = ["measure"]

_STORES: Mapping[str, Callable[[Path, Scale], Iterator[Measurement]]] = {
    "leveldb": measure_leveldb,
    "postgresql": measure_postgresql,
    "hbase": measure_hbase,
}


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the stores; the errors are those of `chosen_stores`."""
    for name in chosen_stores(_STORES):
        yield from _STORES[name](folder / name, scale)
