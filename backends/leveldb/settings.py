"""The options of the LevelDB backend, as its modules use them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .native.database import DatabaseOptions

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a process for a database folder."""

    sync: bool = True  # of the log, before a commit of this process returns
    request_timeout: float = 30.0  # seconds to wait for the owning process, and for the next one when it ends
    database: DatabaseOptions = field(default_factory=DatabaseOptions)  # if this process owns the database
    create: bool = True  # a missing folder and database
