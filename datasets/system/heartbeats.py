"""Heartbeats: in which minutes runs were alive."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from structable.datasets.identifiers import RunRef
from structable.datasets.tables.runs import HEARTBEATS, Heartbeat, Run
from structable.spi import Range

from .context import Dataset

__all__ = ["Heartbeats"]


class Heartbeats(Dataset):
    """The dataset `heartbeats`: a row for each run and minute."""

    def beat(self, run: Run, at: dt.datetime | None = None) -> None:
        """Keep that a run is alive in the minute of `at`, and its record."""
        kept = Heartbeat(**run.run_ref._asdict(), minute=_minute(self._context.now(at)), record=run)
        self._context.records(HEARTBEATS).put(kept)

    def between(self, namespaces: Iterable[str], begin: dt.datetime, end: dt.datetime) -> dict[RunRef, Run]:
        """Return the newest record of each run with a heartbeat from the minute of `begin` until before `end`."""
        begin, end = _minute(self._context.now(begin)), self._context.now(end)
        found: dict[RunRef, Run] = {}
        for namespace in namespaces:
            with self._context.records(HEARTBEATS).scan(Range((namespace, begin), (namespace, end))) as beats:
                for beat in beats:
                    found[beat.record.run_ref] = beat.record
        return found

    def expire(self, namespace: str, before: dt.datetime) -> int:
        """Delete a namespace's heartbeats of minutes before `before`, and return their number."""
        within = Range((namespace,), (namespace, self._context.now(before)))
        return self._context.records(HEARTBEATS).delete_all(within)


def _minute(at: dt.datetime) -> dt.datetime:
    return at.replace(second=0, microsecond=0)
