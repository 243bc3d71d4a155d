"""`Instruments`: the OpenTelemetry instruments of one table, and nothing at all where no SDK is set up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from threading import Lock
from typing import Literal
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, Counter, Meter, Observation

from structable.spi.authors import duration_histogram, recording_meter, records

CallOutcome = Literal["ok", "not_found", "error"]

_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class CacheGauge:
    """The number of rows that one cache holds: set on the event loop, read by the SDK's threads."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.rows = 0


class Instruments:
    """The metrics of a table: a call that succeeds at the first try adds to `structable.table.duration` alone.

    If nothing records, `enabled` is false and every method returns at once; then the caller need not take the time
    either. The SDK must be set up before the table is opened, unless the caller gives a meter.

    Parameters
    ----------
    table : str
        The table's name, an attribute of every measurement.
    meter : opentelemetry.metrics.Meter, optional
        Where to report; the meter `structable` of the program's SDK by default.
    """

    def __init__(self, table: str, meter: Meter | None = None) -> None:
        self.table = table
        if meter is None:
            meter = recording_meter()
        elif not isinstance(meter, Meter):
            raise TypeError(f"meter is {meter!r}; it must be a Meter of opentelemetry.metrics")
        elif not records(meter):
            meter = None
        self.enabled = meter is not None
        self._meter = meter
        self._attributes: dict[tuple[str, str], Mapping[str, str]] = {}
        if meter is not None:
            self._create(meter)

    def _create(self, meter: Meter) -> None:
        seconds = partial(duration_histogram, meter)
        self._duration = seconds("structable.table.duration", "Time of one call of the table's source, an attempt")
        self._throttled = seconds("structable.table.throttled", "Time that a call waited for its rate limit")
        self._retried = seconds("structable.table.retried", "Time of a call that needed a retry, pauses included")
        self._batch_size = meter.create_histogram(
            "structable.table.batch.size",
            unit="{operation}",
            description="Operations sent together",
            explicit_bucket_boundaries_advisory=_SIZES,
        )
        count = partial(_counter, meter)
        self._retries = count("retries", "{retry}", "Attempts after the first")
        self._exhausted = count("retries.exhausted", "{call}", "Calls that failed when their retries were spent")
        self._hits = count("cache.hits", "{row}", "Look-ups answered from the cache")
        self._misses = count("cache.misses", "{row}", "Look-ups that the cache had to load or to wait for")
        self._defaults = count("defaults", "{row}", "Defaults of updates: put, or lost because putting them failed")

    def called(self, operation: str, seconds: float, outcome: CallOutcome) -> None:
        """Report one call of the source."""
        if self.enabled:
            self._duration.record(seconds, self._with(operation, outcome))

    def throttled(self, operation: str, seconds: float) -> None:
        """Report that a call waited for its rate limit."""
        if self.enabled:
            self._throttled.record(seconds, self._with(operation))

    def retried(self, operation: str, seconds: float, retries: int, exhausted: bool) -> None:
        """Report the end of a call that needed a retry.

        Parameters
        ----------
        operation : str
            The operation.
        seconds : float
            From the first attempt to the end, pauses included.
        retries : int
            The attempts after the first.
        exhausted : bool
            Whether the call failed because the policy allowed no more of them.
        """
        if self.enabled:
            attributes = self._with(operation)
            self._retried.record(seconds, attributes)
            if retries:
                self._retries.add(retries, attributes)
            if exhausted:
                self._exhausted.add(1, attributes)

    def batch(self, operation: str, size: int) -> None:
        """Report operations of one kind that were sent together."""
        if self.enabled:
            self._batch_size.record(size, self._with(operation))

    def hit(self, rows: int = 1) -> None:
        """Report rows found in the cache."""
        if self.enabled:
            self._hits.add(rows, self._with("get"))

    def miss(self, rows: int = 1) -> None:
        """Report rows not found in the cache."""
        if self.enabled:
            self._misses.add(rows, self._with("get"))

    def default(self, outcome: Literal["put", "lost"]) -> None:
        """Report that an update found no row and applied its default, or lost that race."""
        if self.enabled:
            self._defaults.add(1, self._with("update", outcome))

    def cache_gauge(self) -> CacheGauge:
        """Return the gauge of a new cache of this table, reported for as long as the cache refers to it."""
        gauge = CacheGauge(self.table)
        if self._meter is not None:
            _watch(self._meter, gauge)
        return gauge

    def _with(self, operation: str, outcome: str = "") -> Mapping[str, str]:
        known = self._attributes.get((operation, outcome))
        if known is None:
            known = {"table": self.table, "operation": "put" if operation == "upsert" else operation}
            if outcome:
                known["outcome"] = outcome
            self._attributes[operation, outcome] = known
        return known


def _counter(meter: Meter, name: str, unit: str, description: str) -> Counter:
    return meter.create_counter(f"structable.table.{name}", unit=unit, description=description)


# OpenTelemetry keeps the callbacks that an observable gauge was first created with, for as long as the meter lives: one
# callback for each meter observes the caches that are still in use.
_watched: WeakKeyDictionary[Meter, WeakSet[CacheGauge]] = WeakKeyDictionary()
_watching = Lock()


def _watch(meter: Meter, gauge: CacheGauge) -> None:
    with _watching:
        gauges = _watched.get(meter)
        if gauges is None:
            gauges = _watched[meter] = WeakSet()
            meter.create_observable_gauge(
                "structable.table.cache.rows",
                callbacks=[partial(_observe, gauges)],
                unit="{row}",
                description="Rows that the cache holds, as of its last change",
            )
        gauges.add(gauge)


def _observe(gauges: WeakSet[CacheGauge], options: CallbackOptions) -> Iterable[Observation]:
    with _watching:
        held = list(gauges)
    rows: dict[str, int] = {}
    for gauge in held:
        rows[gauge.table] = rows.get(gauge.table, 0) + gauge.rows
    return [Observation(count, {"table": table}) for table, count in rows.items()]
