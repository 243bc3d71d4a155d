"""`State`: where a revision stands in a store, and what code of older and newer revisions may do there."""

from __future__ import annotations

import enum

__all__ = ["State"]


class State(enum.StrEnum):
    """The state of a revision.

    PENDING > EXPANDING > FILLING > VERIFYING > READY > CONTRACTING > DONE, PAUSED between them, REVERTING > PENDING.
    """

    PENDING = "PENDING"
    EXPANDING = "EXPANDING"
    """New tables, fields and rules are made; old code goes on as before."""
    FILLING = "FILLING"
    """Existing rows get the new form, and the rules keep it; new code reads and writes it already."""
    VERIFYING = "VERIFYING"
    READY = "READY"
    """All rows have the new form, which can be searched by."""
    CONTRACTING = "CONTRACTING"
    """The old form is taken away; old code is refused."""
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
        """Whether a runner works on it, or did when it was killed."""
        return self in (State.EXPANDING, State.FILLING, State.VERIFYING)
