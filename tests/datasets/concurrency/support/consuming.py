"""A member of a group that notes each message, and fails at the poisonous ones, until none is left."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence

from structable.datasets import Message, Session, SystemData, Topic

from .ledger import note

COUNTED = Topic("counted", bytes)
POISON = b"poison"


class JumpingClock:
    """A clock by which ten minutes pass between two looks, so that no delay has to be waited for."""

    def __init__(self) -> None:
        self._time = dt.datetime.now(dt.UTC)

    def __call__(self) -> dt.datetime:
        self._time += dt.timedelta(minutes=10)
        return self._time


class PoisonError(Exception):
    pass


def consume(system: SystemData) -> None:
    """Handle what is there, three messages at a time."""

    def handle(s: Session, messages: Sequence[Message[bytes]]) -> None:
        for message in messages:
            if message.body.startswith(POISON):
                raise PoisonError
            note(s.tx, "handled", message.body.decode())

    # A failed batch, and a kill while the first of its messages is out alone, make two attempts. A ttl of hours: beats
    # would be commits, too.
    with system.consumer(COUNTED, group="g", max_attempts=3, ttl=3600) as consumer:
        count = 1
        while count:
            with contextlib.suppress(PoisonError):
                count = consumer.process(handle, limit=3, wait=0)
