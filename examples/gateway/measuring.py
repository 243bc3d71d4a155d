"""Metrics of the table, the store and the requests, as Prometheus reads them."""

from __future__ import annotations

from time import perf_counter

from aiohttp import web
from aiohttp.typedefs import Handler
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measuring:
    """OpenTelemetry's SDK for this process, set up when it is made: before the store is opened."""

    def __init__(self) -> None:
        self._provider = MeterProvider([PrometheusMetricReader()])
        metrics.set_meter_provider(self._provider)
        self._duration = metrics.get_meter("gateway").create_histogram(
            "gateway.request.duration", "s", "Time of a request", explicit_bucket_boundaries_advisory=_SECONDS
        )

    def add_to(self, app: web.Application) -> None:
        """Add the route to an application, and measure its requests."""
        app.router.add_get("/metrics", self._metrics)
        app.middlewares.insert(0, self._measure)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @web.middleware
    async def _measure(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        begun = perf_counter()
        answer = await handler(request)
        self._duration.record(perf_counter() - begun, {"method": request.method, "status": answer.status})
        return answer

    def close(self) -> None:
        """End the SDK."""
        self._provider.shutdown()
