"""`Status`: the one cell that decides a transaction."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property

from structable.spi.errors import DataCorruptionError

__all__ = ["ABORTED", "COMMITTED", "PENDING", "Status", "StatusHead"]

PENDING, COMMITTED, ABORTED = "P", "C", "A"

_HEAD = struct.Struct(">cBQQQI")
_FINALISED, _DETACHED, _BULK, _UNLISTED = 1, 2, 4, 8
_FLAGS_END = 2


@dataclass(frozen=True)
class Status:
    """The state of a transaction. Equal statuses have equal bytes, whichever process wrote them.

    Parameters
    ----------
    state : str
        PENDING, COMMITTED or ABORTED.
    start : int
        The timestamp of its snapshot, and of its intents.
    least : int
        Pending: the smallest timestamp at which it may commit; readers push it up.
    commit : int
        Committed: its timestamp.
    heartbeat : int
        Pending: counts the renewals of its lease.
    finalised : bool
        Committed: every row has its version. Aborted: it was found without a record, and may once have been committed
        and finalised.
    detached : bool
        The written rows are in a cell of their own.
    bulk : bool
        A write job: other transactions give way to it.
    unlisted : bool
        `writes` has spaces and no rows: the rows are found by searching the spaces.
    writes : bytes
        The written rows, encoded, unless detached.
    """

    state: str
    start: int = 0
    least: int = 0
    commit: int = 0
    heartbeat: int = 0
    finalised: bool = False
    detached: bool = False
    bulk: bool = False
    unlisted: bool = False
    writes: bytes = b""

    @cached_property
    def raw(self) -> bytes:
        """The cell's value."""
        flags = _FINALISED * self.finalised | _DETACHED * self.detached | _BULK * self.bulk | _UNLISTED * self.unlisted
        return _HEAD.pack(self.state.encode(), flags, self.start, self.least, self.commit, self.heartbeat) + self.writes

    @property
    def liveness(self) -> bytes:
        """The bytes that only the owner changes while the transaction is pending: a push is no heartbeat."""
        return self.pushed(0).raw if self.least else self.raw

    @classmethod
    def decode(cls, raw: bytes) -> Status:
        """Return the status of a cell's value."""
        try:
            state, flags, start, least, commit, heartbeat = _HEAD.unpack_from(raw)
            name = state.decode()
            if name not in (PENDING, COMMITTED, ABORTED):
                raise ValueError(name)
        except (struct.error, ValueError) as error:
            raise DataCorruptionError(f"a status cell is not structable's: {raw[:40]!r}") from error
        return cls(
            name,
            start,
            least,
            commit,
            heartbeat,
            bool(flags & _FINALISED),
            bool(flags & _DETACHED),
            bool(flags & _BULK),
            bool(flags & _UNLISTED),
            raw[_HEAD.size :],
        )

    def pushed(self, least: int) -> Status:
        """Return the status with a later smallest commit timestamp."""
        return replace(self, least=least)

    def with_heartbeat(self) -> Status:
        """Return the status with its lease renewed."""
        return replace(self, heartbeat=self.heartbeat + 1)

    def committed(self, timestamp: int) -> Status:
        """Return the status, committed."""
        return replace(self, state=COMMITTED, commit=timestamp, least=0, heartbeat=0)

    def aborted(self) -> Status:
        """Return the status, aborted."""
        return replace(self, state=ABORTED, least=0, heartbeat=0)

    def with_finalised(self) -> Status:
        """Return the status, committed, with all its rows finalised."""
        return replace(self, finalised=True)


class StatusHead:
    """A status decoded only in part, for the janitor, which reads all of them.

    Attributes
    ----------
    state, finalised, commit
        As in `Status`.
    """

    __slots__ = ("_raw", "commit", "finalised", "state")

    def __init__(self, raw: bytes) -> None:
        try:
            state, flags, _, _, self.commit, _ = _HEAD.unpack_from(raw)
            self.state = _STATES[state]
        except (struct.error, KeyError) as error:
            raise DataCorruptionError(f"a status cell is not structable's: {raw[:40]!r}") from error
        self.finalised = bool(flags & _FINALISED)
        self._raw = raw

    @property
    def status(self) -> Status:
        """The whole status."""
        return Status.decode(self._raw)

    @property
    def liveness(self) -> bytes:
        """Bytes that change when `Status.liveness` does; short for a transaction that has ended."""
        if self.state == PENDING:
            return self.status.liveness
        head = self._raw[:_FLAGS_END]
        return _ENDED.setdefault(head, head)


_STATES = {name.encode(): name for name in (PENDING, COMMITTED, ABORTED)}
_ENDED: dict[bytes, bytes] = {}
