"""Migrations: the schema of a table changes while services run.

A folder of revisions describes the changes; a `Migrator` takes a store through them; a program declares its revision
by `Schema`. docs/migrations.md is the guide.
"""

from __future__ import annotations

from .autogenerate import Differences, differences
from .errors import (
    IrreversibleError,
    LiveClientsError,
    MigrationError,
    MigrationLockedError,
    NotReadyError,
    RevisionChangedError,
    RevisionError,
    SchemaAheadError,
    SchemaBehindError,
    VerificationError,
)
from .folder import Folder, Revision
from .migrator import Migrator
from .plans import PlannedOperation, PlannedRevision
from .recorder import Recorder
from .runner import Background
from .schema import Schema
from .scope import Mapper
from .states import State
from .status import RevisionStatus
from .throttle import Throttle

__all__ = [
    "Background",
    "Differences",
    "Folder",
    "IrreversibleError",
    "LiveClientsError",
    "Mapper",
    "MigrationError",
    "MigrationLockedError",
    "Migrator",
    "NotReadyError",
    "PlannedOperation",
    "PlannedRevision",
    "Recorder",
    "Revision",
    "RevisionChangedError",
    "RevisionError",
    "RevisionStatus",
    "Schema",
    "SchemaAheadError",
    "SchemaBehindError",
    "State",
    "Throttle",
    "VerificationError",
    "differences",
]
