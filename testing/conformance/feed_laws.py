"""The laws that bind the changes of a feed to the states of its table, checked step by step.

The states are those of a naive model or of scans; nothing here knows how a store records changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from structable.spi import Change, ChangesLostError, FeedPosition, Storage, TableSpecification, Value

from .feed_case import State, after, by_version, difference, in_some_order, read_between, settled, texts
from .keyless_rules import counted
from .samples import Record

KEPT = 12
"""The number of states that are remembered."""


class FeedLaws:
    """The states of a table at positions of its feed.

    Parameters
    ----------
    storage : Storage
        The store.
    spec : TableSpecification
        The table, which exists and is empty, with its feed.
    """

    def __init__(self, storage: Storage, spec: TableSpecification) -> None:
        self.storage = storage
        self.spec = spec
        self.producer = spec.options["changelog-producer"]
        self.images = self.producer != "input"
        start = storage.changes(spec.name).latest()
        self.states: list[tuple[FeedPosition, list[Record]]] = [(start, [])]
        self.snapshots: list[tuple[FeedPosition, State]] = []
        self.read: list[tuple[FeedPosition, FeedPosition, list[Change]]] = []

    def change(self, since: FeedPosition, until: FeedPosition, **options: Any) -> list[Change]:  # noqa: ANN401 - passed on
        return read_between(self.storage, self.spec.name, since, until, **options)

    def shown(self, changes: Iterable[Change]) -> list[tuple[object, ...]]:
        return in_some_order(changes, self.producer)

    def snapshot(self, position: FeedPosition, rows: Iterable[Mapping[str, Value]]) -> None:
        """Note the rows of a snapshot and its position."""
        self.snapshots = [*self.snapshots[-2:], (position, counted(rows))]

    def step(self, rows: Iterable[Mapping[str, Value]], chance: random.Random) -> list[Change]:
        """Note the rows as they are now, check the laws, and return what changed since the step before."""
        now = [dict(row) for row in rows]
        feed = self.storage.changes(self.spec.name)
        last, before = self.states[-1]
        moved = self.images and counted(now) != counted(before)
        position = settled(feed, last) if moved else feed.latest()
        assert position >= last
        changes = self.change(last, position)
        commits = by_version(changes)
        if self.images:
            assert after(counted(before), changes) == counted(now)
            for commit in commits:
                texts(commit)
            if not self.spec.keyless and (self.producer == "full-compaction" or len(commits) <= 1):
                assert texts(changes) == difference(before, now, self.spec.primary_key)
        self.states = [*self.states[1 - KEPT :], (position, now)]
        self.check_ranges(chance)
        return changes

    def check_ranges(self, chance: random.Random) -> None:
        """Check some range of remembered states: it concatenates, nets to their difference, and stays the same."""
        places = sorted(chance.choices(range(len(self.states)), k=3))
        (since, old), (middle, _), (until, new) = (self.states[place] for place in places)
        found = self.change(since, until)
        assert self.shown([*self.change(since, middle), *self.change(middle, until)]) == self.shown(found)
        if self.images:
            assert after(counted(old), found) == counted(new)
            if not self.spec.keyless:
                assert texts(self.change(since, until, net=True)) == difference(old, new, self.spec.primary_key)
            for position, state in self.snapshots:
                if position <= until:
                    assert after(state, self.change(position, until)) == counted(new)
        if self.read:
            begin, end, expected = chance.choice(self.read)
            assert self.shown(self.change(begin, end)) == self.shown(expected)
        self.read = [*self.read[-2:], (since, until, found)]

    def expire(self, chance: random.Random) -> None:
        """Drop the changes up to a remembered state; what came before is lost, the rest stays."""
        place = chance.randrange(len(self.states))
        floor, latest = self.states[place][0], self.states[-1][0]
        kept = self.change(floor, latest)
        feed = self.storage.changes(self.spec.name)
        assert feed.expire(floor) == feed.earliest() == floor
        assert self.shown(self.change(floor, latest)) == self.shown(kept)
        assert self.shown(read_between(self.storage, self.spec.name, None, latest)) == self.shown(kept)
        for position, _ in self.states[:place]:
            if position < floor:
                with pytest.raises(ChangesLostError):
                    feed.read(position)
        self.states = self.states[place:]
        self.snapshots = [one for one in self.snapshots if one[0] >= floor]
        self.read = [one for one in self.read if one[0] >= floor]

    def versions(self, changes: Iterable[Change]) -> list[int | None]:
        """Return the versions of changes, each once."""
        return [commit[0].version for commit in by_version(changes)]
