"""structable's tables in an SQLite file: an example of a third-party backend."""

from .backend import SQLiteBackend

__all__ = ["SQLiteBackend"]
