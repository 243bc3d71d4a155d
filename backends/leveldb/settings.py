"""The options of the LevelDB backend, as its parts use them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .native.database import DatabaseOptions

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a process uses a database folder.

    Parameters
    ----------
    sync : bool
        Whether commits of this process sync the log before they return.
    request_timeout : float
        Seconds to wait for the owning process, and for a new one when it ends.
    database : DatabaseOptions
        How LevelDB works, if this process owns the database.
    create : bool
        Whether the folder and the database are made where they are missing.
    """

    sync: bool = True
    request_timeout: float = 30.0
    database: DatabaseOptions = field(default_factory=DatabaseOptions)
    create: bool = True
