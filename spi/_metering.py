"""`recording_meter`: the OpenTelemetry meter of the program, where the program has set an SDK up.

The SPI does not depend on OpenTelemetry. Its API is imported only where the program has imported it already, or names a
provider in the environment; elsewhere nothing can record, and the look-up costs a look into `sys.modules`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

SECONDS = (
    *(0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The bounds of the buckets of durations. Those that OpenTelemetry has by default suit milliseconds."""

_NAME = "structable"
_API = "opentelemetry.metrics"
_PROVIDER_VARIABLE = "OTEL_PYTHON_METER_PROVIDER"


def recording_meter() -> Meter | None:
    """Return the meter `structable` of the program's SDK; None where no SDK is set up at the time of the call."""
    if _API not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
        return None
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    provider = metrics.get_meter_provider()
    # The API's own providers do nothing, or wait for an SDK; OTEL_SDK_DISABLED makes an SDK's meters do nothing.
    if type(provider).__module__.startswith(_API):
        return None
    meter = provider.get_meter(_NAME)
    return meter if records(meter) else None


def records(meter: Meter) -> bool:
    """Return whether a meter that the caller chose may record.

    False for the API's no-op meter alone: a meter taken from the API before the SDK was set up records from then on.
    """
    from opentelemetry.metrics import NoOpMeter

    return not isinstance(meter, NoOpMeter)


def duration_histogram(meter: Meter, name: str, description: str) -> Histogram:
    """Return a histogram of seconds."""
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=SECONDS)


def observed_counter(
    meter: Meter, name: str, unit: str, description: str, read: Callable[[], Iterable[tuple[int, Mapping[str, str]]]]
) -> None:
    """Make a counter whose numbers, with their attributes, the SDK requests when it collects."""
    from opentelemetry.metrics import Observation

    def observe(options: CallbackOptions) -> list[Observation]:
        return [Observation(number, attributes) for number, attributes in read()]

    meter.create_observable_counter(name, [observe], unit, description)
