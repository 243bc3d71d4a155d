"""Pipelines: planning, as the graph grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale

from . import planning

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the planning of graphs of several shapes."""
    yield from planning.measure(scale)
