"""`Status`: the one cell that decides a transaction."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property

from structable.spi import DataCorruptionError

PENDING, COMMITTED, ABORTED = "P", "C", "A"

_HEAD = struct.Struct(">cBQQQI")
_FINALISED, _DETACHED, _BULK, _UNLISTED = 1, 2, 4, 8
_FLAGS_END = 2


@dataclass(frozen=True)
class Status:
    """The state of a transaction. Equal statuses have equal bytes, whichever process wrote them."""

    state: str  # PENDING, COMMITTED or ABORTED
    start: int = 0  # the timestamp of the snapshot, and of the intents
    least: int = 0  # pending: the smallest timestamp at which it may commit; readers push it up
    commit: int = 0  # committed: its timestamp
    heartbeat: int = 0  # pending: counts the renewals of its lease
    finalised: bool = False
    """Committed: every row has its version. Aborted: it was found without a record, and may once have been committed
    and finalised."""
    detached: bool = False  # the written rows are in a cell of their own
    bulk: bool = False  # a write job: other transactions give way to it
    unlisted: bool = False  # `writes` has spaces and no rows: the rows are found by searching the spaces
    writes: bytes = b""  # the written rows, encoded, unless detached

    @cached_property
    def raw(self) -> bytes:
        flags = _FINALISED * self.finalised | _DETACHED * self.detached | _BULK * self.bulk | _UNLISTED * self.unlisted
        return _HEAD.pack(self.state.encode(), flags, self.start, self.least, self.commit, self.heartbeat) + self.writes

    @property
    def liveness(self) -> bytes:
        """The bytes that only the owner changes while the transaction is pending: a push is not a heartbeat."""
        return self.pushed(0).raw if self.least else self.raw

    @classmethod
    def decode(cls, raw: bytes) -> Status:
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
        return replace(self, least=least)

    def with_heartbeat(self) -> Status:
        return replace(self, heartbeat=self.heartbeat + 1)

    def committed(self, timestamp: int) -> Status:
        return replace(self, state=COMMITTED, commit=timestamp, least=0, heartbeat=0)

    def aborted(self) -> Status:
        return replace(self, state=ABORTED, least=0, heartbeat=0)

    def with_finalised(self) -> Status:
        return replace(self, finalised=True)


class StatusHead:
    """A status decoded only in part, for the janitor, which reads all of them."""

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
