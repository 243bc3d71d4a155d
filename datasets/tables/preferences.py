"""The tables of preferences by scope, and of named configurations."""

from __future__ import annotations

import datetime as dt

from structable.datasets.records import Record, RecordTable

__all__ = ["CONFIGS", "PREFERENCES", "TABLES", "Config", "StoredPreferences"]


class StoredPreferences(Record):
    """The preferences of a scope; fields below its level are empty texts. Deleted ones keep their row."""

    namespace: str
    application: str
    program_type: str
    program: str
    properties: dict[str, object] | None = None
    seq: int


class Config(Record):
    """A named configuration of a kind."""

    namespace: str
    kind: str
    name: str
    properties: dict[str, object] = {}
    updated: dt.datetime


PREFERENCES = RecordTable(StoredPreferences, "preferences", key=("namespace", "application", "program_type", "program"))
CONFIGS = RecordTable(Config, "configs", key=("namespace", "kind", "name"))

TABLES = (PREFERENCES, CONFIGS)
