"""A forked process counts from 0, and its own calls only."""

import json
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import json, os, sys
import opentelemetry.metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structable.spi import Field, TableSpecification, connect

reader = InMemoryMetricReader()
opentelemetry.metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))

def committed():
    [resource] = reader.get_metrics_data().resource_metrics
    [metric] = [one for one in resource.scope_metrics[0].metrics if one.name == "structable.transactions.committed"]
    return sum(point.value for point in metric.data.data_points)

storage = connect(sys.argv[1])
storage.admin.create(TableSpecification("t", [Field.long("k")], ["k"]))
table = storage.table("t")
for key in range(3):
    table.upsert({"k": key})
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    print(json.dumps([committed(), os.waitstatus_to_exitcode(status)]), flush=True)
else:
    assert storage.closed
    with connect(sys.argv[1]) as own:
        own.table("t").upsert({"k": 9})
        del storage, table
        print(json.dumps([committed(), own.table("t").count()]), flush=True)
os._exit(0)
"""


def test_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, f"leveldb://{tmp_path}/store"]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert [json.loads(line) for line in run.stdout.splitlines()] == [[1, 4], [3, 0]]
