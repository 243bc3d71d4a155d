"""A program without an OpenTelemetry SDK gets the backend's own storage, and no import of OpenTelemetry."""

import os
import subprocess
import sys

import opentelemetry.metrics
import pytest
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider

from structable.backends.ordered.storage import OrderedStorage
from structable.spi import connect
from structable.spi._measuring import MeasuringStorage

from .sdk import Metrics, measured

_ALONE = """
import sys
from structable.spi import connect
with connect("memory://") as storage:
    print(type(storage).__name__, *[name for name in sys.modules if name.startswith("opentelemetry")])
import opentelemetry.metrics
with connect("memory://") as storage:
    print(type(storage).__name__, "structable.spi._measuring" in sys.modules)
from opentelemetry.sdk.metrics import MeterProvider
opentelemetry.metrics.set_meter_provider(MeterProvider())
with connect("memory://") as storage:
    print(type(storage).__name__)
"""


def test_storage_is_the_backends_own() -> None:
    """Neither without the API, nor with the API alone: a read then costs what it does without metrics."""
    run = subprocess.run([sys.executable, "-c", _ALONE], check=True, stdout=subprocess.PIPE, text=True)
    assert run.stdout.splitlines() == ["OrderedStorage", "OrderedStorage False", "MeasuringStorage"]


def test_disabled_sdk() -> None:
    command = [sys.executable, "-c", _ALONE]
    environment = {**os.environ, "OTEL_SDK_DISABLED": "true"}
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    assert run.stdout.splitlines()[-1] == "OrderedStorage"


def test_no_op_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    provider: MeterProvider = NoOpMeterProvider()
    monkeypatch.setattr(opentelemetry.metrics, "get_meter_provider", lambda: provider)
    with connect("memory://") as storage:
        assert type(storage) is OrderedStorage


def test_two_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each storage reports to the provider of the moment when it was connected."""
    with measured(monkeypatch) as first, connect("memory://a") as storage:
        assert isinstance(storage, MeasuringStorage)
        with measured(monkeypatch) as second, connect("memory://b") as other:
            storage.run(lambda transaction: None)
            other.run(lambda transaction: None)
            assert stores(first) == {"memory://a"}
            assert stores(second) == {"memory://b"}


def stores(metrics: Metrics) -> set[str]:
    return {key[0] for key in metrics.numbers("structable.transactions.begun", "store")}
