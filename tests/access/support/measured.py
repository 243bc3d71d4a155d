"""Metrics as a program's SDK sees them: `Measured` has a meter of its own, and reads what was recorded."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric, NumberDataPoint

Attributes = tuple[tuple[str, object], ...]


class Measured:
    """A meter of an SDK of its own."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.meter: Meter = self._provider.get_meter("structable")

    def read(self) -> dict[str, dict[Attributes, float]]:
        """Return by instrument and sorted attributes: counters' and gauges' values, and histograms' counts."""
        return {
            name: {attributes: value for attributes, (value, _) in points.items()}
            for name, points in self._points().items()
        }

    def sums(self, name: str) -> dict[Attributes, float]:
        """Return a histogram's sums."""
        return {attributes: total for attributes, (_, total) in self._points().get(name, {}).items()}

    def units(self) -> dict[str, str]:
        """Return the unit of every instrument that has recorded."""
        return {metric.name: metric.unit or "" for metric in self._metrics()}

    def _points(self) -> dict[str, dict[Attributes, tuple[float, float]]]:
        found: dict[str, dict[Attributes, tuple[float, float]]] = {}
        for metric in self._metrics():
            points = found.setdefault(metric.name, {})
            for point in metric.data.data_points:
                attributes = tuple(sorted((point.attributes or {}).items()))
                if isinstance(point, HistogramDataPoint):
                    points[attributes] = (point.count, point.sum)
                elif isinstance(point, NumberDataPoint):
                    points[attributes] = (point.value, point.value)
        return {name: points for name, points in found.items() if points}

    def _metrics(self) -> Iterator[Metric]:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                yield from scope.metrics
