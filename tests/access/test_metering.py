"""The program's meter is found where an SDK is set up, and nothing of OpenTelemetry is loaded where none can be."""

import os
import subprocess
import sys

from opentelemetry.metrics import NoOpMeter, get_meter

from structable.spi.authors import records

LOOK = """
import sys
{before}
from structable.spi.authors import recording_meter
meter = recording_meter()
print(None if meter is None else (type(meter).__module__.startswith("opentelemetry.sdk"), meter.name))
print("opentelemetry" in sys.modules)
"""


def _look(before: str, **environment: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    return run.stdout.splitlines()


def test_program_without_opentelemetry_has_no_meter_and_loads_none() -> None:
    assert _look("") == ["None", "False"]


def test_api_without_an_sdk_has_no_meter() -> None:
    assert _look("import opentelemetry.metrics") == ["None", "True"]


def test_sdk_has_the_meter_structable() -> None:
    setting_up = (
        "from opentelemetry.metrics import set_meter_provider\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "set_meter_provider(MeterProvider())"
    )
    assert _look(setting_up) == ["(True, 'structable')", "True"]


def test_provider_named_in_the_environment_is_found() -> None:
    assert _look("", OTEL_PYTHON_METER_PROVIDER="sdk_meter_provider") == ["(True, 'structable')", "True"]


def test_meter_of_the_api_may_record_later() -> None:
    assert records(get_meter("early"))
    assert not records(NoOpMeter("never"))
