"""`FeedCase`: the base of the rules of change feeds; states of a table, and the changes between them."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from itertools import groupby
from typing import Any, TypeAlias

import pytest

from structable.spi import (
    Change,
    ChangeFeed,
    ChangePlan,
    ChangesLostError,
    FeedPosition,
    Storage,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
)

from .keyless_rules import counted
from .merge_case import MergeCase
from .model import comparable
from .samples import ITEMS, Record

PRODUCERS = ["lookup", "input", "full-compaction"]
GONE = (ChangesLostError, TableNotFoundError, UnsupportedOperationError)
"""The errors of reading a feed that has ended, depending on the table of that name."""

LONGEST = 30.0
"""Seconds within which a change is in its feed."""

SHORT = {"changelog-producer.compaction-interval": "1 ms"}

Image: TypeAlias = tuple[str, Record]
"""The kind of a change and its row, in which NaN equals NaN."""

State: TypeAlias = Counter[tuple[tuple[str, Any], ...]]
"""The rows of a table, and how often each occurs."""


def with_feed(spec: TableSpecification, producer: str = "lookup", **options: str) -> TableSpecification:
    """Return a table with a feed; one with full compaction may have a mark every millisecond."""
    marks = SHORT if producer == "full-compaction" else {}
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return spec.evolve(options={**spec.options, "changelog-producer": producer, **marks, **named})


def producers_of(spec: TableSpecification) -> list[str]:
    """Return the producers that a table may have."""
    if spec.keyless:
        return ["lookup", "input"]
    return ["lookup", "full-compaction"] if spec.options.get("merge-engine") == "first-row" else list(PRODUCERS)


def images(changes: Iterable[Change]) -> list[Image]:
    """Return kinds and rows of changes."""
    return [(str(change.kind), comparable(dict(change.row))) for change in changes]


def read_between(
    storage: Storage,
    table: str,
    since: FeedPosition | None = None,
    until: FeedPosition | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> list[Change]:
    """Read a range of a feed to its end."""
    with storage.changes(table).read(since, until, **options) as changes:
        return list(changes)


def planned(storage: Storage, plan: ChangePlan) -> list[dict[str, Any]]:
    """Read the splits of a plan one after the other."""
    return [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]


def in_some_order(changes: Iterable[Change], producer: str = "lookup") -> list[tuple[object, ...]]:
    """Return changes to compare: within a version, of images, sorted; NaN equals NaN."""
    listed = list(changes)
    if producer != "input":
        listed.sort(key=lambda one: (one.version or 0, text_of(str(one.kind), comparable(dict(one.row)))))
    return [(one.version, one.timestamp, str(one.kind), comparable(dict(one.row))) for one in listed]


def by_version(changes: Iterable[Change]) -> list[list[Change]]:
    """Divide changes into commits; versions must rise, and a commit has one time."""
    commits = [list(commit) for _, commit in groupby(changes, lambda change: change.version)]
    versions = [commit[0].version for commit in commits]
    assert versions == sorted({version for version in versions if version is not None})
    for commit in commits:
        assert len({change.timestamp for change in commit}) == 1
    return commits


def state_of(storage: Storage, table: str) -> State:
    """Return the rows of a table as they are now."""
    return counted(storage.table(table).scan())


def after(state: State, changes: Iterable[Change]) -> State:
    """Return a state with changes applied; every preimage and deleted row must be in it, as it is."""
    rows = Counter(state)
    for change in changes:
        (row,) = counted([change.row])
        if change.kind.retracts:
            assert rows[row], f"{change} takes away what is not there"
            rows[row] -= 1
        else:
            rows[row] += 1
    return +rows


def difference(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]], key: Iterable[str]
) -> Counter[str]:
    """Return the net changes between two states of a keyed table, as texts to compare in no order."""
    names = list(key)
    old, new = ({tuple(row[name] for name in names): comparable(dict(row)) for row in rows} for rows in (before, now))
    found: Counter[str] = Counter()
    for one in old.keys() | new.keys():
        match old.get(one), new.get(one):
            case None, row:
                found[text_of("+I", row)] += 1
            case row, None:
                found[text_of("-D", row)] += 1
            case row, other if row != other:
                found[text_of("-U", row)] += 1
                found[text_of("+U", other)] += 1
    return found


def text_of(kind: str, row: Mapping[str, Any] | None) -> str:
    """Return a change as a text, the same for equal rows."""
    assert row is not None
    return f"{kind} { {name: _plain(value) for name, value in sorted(row.items())} }"


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any type of field
    """Return a value whose text is the same for all values that are equal to it."""
    if isinstance(value, float) and value == 0:
        return 0.0
    if isinstance(value, Decimal):
        return value.normalize(_EXACT) if value else Decimal(0)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return value


_EXACT = Context(prec=100)


def texts(changes: Iterable[Change]) -> Counter[str]:
    """Return changes in the form of `difference`; a postimage must follow its preimage."""
    listed = images(changes)
    for place, (kind, _) in enumerate(listed):
        if kind == "-U":
            assert listed[place + 1][0] == "+U", f"{listed[place]} is followed by {listed[place + 1 : place + 2]}"
    return Counter(text_of(kind, row) for kind, row in listed)


def all_or_lost(
    read: Callable[[], list[Record]],
    expected: list[Record],
    errors: tuple[type[StructableError], ...] = (ChangesLostError,),
) -> None:
    """Read changes that may expire during the call: all of them, as they were, or an error; never a part."""
    try:
        found = read()
    except errors:
        return
    assert [comparable(row) for row in found] == expected


def settled(feed: ChangeFeed, last: FeedPosition) -> FeedPosition:
    """Return the latest position once it has changed; with full compaction a mark is set after a millisecond."""
    end = time.monotonic() + LONGEST
    while (latest := feed.latest()) == last:
        assert time.monotonic() < end, f"the latest position stays {last} in {LONGEST:g} seconds"
    return latest


def without_gap(storage: Storage, table: str) -> tuple[FeedPosition, State]:
    """Return the rows of a snapshot and its position."""
    with storage.plan_scan(table, splits=2) as plan:
        rows = [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]
        position = plan.position
    assert position is not None
    return position, counted(rows)


class FeedCase(MergeCase):
    """Rules of change feeds."""

    @pytest.fixture
    def fed(self, request: pytest.FixtureRequest) -> Storage:
        """Connect to the fresh store, which has change feeds."""
        self.require("table_types")
        self.require("change_feeds")
        storage: Storage = request.getfixturevalue("storage")
        return storage

    def fed_items(self, storage: Storage, count: int = 0, **options: str) -> ChangeFeed:
        """Create ITEMS with a lookup feed, and insert rows, each in a commit of its own."""
        storage.admin.create(with_feed(ITEMS, **options))
        for key in range(count):
            storage.table("items").insert({"id": key, "n": key})
        return storage.changes("items")
