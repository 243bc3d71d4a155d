import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from structable.spark_bridge import register
from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.jvm import optimizer_rules as optimizer_rules_module
from structable.spark_bridge.source import bound_data_source
from structable.spi import Storage, UnsupportedOperationError
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import RUNS, create_runs, runs
from tests.spark.test_pushdown import filters_itself

APPLICATION = """
import sys, time
from pyspark.sql import SparkSession
from structable.spark_bridge import register

url, plan, go, done = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
frame = spark.read.format("structable").option("url", url).option("table", "runs").load()
frame.rdd.getNumPartitions()
open(plan, "w").close()
while True:
    try:
        open(go).close()
        break
    except FileNotFoundError:
        time.sleep(0.1)
count = len(frame.collect())
frame.limit(5).selectExpr("'copy' as app", "started").write.format("structable").option("url", url).option(
    "table", "runs"
).mode("append").save()
with open(done, "w") as file:
    file.write(str(count))
spark.stop()
"""


def test_registering_again_changes_nothing(tables: Tables, storage: Storage, spark: SparkSession) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs")
    coordinator = applications.coordinators[spark.sparkContext]
    rules = optimizer_rules(spark)
    register(spark)
    register(spark)
    assert applications.coordinators[spark.sparkContext] is coordinator
    assert optimizer_rules(spark) == rules
    assert frame.count() == 10
    assert tables.read("runs").where("started > 7").count() == 2


def test_registering_again_takes_no_time(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is asked nothing: a pipeline registers its session at each run."""
    register(spark)
    monkeypatch.setattr(ClientServerConnection, "send_command", None)
    register(spark)


def optimizer_rules(spark: SparkSession) -> int:
    return str(spark._jsparkSession.sessionState().optimizer().batches().mkString()).count("StructableScanIsolation")


@every_store
def test_another_session_needs_its_own_call(storage: Storage, url: str, spark: SparkSession) -> None:
    create_runs(storage, 10)
    other = spark.newSession()
    with pytest.raises(Exception, match=r"DATA_SOURCE_NOT_(FOUND|EXIST)"):
        Tables(other, url).read("runs")
    register(other)
    frame = Tables(other, url).read("runs")
    assert frame.where("started > 7").count() == 2
    assert frame.count() == 10


def test_a_session_elsewhere_is_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match=r"types\.SimpleNamespace is not a session of this process"):
        register(cast(SparkSession, SimpleNamespace()))


def test_without_isolated_scans_no_filter_is_pushed_down(
    storage: Storage, url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 10)
    other = spark.newSession()
    monkeypatch.setattr(optimizer_rules_module, "has_rule", lambda session, name: False)
    monkeypatch.setattr(optimizer_rules_module, "add_rule", lambda session, name, java, **others: None)
    with (
        pytest.warns(UserWarning, match="no filters are pushed down"),
        pytest.warns(UserWarning, match="takes no guard of writes .* do not use saveAsTable"),
    ):
        register(other)

    # The session has the rule in truth, which passes over a format of another name.
    class Unknown(bound_data_source(coordinator_of(other).client)):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "without-isolation"

    other.dataSource.register(Unknown)
    frame = other.read.format("without-isolation").option("url", url).option("table", "runs").load()
    assert filters_itself(frame.where("started > 7"))
    assert frame.where("started > 7").count() == 2
    assert frame.count() == 10


def test_two_applications_at_once(tables: Tables, storage: Storage, tmp_path: Path) -> None:
    create_runs(storage, 2000)
    plan, go, done = tmp_path / "plan", tmp_path / "go", tmp_path / "done"
    other = subprocess.Popen([sys.executable, "-c", APPLICATION, tables.url, plan, go, done])
    try:
        deadline = time.monotonic() + 240
        while not plan.exists():
            assert other.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        tables.write(tables.frame(RUNS, runs(100, first=5000)), "runs")
        assert tables.read("runs").count() == 2100
        go.touch()
        assert other.wait(240) == 0
    finally:
        other.kill()
        other.wait()
    assert done.read_text() == "2000"
    assert tables.read("runs").where("app = 'copy'").count() == 5


def test_spark_refuses_a_format_that_was_not_registered(spark: SparkSession) -> None:
    with pytest.raises((AnalysisException, Exception), match=r"DATA_SOURCE_NOT_(FOUND|EXIST)"):
        spark.newSession().read.format("structable").load()
