"""The table of namespaces."""

from __future__ import annotations

import datetime as dt

from structable.datasets.records import Record, RecordTable

__all__ = ["NAMESPACES", "TABLES", "Namespace"]


class Namespace(Record):
    """A namespace: what all applications, artifacts and secrets are in."""

    namespace: str
    description: str | None = None
    config: dict[str, object] = {}
    generation: int
    created: dt.datetime
    updated: dt.datetime


NAMESPACES = RecordTable(Namespace, "namespaces", key=("namespace",))

TABLES = (NAMESPACES,)
