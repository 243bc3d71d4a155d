"""The processor time at the end of a run is that of its processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processors import Processors

WORK = "import time\nwhile time.process_time() < 0.5: pass"


def test_time_of_living_ended_and_short_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRUCTABLE_PYTEST_RUN", raising=False)
    processors = Processors.started()
    assert processors is not None
    assert Processors.started() is None, "a run within the run is not watched apart"
    subprocess.run([sys.executable, "-c", WORK], check=True)
    # A shell that becomes another program, which still runs at the end.
    program = f"{WORK}\nprint()\ninput()"
    command = ["sh", "-c", 'exec "$0" -c "$1" pyspark.daemon', sys.executable, program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        assert living.stdout is not None
        living.stdout.readline()
        seconds = processors.stop()
        living.kill()
    assert seconds["pytest"] > 0
    assert seconds["other"] >= 0.4
    assert seconds["Spark's Python"] >= 0.4
