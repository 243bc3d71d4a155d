"""What all stores of the project can do; each class of the suite adds what depends on the store."""

from __future__ import annotations

from structable.spi.conformance import Capabilities

__all__ = ["OURS"]

OURS = Capabilities(
    table_types=True,
    change_feeds=True,
    streams=True,
    statistics=True,
    shared_snapshots=True,
    aggregates=True,
    field_rules=True,
)
