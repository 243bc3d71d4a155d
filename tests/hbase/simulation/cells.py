"""The cells of the packed layout as HBase keeps them: versions, tombstones that mask, compaction, one-version reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

LIMIT = 6
"""A row's number stays within -LIMIT and LIMIT, so that increments run into the bounds all the time."""


class Kind(Enum):
    """The kinds of intents and of row versions."""

    PUT = "put"
    TOMBSTONE = "tombstone"
    MERGED = "merged"
    INCREMENT = "increment"
    LOCK = "lock"


class Row(NamedTuple):
    """A row's value: its writer, an indexed column, a counter, and a sum that identifies the increments in it."""

    writer: int
    colour: int
    number: int
    marks: int


CREATED = Row(0, 0, 0, 0)
"""The row that an increment adds to if there is none."""


class Version(NamedTuple):
    """A cell ``x:v``: the row as of the commit at its timestamp."""

    kind: Kind
    row: Row | None
    last_write: int


class Intent(NamedTuple):
    """A cell ``x:i...``: the change to the row if the transaction commits."""

    kind: Kind
    row: Row | None = None
    delta: int = 0
    mark: int = 0


class Placed(NamedTuple):
    """An intent as it is put: a column may have been another transaction's before."""

    tx: int
    intent: Intent


class View(NamedTuple):
    """The result of one get of a row: its newest version, its timestamp, and its intents."""

    at: int
    version: Version | None
    intents: dict[int, tuple[int, Intent]]


class Folded(NamedTuple):
    """A row as of some moment: the commit it last changed at, its value, and the last commit that was no increment."""

    at: int
    row: Row | None
    last_write: int


def fold(base: Folded, changes: Iterable[tuple[int, Intent]]) -> Folded:
    """The row after the committed changes newer than its base, in the order of their commit timestamps."""
    at, row, last_write = base
    for cts, intent in sorted(changes, key=lambda change: change[0]):
        if cts <= at or intent.kind is Kind.LOCK:
            continue
        at = cts
        if intent.kind is Kind.INCREMENT:
            old = row or CREATED
            row = old._replace(number=old.number + intent.delta, marks=old.marks + intent.mark)
        else:
            row, last_write = intent.row, cts
    return Folded(at, row, last_write)


def base_of(view: View) -> Folded:
    """The newest version of a view, to fold intents onto."""
    if view.version is None:
        return Folded(0, None, 0)
    return Folded(view.at, view.version.row, view.version.last_write)


@dataclass(slots=True)
class Column:
    """All versions of one cell, and the newest tombstone over it."""

    versions: dict[int, Version | Placed] = field(default_factory=dict)
    mask: int = 0
    newest: int = 0


VERSIONS = 0
"""The column of a row's versions; that of a transaction's intents is greater."""


class Cells:
    """A table. A tombstone masks every version at or below its timestamp, also one that is put after it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, Column]] = {}

    def put(self, row: str, column: int, at: int, value: Version | Placed) -> None:
        cell = self.rows.setdefault(row, {}).setdefault(column, Column())
        cell.versions[at] = value
        cell.newest = max(cell.newest, at)

    def delete(self, row: str, column: int, up_to: int) -> None:
        cell = self.rows.setdefault(row, {}).setdefault(column, Column())
        cell.mask = max(cell.mask, up_to)

    def get(self, row: str, up_to: int | None = None) -> View:
        """One version of each column: the newest that is not masked, and not above `up_to`."""
        at, version, intents = 0, None, {}
        for cell in self.rows.get(row, {}).values():
            newest = cell.newest
            if newest <= cell.mask:
                continue
            if up_to is not None and newest > up_to:
                newest = max((at for at in cell.versions if cell.mask < at <= up_to), default=0)
                if not newest:
                    continue
            value = cell.versions[newest]
            if isinstance(value, Version):
                at, version = newest, value
            else:
                intents[value.tx] = (newest, value.intent)
        return View(at, version, intents)

    def compact(self, row: str) -> None:
        """Major compaction: masked cells and their tombstones go, so a later put is masked by none of them."""
        columns = self.rows.get(row, {})
        for column, cell in list(columns.items()):
            cell.versions = {at: value for at, value in cell.versions.items() if at > cell.mask}
            cell.mask = 0
            if not cell.versions:
                del columns[column]


class CompactedCells(Cells):
    """A table that is compacted after every delete: no tombstone ever hides a late put."""

    def delete(self, row: str, column: int, up_to: int) -> None:
        super().delete(row, column, up_to)
        self.compact(row)
