"""A workload on one topic: members of two groups handle, fail, die and take over.

The monotonic clock is that of the leases' workload, a thousand times as fast, so that members take over from one
another all the time.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from structable.datasets import Batch, Consumer, Message, NotFoundError, Session, SystemData, Topic

from .application_workloads import new_tag
from .ledger import note

_TOPIC = Topic("workload", bytes)
_GROUPS = ("g", "h")


class _BrokenError(Exception):
    pass


def publish(system: SystemData, chance: random.Random) -> None:
    def add(s: Session) -> None:
        for _ in range(chance.choice((1, 3))):
            tag = new_tag()
            s.publish(_TOPIC, tag.encode())
            note(s.tx, "published", tag)

    try:
        system.run(add)
    except NotFoundError:
        system.topics.create(_TOPIC)
        system.run(add)


def _member(system: SystemData, chance: random.Random) -> tuple[str, Consumer[bytes]]:
    group = chance.choice(_GROUPS)
    return group, system.consumer(_TOPIC, group=group, max_attempts=2, ttl=1)


def _note_received(s: Session, group: str, messages: Sequence[Message[bytes]]) -> None:
    for message in messages:
        note(s.tx, "received", f"{group}/{message.body.decode()}", id=message.id)


def handle(system: SystemData, chance: random.Random) -> None:
    """Handle some batches, and leave, or die."""
    group, consumer = _member(system, chance)
    breaks = chance.random() < 0.2

    def receive(s: Session, messages: Sequence[Message[bytes]]) -> None:
        _note_received(s, group, messages)
        if breaks:
            raise _BrokenError

    try:
        for _ in range(4):
            with contextlib.suppress(_BrokenError):
                consumer.process(receive, chance.choice((1, 2, 100)), wait=0)
    finally:
        if chance.random() < 0.3:
            consumer.stop_beating()
        else:
            consumer.close()


def poll_and_commit(system: SystemData, chance: random.Random) -> None:
    group, consumer = _member(system, chance)
    with consumer:
        for _ in range(3):
            batch = consumer.poll(chance.choice((1, 2, 100)), wait=0)
            if chance.random() < 0.2:
                batch.retry("later")
                continue

            def receive(s: Session, batch: Batch[bytes] = batch) -> None:
                _note_received(s, group, batch.messages)
                batch.commit(s.tx)

            system.run(receive)


def redrive(system: SystemData, chance: random.Random) -> None:
    group = chance.choice(_GROUPS)
    system.topics.redrive(_TOPIC, group, [one.id for one in system.topics.dead(_TOPIC, group)][:1])


MESSAGES = (*(publish,) * 2, *(handle,) * 3, poll_and_commit, redrive)
