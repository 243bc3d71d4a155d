"""`IntentSet`: a write set as intents, by space, and which of them are checked against other transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from structable.backends.hbase.layout import MARKER, Layout
from structable.backends.ordered.engine import SPACE_BYTES, WriteSet, stamped
from structable.backends.ordered.schema.catalog import CATALOG_SPACE

from .gate import Appends
from .intents import steps_intent, write_intent


@dataclass(slots=True)
class SpaceIntents:
    """Row to intent: `checked` rows conflict with other transactions, `derived` ones follow from them."""

    checked: dict[bytes, bytes] = field(default_factory=dict)
    derived: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def all(self) -> Mapping[bytes, bytes]:
        return {**self.checked, **self.derived} if self.derived else self.checked

    def intents(self) -> Iterator[tuple[bytes, bytes]]:
        return chain(self.checked.items(), self.derived.items())


class IntentSet:
    """A write set as intents."""

    def __init__(self, layout: Layout, writes: WriteSet) -> None:
        self._layout = layout
        self.spaces: dict[bytes, SpaceIntents] = {}
        space, checked = b"", {}
        for key, value in writes.writes.items():
            if not space or not key.startswith(space):
                space = key[:SPACE_BYTES]
                checked = self._space(space).checked
            row = key[SPACE_BYTES:] if space != CATALOG_SPACE else layout.row(key)
            checked[row] = b"D" if value is None else b"P" + value
        for key, steps in writes.increments.items():
            self._space(key).checked[layout.row(key)] = steps_intent(steps)
        for key, value in writes.derived.items():
            self._space(key).derived[layout.row(key)] = write_intent(value)
        if writes.changed_spaces:
            # The catalog's own marker carries the new epoch, and orders all schema changes.
            for space in (CATALOG_SPACE, *writes.changed_spaces):
                self._space(space).checked[layout.row(space + MARKER)] = write_intent(MARKER)
        self.markers = writes.spaces - writes.changed_spaces  # spaces whose schema must be unchanged since the snapshot
        self.schemas = sorted(writes.changed_spaces)  # spaces whose schema the write set changes
        self.steps = bool(writes.increments)
        now = time.time_ns() // 1_000
        self.appends: Appends = {
            feed: {number: stamped(now, payload) for number, payload in enumerate(payloads)}
            for feed, payloads in writes.appends.items()
            if payloads
        }

    def _space(self, key: bytes) -> SpaceIntents:
        space = key[:SPACE_BYTES]
        found = self.spaces.get(space)
        if found is None:
            found = self.spaces[space] = SpaceIntents()
        return found

    @property
    def rows(self) -> int:
        """The number of checked rows."""
        return sum(len(one.checked) for one in self.spaces.values())

    @property
    def kinds(self) -> Mapping[bytes, Mapping[bytes, int]]:
        """Space to row to the first byte of its intent."""
        return {space: {row: intent[0] for row, intent in one.intents()} for space, one in self.spaces.items()}
