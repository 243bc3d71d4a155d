"""Announced programs: which revision each is of, and whether it lives, judged by beats that were watched."""

from __future__ import annotations

import threading
from typing import NamedTuple

from structable.spi import Transaction

from .clocks import Clocks
from .errors import LiveClientsError
from .history import MINIMUM, History

__all__ = ["BEAT", "WATCHED", "require_no_older"]

BEAT = 10
"""Seconds between two beats of a program."""
WATCHED = 30
"""Seconds for which beats must stand still before a program counts as ended."""
_LOOKS = 1.0


class _Client(NamedTuple):
    application: str
    instance: str
    revision: int
    host: str | None

    def __str__(self) -> str:
        return f"{self.application} {self.instance} on {self.host} (revision {self.revision})"


def _older(tx: Transaction, history: History, revision: int) -> dict[_Client, int]:
    with history.clients(tx).scan() as rows:
        return {
            _Client(row.application, row.instance, row.revision, row.host): int(row.beat or 0)
            for row in rows
            if row.key != MINIMUM and row.revision < revision
        }


def require_no_older(history: History, revision: int, clocks: Clocks) -> None:
    """Check that no announced program of an older revision lives; forget those that have ended.

    Raises
    ------
    LiveClientsError
        If a beat moves while they are watched, or another program appears.
    """
    storage = history.storage
    first = storage.run(lambda tx: _older(tx, history, revision), read_only=True)
    begun = clocks.monotonic()
    never = threading.Event()
    while first:
        before = clocks.monotonic()
        now = storage.run(lambda tx: _older(tx, history, revision), read_only=True)
        living = [client for client, beat in now.items() if first.get(client) != beat]
        if living:
            raise LiveClientsError(revision, map(str, living))
        if not now:
            return
        if before - begun >= WATCHED:
            break
        clocks.wait(_LOOKS, never)
    ended = [(client.application, client.instance) for client in first]
    if ended:
        storage.run(lambda tx: history.clients(tx).delete_many(ended))
