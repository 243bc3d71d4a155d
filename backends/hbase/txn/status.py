"""`Status`: the one cell that decides a transaction, and the write set that it carries."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi.errors import DataCorruptionError

__all__ = ["ABORTED", "COMMITTED", "PENDING", "Outline", "Status", "WrittenRows", "decode_writes", "encode_writes"]

PENDING, COMMITTED, ABORTED = "P", "C", "A"

WrittenRows = Mapping[bytes, Mapping[bytes, int]]
"""Space to row to the first byte of what was written there."""

_HEAD = struct.Struct(">cBQQQI")
_FINALISED, _DETACHED, _BULK, _UNLISTED = 1, 2, 4, 8
_FLAGS_END = 2


@dataclass(frozen=True)
class Status:
    """The state of a transaction. Equal bytes mean the same thing, whoever wrote them.

    Parameters
    ----------
    state : str
        PENDING, COMMITTED or ABORTED.
    start : int
        The timestamp of its snapshot, and of its intents.
    least : int
        Pending: the smallest timestamp that it may still commit at, which readers push.
    commit : int
        Committed: its timestamp.
    beat : int
        Pending: counts signs of life.
    finalised : bool
        Committed: every row has its version. Aborted: it was found without a record, and may have been that.
    detached : bool
        The write set is in a cell of its own.
    bulk : bool
        It is a write job: others give way to it.
    unlisted : bool
        The write set has spaces and no rows: what was written is found by looking for it.
    writes : bytes
        The write set, unless detached.
    """

    state: str
    start: int = 0
    least: int = 0
    commit: int = 0
    beat: int = 0
    finalised: bool = False
    detached: bool = False
    bulk: bool = False
    unlisted: bool = False
    writes: bytes = b""

    @cached_property
    def raw(self) -> bytes:
        """The cell's value."""
        flags = _FINALISED * self.finalised | _DETACHED * self.detached | _BULK * self.bulk | _UNLISTED * self.unlisted
        return _HEAD.pack(self.state.encode(), flags, self.start, self.least, self.commit, self.beat) + self.writes

    @property
    def life(self) -> bytes:
        """What only its owner changes while it is pending: that others make it commit later is no sign of its life."""
        return self.pushed(0).raw if self.least else self.raw

    @classmethod
    def decode(cls, raw: bytes) -> Status:
        """Return the status of a cell's value."""
        try:
            state, flags, start, least, commit, beat = _HEAD.unpack_from(raw)
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
            beat,
            bool(flags & _FINALISED),
            bool(flags & _DETACHED),
            bool(flags & _BULK),
            bool(flags & _UNLISTED),
            raw[_HEAD.size :],
        )

    def pushed(self, least: int) -> Status:
        """Return it with a later least commit timestamp."""
        return replace(self, least=least)

    def beating(self) -> Status:
        """Return it with one more sign of life."""
        return replace(self, beat=self.beat + 1)

    def committed(self, timestamp: int) -> Status:
        """Return it committed."""
        return replace(self, state=COMMITTED, commit=timestamp, least=0, beat=0)

    def aborted(self) -> Status:
        """Return it aborted."""
        return replace(self, state=ABORTED, least=0, beat=0)

    def with_finalised(self) -> Status:
        """Return it, committed, with all its rows finalised."""
        return replace(self, finalised=True)


class Outline:
    """A status of which little is looked at: for who reads all of them.

    Parameters
    ----------
    raw : bytes
        The cell's value.

    Attributes
    ----------
    state, finalised, commit
        As those of `Status`.

    Raises
    ------
    DataCorruptionError
        If it is none.
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
        """All of it."""
        return Status.decode(self._raw)

    @property
    def life(self) -> bytes:
        """What changes when `Status.life` does: that of a transaction that has ended is short."""
        if self.state == PENDING:
            return self.status.life
        head = self._raw[:_FLAGS_END]
        return _ENDED.setdefault(head, head)


_STATES = {name.encode(): name for name in (PENDING, COMMITTED, ABORTED)}
_ENDED: dict[bytes, bytes] = {}


def encode_writes(writes: WrittenRows) -> bytes:
    """Return a write set's bytes."""
    parts: list[bytes] = []
    for space, rows in writes.items():
        parts.append(space + len(rows).to_bytes(4))
        parts += [bytes([kind]) + len(row).to_bytes(2) + row for row, kind in rows.items()]
    return b"".join(parts)


def decode_writes(raw: bytes) -> dict[bytes, dict[bytes, int]]:
    """Return the write set of its bytes.

    Raises
    ------
    DataCorruptionError
        If they are none.
    """
    writes: dict[bytes, dict[bytes, int]] = {}
    at = 0
    while at < len(raw):
        space = raw[at : at + SPACE_BYTES]
        at += SPACE_BYTES
        count = int.from_bytes(raw[at : at + 4])
        at += 4
        rows = writes.setdefault(space, {})
        for _ in range(count):
            end = at + 3 + int.from_bytes(raw[at + 1 : at + 3])
            if end > len(raw):
                raise DataCorruptionError(f"a write set ends after {len(raw)} bytes, in the middle of a row")
            rows[raw[at + 3 : end]] = raw[at]
            at = end
    return writes
