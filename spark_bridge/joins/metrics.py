"""`JoinInstruments`: the OpenTelemetry instruments of one join; without an SDK they record nothing."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from structable.spi.authors import duration_histogram, recording_meter, records

from .progress import JoinProgress

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter


class JoinInstruments:
    """The metrics that a worker reports about its join.

    Parameters
    ----------
    join : str
        The join's name, an attribute of every measurement.
    meter : opentelemetry.metrics.Meter, optional
        The meter to report to; by default the meter `structable` of the program's SDK.

    Raises
    ------
    TypeError
        If `meter` is not a meter.
    """

    def __init__(self, join: str, meter: Meter | None = None) -> None:
        self.join = join
        self._attributes = {"join": join}
        self._oldest: float | None = None
        if meter is None:
            meter = recording_meter()
        else:
            _require_meter(meter)
            meter = meter if records(meter) else None
        self.enabled = meter is not None
        if meter is not None:
            self._create(meter)

    def _create(self, meter: Meter) -> None:
        self._duration = duration_histogram(meter, "structable.join.duration", "Time of one step of a join")
        self._affected = meter.create_counter("structable.join.affected", "{row}", "Left rows that were joined again")
        self._changes = meter.create_counter("structable.join.changes", "{row}", "Rows of the result that were written")
        unchanged = "Left rows that were joined again and gave the row that was there"
        self._unchanged = meter.create_counter("structable.join.unchanged", "{row}", unchanged)
        _watch(meter, self)

    @property
    def lag(self) -> float:
        """The seconds since the oldest known commit that is not joined yet."""
        oldest = self._oldest
        return 0.0 if oldest is None else max(0.0, time.time() - oldest)

    def behind(self, *oldest: dt.datetime | None) -> None:
        """Record, for each table, the time of the oldest commit that the result lacks."""
        found = [one.timestamp() for one in oldest if one is not None]
        self._oldest = min(found, default=None)

    @contextmanager
    def step(self) -> Iterator[list[JoinProgress]]:
        """Time a step; the block adds its progress to the list, unless it fails."""
        began = time.perf_counter()
        done: list[JoinProgress] = []
        outcome = "error"
        try:
            yield done
            outcome = "ok"
        finally:
            if self.enabled:
                self._duration.record(time.perf_counter() - began, {**self._attributes, "outcome": outcome})
                for progress in done:
                    self._count(progress)

    def caught_up(self) -> None:
        """Record that the result has every known commit."""
        self._oldest = None

    def _count(self, progress: JoinProgress) -> None:
        for counter, rows in ((self._affected, progress.affected), (self._unchanged, progress.unchanged)):
            if rows:
                counter.add(rows, self._attributes)
        kinds = (("insert", progress.inserted), ("update", progress.updated), ("delete", progress.deleted))
        for kind, rows in kinds:
            if rows:
                self._changes.add(rows, {**self._attributes, "kind": kind})


_watched: WeakKeyDictionary[Meter, WeakSet[JoinInstruments]] = WeakKeyDictionary()
_lock = Lock()


def _watch(meter: Meter, instruments: JoinInstruments) -> None:
    """Report the lag of a join by the meter's one gauge while the worker holds the instruments."""
    with _lock:
        known = _watched.get(meter)
        if known is not None:
            known.add(instruments)
            return
        living = _watched[meter] = WeakSet([instruments])
    from opentelemetry.metrics import Observation

    def observe(options: CallbackOptions) -> list[Observation]:
        with _lock:
            found = list(living)
        lags: dict[str, float] = {}
        for one in found:  # several workers of a join report one lag, the largest
            lags[one.join] = max(lags.get(one.join, 0.0), one.lag)
        return [Observation(seconds, {"join": join}) for join, seconds in lags.items()]

    meter.create_observable_gauge("structable.join.lag", [observe], "s", "Time since the oldest commit not joined")


def _require_meter(meter: object) -> None:
    from opentelemetry.metrics import Meter

    if not isinstance(meter, Meter):
        raise TypeError(f"meter is {meter!r}; it must be a Meter of opentelemetry.metrics")
