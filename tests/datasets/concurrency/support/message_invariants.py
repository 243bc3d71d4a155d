"""Invariants of messages."""

from __future__ import annotations

from typing import Final

from structable.datasets.tables.messaging import DEAD_LETTERS

from .rows import Rows


def messages_are_received_once(rows: Rows) -> list[str]:
    """Check that a group received each message at most once, and none that was not published, or that it gave up."""
    published = rows.noted("published")
    received = rows.noted("received")
    dead = {f"{letter.group}/{letter.body.decode()}" for letter in rows.of(DEAD_LETTERS) if letter.body is not None}
    found = [f"{subject} was received {len(facts)} times" for subject, facts in received.items() if len(facts) > 1]
    found += [f"{subject} was never published" for subject in received if subject.split("/")[1] not in published]
    return found + [f"{subject} was received and given up" for subject in dead & received.keys()]


INVARIANTS: Final = (messages_are_received_once,)
