"""The tables of the system datasets: record classes, keys and indexes, grouped by subject; no operations.

Each module lists its tables in `TABLES`. A table is named without the prefix here; `Context.records` adds it.
"""

from __future__ import annotations

from typing import Any

from structable.datasets.records import RecordTable

from . import (
    applications,
    artifacts,
    catalog,
    coordination,
    field_lineage,
    jobs,
    lineage,
    messaging,
    namespaces,
    platform,
    runs,
    schedules,
    secrets,
)

__all__ = ["ALL_TABLES"]

ALL_TABLES: tuple[RecordTable[Any], ...] = (
    *coordination.TABLES,
    *namespaces.TABLES,
    *applications.TABLES,
    *artifacts.TABLES,
    *runs.TABLES,
    *schedules.TABLES,
    *jobs.TABLES,
    *messaging.TABLES,
    *secrets.TABLES,
    *lineage.TABLES,
    *field_lineage.TABLES,
    *catalog.TABLES,
    *platform.TABLES,
)
