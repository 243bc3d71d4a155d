"""The options of the LevelDB backend, as its modules use them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .native.database import DatabaseOptions

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a process for a database folder.

    Parameters
    ----------
    sync : bool
        Whether commits of this process sync the log before they return.
    request_timeout : float
        Seconds to wait for the owning process, and for the next one when it ends.
    database : DatabaseOptions
        LevelDB's own options, if this process owns the database.
    create : bool
        Whether to make a missing folder and database.
    """

    sync: bool = True
    request_timeout: float = 30.0
    database: DatabaseOptions = field(default_factory=DatabaseOptions)
    create: bool = True
