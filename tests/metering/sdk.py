"""An OpenTelemetry SDK in the program, whose metrics a test reads."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import opentelemetry.metrics
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint


class Metrics:
    """What an SDK collects of the library."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def points(self) -> dict[str, list[NumberDataPoint | HistogramDataPoint]]:
        """Return all data points by instrument."""
        data = self._reader.get_metrics_data()
        scopes = [] if data is None else [scope for one in data.resource_metrics for scope in one.scope_metrics]
        return {
            metric.name: list(metric.data.data_points)  # type: ignore[arg-type]  # no exponential histograms here
            for scope in scopes
            if scope.scope.name == "structable"
            for metric in scope.metrics
        }

    def numbers(self, name: str, *names: str, **wanted: str) -> Counter[tuple[str, ...]]:
        """Return the sums of an instrument's points with the wanted attributes, by the values of the named ones."""
        found: Counter[tuple[str, ...]] = Counter()
        for point in self.points().get(name, []):
            attributes = dict(point.attributes or {})
            if wanted.items() <= attributes.items():
                number = point.count if isinstance(point, HistogramDataPoint) else point.value
                found[tuple(str(attributes.get(each, "")) for each in names)] += int(number)
        return found

    def number(self, name: str, **wanted: str) -> int:
        """Return the sum of an instrument's points with the wanted attributes; of a histogram, their counts."""
        return sum(self.numbers(name, **wanted).values())

    def transactions(self, **wanted: str) -> dict[str, int]:
        """Return the numbers of transactions that are not 0, by what became of them."""
        prefix = "structable.transactions."
        names = [name for name in self.points() if name.startswith(prefix)]
        found = {name.removeprefix(prefix): self.number(name, **wanted) for name in names}
        return {name: number for name, number in found.items() if number}


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    """Give the program an SDK; to be called before `connect`."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(opentelemetry.metrics, "get_meter_provider", lambda: provider)
    try:
        yield Metrics(reader)
    finally:
        provider.shutdown()
