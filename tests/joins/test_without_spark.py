"""Joins need no PySpark, and no OpenTelemetry; nor does the command."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "opentelemetry", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin, JoinProgress, JoinWorker
from structable.spi import Field, TableSpecification, connect
import structable.spark_bridge.joins.command

feed = {"changelog-producer": "lookup"}
with connect("memory://x") as storage:
    storage.admin.create(TableSpecification("a", [Field.long("id"), Field.long("b")], ["id"], ["b"], feed))
    storage.admin.create(TableSpecification("b", [Field.long("id"), Field.int("n")], ["id"], options=feed))
    join = ForeignKeyJoin(
        "ab", TableRef("memory://x", "a"), TableRef("memory://x", "b"), ["b"], result=TableRef("memory://x", "ab")
    )
    storage.table("b").upsert({"id": 1, "n": 5})
    with JoinWorker(join, small=0) as worker:
        worker.step()
        storage.table("a").upsert({"id": 1, "b": 1})
        step = worker.step()
        assert isinstance(step, JoinProgress)
        assert (step.affected, step.inserted, storage.table("ab").count()) == (1, 1, 1)
        assert worker.verify() == 0
try:
    from structable.spark_bridge import register
except ModuleNotFoundError as missing:
    print(missing)
"""


def test_joins_run_without_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the Spark bridge needs pyspark, which is not installed")


def test_exports_are_no_modules() -> None:
    """A module that bears the name of an export would hide it, once it is imported by anyone."""
    program = (
        "from structable import spark_bridge\n"
        "import pkgutil\n"
        "print(sorted({one.name for one in pkgutil.iter_modules(spark_bridge.__path__)} & set(spark_bridge.__all__)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
