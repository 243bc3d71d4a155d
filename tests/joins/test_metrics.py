"""What workers report to an OpenTelemetry SDK."""

from __future__ import annotations

import uuid

import pytest

from structable.spark_bridge.joins import JoinWorker
from structable.spark_bridge.joins.failpoints import failpoints
from structable.spi import connect
from tests.metering.sdk import measured

from .support.programs import Crash
from .support.tables import ORDERS, PRODUCTS, join_of


def test_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    with measured(monkeypatch) as metrics, connect(url) as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        orders = storage.table("orders")
        with JoinWorker(join_of(url, "left")) as worker, JoinWorker(join_of(url, "left")):
            worker.step()
            orders.upsert_many({"id": str(number), "product": "y", "pieces": 1} for number in range(3))
            worker.step()
            orders.upsert({"id": "1", "product": "z"})
            orders.upsert({"id": "2", "pieces": 7})
            orders.delete(("0",))
            worker.step()
            named = {"join": "named"}
            assert metrics.number("structable.join.duration", outcome="ok", **named) == 3
            assert metrics.number("structable.join.affected", **named) == 6
            assert metrics.number("structable.join.unchanged", **named) == 1
            changes = metrics.numbers("structable.join.changes", "kind", **named)
            assert changes == {("insert",): 3, ("update",): 1, ("delete",): 1}
            assert [point.value for point in metrics.points()["structable.join.lag"]] == [0.0]  # type: ignore[union-attr]

            def die() -> None:
                raise Crash

            failpoints["staged"] = die
            orders.upsert({"id": "2", "pieces": 8})
            with pytest.raises(Crash):
                worker.step()
            failpoints.clear()
            assert metrics.number("structable.join.duration", outcome="error", **named) == 1
            [lag] = metrics.points()["structable.join.lag"]
            assert lag.value > 0.0  # type: ignore[union-attr]
            worker.step()
            assert [point.value for point in metrics.points()["structable.join.lag"]] == [0.0]  # type: ignore[union-attr]

            with JoinWorker(join_of(url, "left"), small=0) as other:
                orders.upsert({"id": "2", "pieces": 9})
                failpoints["intent_recorded"] = die
                with pytest.raises(Crash):
                    other.step()
                failpoints.clear()
            assert worker.step().affected == 0
            assert worker._instruments.lag > 0.0  # that of the other worker is reported by the same gauge


def test_meter_that_is_given() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from tests.metering.sdk import Metrics

    url = f"memory://{uuid.uuid4().hex}"
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with connect(url) as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        with JoinWorker(join_of(url), meter=provider.get_meter("structable")) as worker:
            worker.step()
            assert Metrics(reader).number("structable.join.duration") == 1
    provider.shutdown()
