"""Tables that grow: what each operation takes on small and on large ones, beside the same by hand.

Each size and program has a process of its own, all of which take turns. Figures are medians of single calls.
`STRUCTABLE_BENCH_STORES=leveldb` measures one store only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale

from .contest import compete
from .leveldb import leveldb

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the stores."""
    yield from compete(leveldb(folder, scale), scale)
