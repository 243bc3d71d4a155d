"""Every error of migrations, and the promises of each.

    MigrationError                                       (a StructableError)
      RevisionError                                      (also ValueError)
      RevisionChangedError
      MigrationLockedError
      LiveClientsError
      SchemaBehindError
      SchemaAheadError
      NotReadyError
      VerificationError
      IrreversibleError

All are picklable.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.spi import StructableError


class MigrationError(StructableError):
    """The root of the errors of migrations. Raised itself if the state of a revision does not allow the call."""


class RevisionError(MigrationError, ValueError):
    """A folder of revisions, or one of its scripts, breaks a rule; nothing was run."""


class RevisionChangedError(MigrationError):
    """A script records other operations than were stored when its revision began.

    Parameters
    ----------
    revision : int
        The revision.
    file : str
        The script.
    """

    def __init__(self, revision: int, file: str) -> None:
        super().__init__(
            f"{file} records other operations than revision {revision} of the store, which began with them; restore "
            "the script and put the change in a new revision, or first undo this one by "
            f"'structable migrate down {revision - 1}'"
        )
        self.revision = revision
        self.file = file


class MigrationLockedError(MigrationError):
    """Another runner works on the store, or has taken over from this one.

    Parameters
    ----------
    owner : str
        The other runner, as host:process.
    since : datetime
        The time at which that runner began.
    """

    def __init__(self, owner: str, since: dt.datetime) -> None:
        super().__init__(
            f"{owner} has been running migrations of this store since {since:%Y-%m-%d %H:%M:%S} UTC; wait for its end"
        )
        self.owner = owner
        self.since = since


class LiveClientsError(MigrationError):
    """A contract would remove fields or tables that announced older clients still use; nothing was removed.

    Parameters
    ----------
    revision : int
        The revision to contract.
    clients : iterable of str
        The clients: "application instance on host (revision 6)".
    """

    def __init__(self, revision: int, clients: Iterable[str]) -> None:
        self.revision = revision
        self.clients = tuple(clients)
        super().__init__(
            f"revision {revision} cannot be contracted while older clients live: {', '.join(self.clients)}; update or "
            "stop them, or force the contract"
        )


class SchemaBehindError(MigrationError):
    """A program needs a revision that the store does not have yet.

    Parameters
    ----------
    revision : int
        The program's revision.
    state : str
        The state of that revision in the store.
    """

    def __init__(self, revision: int, state: str) -> None:
        super().__init__(
            f"this program needs revision {revision}, which is {state} in this store; run 'structable migrate up' first"
        )
        self.revision = revision
        self.state = state


class SchemaAheadError(MigrationError):
    """A later revision than the program's was contracted, which removed fields or tables that the program uses.

    Parameters
    ----------
    revision : int
        The program's revision.
    contracted : int
        The newest contracted revision.
    """

    def __init__(self, revision: int, contracted: int) -> None:
        super().__init__(
            f"this program is of revision {revision}, and revision {contracted} of this store was contracted; run a "
            f"program of revision {contracted} or later"
        )
        self.revision = revision
        self.contracted = contracted


class NotReadyError(MigrationError):
    """A revision is not READY yet.

    Parameters
    ----------
    revision : int
        The revision.
    progress : str
        Its state and progress, such as "FILLING 41 %".
    """

    def __init__(self, revision: int, progress: str) -> None:
        super().__init__(f"revision {revision} is not ready: {progress}; wait for 'structable migrate up' to end")
        self.revision = revision
        self.progress = progress


class VerificationError(MigrationError):
    """Rows differ from their rule after they were filled.

    Parameters
    ----------
    table, field : str
        The field.
    count : int
        The number of rows that differ.
    samples : iterable of str
        The first 20 of them: "key ('a', 1): stored 3, computed 4".
    """

    def __init__(self, table: str, field: str, count: int, samples: Iterable[str]) -> None:
        self.table = table
        self.field = field
        self.count = count
        self.samples = tuple(samples)
        super().__init__(
            f"table {table!r}, field {field!r}: {count:,} rows differ from the rule: {'; '.join(self.samples)}; "
            "write the sources of these rows again, and resume"
        )


class IrreversibleError(MigrationError):
    """A revision cannot be reverted: it was contracted, or its script has no `down` and needs one."""
