"""SQLite, the floor of embedded stores: with a write-ahead log, and as much cache as LevelDB has."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

_CACHE = 64 << 10  # KiB
_STATEMENTS = 256
_PATIENCE = 60.0

MEMORY = ":memory:"


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """A database.

    Parameters
    ----------
    path : str
        Its file, or `MEMORY`.
    synchronous : str
        "NORMAL" survives the end of its processes, "FULL" also a crash of the machine.
    """

    path: str
    synchronous: str = "NORMAL"

    def connect(self) -> sqlite3.Connection:
        """Connect, in auto-commit mode; programs begin and commit themselves."""
        database = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, cached_statements=_STATEMENTS, check_same_thread=False
        )
        if self.path != MEMORY:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {self.synchronous}")
        database.execute(f"PRAGMA cache_size = -{_CACHE}")
        return database
