"""The ledger: a table in which workloads keep what they did, in the transaction that did it."""

from __future__ import annotations

import uuid
from typing import Annotated

from structable.datasets import Json, Record, RecordTable
from structable.spi import Range, Transaction


class Entry(Record):
    """A fact; each has a key of its own, so that writing one conflicts with nothing."""

    kind: str
    subject: str
    entry: str
    facts: Annotated[dict[str, object], Json] = {}


LEDGER = RecordTable(Entry, "test_ledger", key=("kind", "subject", "entry"))


def note(tx: Transaction, kind: str, subject: str, **facts: object) -> Entry:
    """Keep a fact."""
    entry = Entry(kind=kind, subject=subject, entry=uuid.uuid4().hex, facts=facts)
    LEDGER(tx).insert(entry)
    return entry


def entries(tx: Transaction, kind: str, *subject: str) -> list[Entry]:
    """Return the facts of a kind, all or those of one subject, without order."""
    with LEDGER(tx).scan(Range.prefix((kind, *subject))) as found:
        return list(found)
