"""`State`: the state of a revision in a store, and the tables that record it.

They also keep the progress of fills, the programs that use the store, and its one runner.
"""

from __future__ import annotations

import enum

from structable.spi import Field, TableSpecification

DEFAULT_PREFIX = "structable_"


class State(enum.StrEnum):
    """The state of a revision.

    PENDING > EXPANDING > FILLING > VERIFYING > READY > CONTRACTING > DONE, PAUSED between them, REVERTING > PENDING.
    """

    PENDING = "PENDING"
    EXPANDING = "EXPANDING"
    """New tables, fields and rules are made; old code runs as before."""
    FILLING = "FILLING"
    """Existing rows get the new form, and the rules keep it; new code reads and writes it already."""
    VERIFYING = "VERIFYING"
    READY = "READY"
    """All rows have the new form, and searches by it are complete."""
    CONTRACTING = "CONTRACTING"
    """The old form is removed; old code can no longer start."""
    DONE = "DONE"
    PAUSED = "PAUSED"
    """Stopped by an error, which is recorded, or by an operator."""
    REVERTING = "REVERTING"

    @property
    def expanded(self) -> bool:
        """Whether code of the revision may run."""
        return self.ready or self in (State.FILLING, State.VERIFYING)

    @property
    def ready(self) -> bool:
        """Whether all rows have the new form."""
        return self in (State.READY, State.CONTRACTING, State.DONE)

    @property
    def moving(self) -> bool:
        """Whether a runner works on it, or was killed while it did."""
        return self in (State.EXPANDING, State.FILLING, State.VERIFYING)


REVISIONS = TableSpecification(
    "structable_revisions",
    [
        Field.int("revision"),
        Field.string("name"),
        Field.string("digest"),
        Field.string("operations"),
        Field.string("state"),
        Field.string("resumes"),
        Field.string("runner"),
        Field.string("error"),
        Field.timestamp("started"),
        Field.timestamp("finished"),
    ],
    primary_key=["revision"],
)
"""A row for each revision that has begun; `resumes` is the state in which a paused one resumes."""

TASKS = TableSpecification(
    "structable_tasks",
    [
        Field.int("revision"),
        Field.int("operation"),
        Field.int("part"),
        Field.string("begin"),
        Field.string("end"),
        Field.string("cursor"),
        Field.long("seen"),
        Field.long("changed"),
        Field.long("failed"),
        Field.long("conflicts"),
        Field.boolean("done"),
        Field.timestamp("updated"),
    ],
    primary_key=["revision", "operation", "part"],
)
"""A row for each part of a table that an operation fills: keys from `begin` to before `end`, filled up to `cursor`."""

CLIENTS = TableSpecification(
    "structable_clients",
    [
        Field.string("application"),
        Field.string("instance"),
        Field.int("revision"),
        Field.long("beat"),
        Field.string("host"),
    ],
    primary_key=["application", "instance"],
)
"""A row for each running program; the row of the application "" has the oldest revision that may still run."""

LEASE = TableSpecification(
    "structable_lease",
    [
        Field.string("lease"),
        Field.string("owner"),
        Field.long("epoch"),
        Field.long("beat"),
        Field.int("ttl"),
        Field.timestamp("since"),
    ],
    primary_key=["lease"],
)
"""Two rows: `runner` names the runner, `beat` counts its beats, which never conflict with checks of `runner`."""

STATE_TABLES = (REVISIONS, TASKS, CLIENTS, LEASE)
