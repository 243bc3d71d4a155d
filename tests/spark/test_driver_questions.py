"""The driver's JVM asks the coordinator for schemas and plans, without a Python process of Spark's between them."""

import json
import secrets
import socket
import threading
from multiprocessing import AuthenticationError

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructField, StructType

from structable.spark_bridge import register
from structable.spark_bridge.base.python_workers import acknowledge
from structable.spark_bridge.base.types import spark_schema
from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.coordinator.channel import Channel, open_channel
from structable.spark_bridge.coordinator.coordinator import Coordinator
from structable.spark_bridge.jvm.scan_requests import REQUEST_KEYS
from structable.spi import Storage
from tests.spark.conftest import Tables
from tests.spark.support.catalogs import catalog_of
from tests.spark.support.samples import RUNS, create_runs

KEYS = 2_000


@pytest.fixture
def planners(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the requests of Python processes, as they come."""
    return watched(spark, monkeypatch)


def watched(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    asked: list[object] = []
    listener = applications.coordinators[spark.sparkContext]._planners
    serve = listener._serve

    def counted(channel: Channel) -> None:
        asked.append(channel)
        serve(channel)

    monkeypatch.setattr(listener, "_serve", counted)
    return asked


@pytest.fixture
def unreachable(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the coordinator refuse the JVM."""
    monkeypatch.setattr(applications.coordinators[spark.sparkContext]._questions, "_secret", b"another")


def test_a_query_starts_no_planning_process(tables: Tables, storage: Storage, planners: list[object]) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs")
    planners.clear()
    joined = frame.where("started > 3").join(frame.where("status = 'OK'"), ["app", "started"])
    assert joined.count() == frame.where("started > 3 and status = 'OK'").count()
    assert not planners


def test_a_catalog_starts_no_planning_process(
    spark: SparkSession, storage: Storage, url: str, planners: list[object]
) -> None:
    create_runs(storage, 10)
    with catalog_of(spark, url) as name:
        assert spark.sql(f"select count(*) from {name}.runs where started > 7").collect()[0][0] == 2
    assert not planners


def test_a_coordinator_that_replaces_another_plans(
    tables: Tables, storage: Storage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 10)
    applications.coordinators[spark.sparkContext].close()
    register(spark)
    frame = tables.read("runs")
    planners = watched(spark, monkeypatch)
    assert frame.where("started > 3").join(frame.where("status = 'OK'"), ["app", "started"]).count() == 4
    with catalog_of(spark, tables.url) as name:
        assert spark.sql(f"select count(*) from {name}.runs where started > 7").collect()[0][0] == 2
    assert not planners


@pytest.mark.usefixtures("unreachable")
def test_without_the_coordinator_a_python_process_plans(
    tables: Tables, storage: Storage, planners: list[object]
) -> None:
    create_runs(storage, 10)
    assert tables.read("runs").where("started > 7").count() == 2
    assert planners


@pytest.mark.parametrize("reachable", [True, False])
def test_errors_of_planning_are_the_same(
    request: pytest.FixtureRequest, tables: Tables, storage: Storage, reachable: bool
) -> None:
    create_runs(storage, 10)
    frame = tables.read("runs")
    assert frame.count() == 10
    storage.admin.drop("runs")
    if not reachable:
        request.getfixturevalue("unreachable")
    with pytest.raises(AnalysisException) as caught:
        frame.collect()
    assert caught.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "Failed to initialize Python data source reader" in str(caught.value)
    assert "TableNotFoundError: table 'runs' does not exist" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_lost_answer_is_an_error(
    tables: Tables, storage: Storage, spark: SparkSession, planners: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is not asked again after its answer was lost: the coordinator may have done what it asks for."""
    create_runs(storage, 10)
    frame = tables.read("runs")
    planners.clear()
    monkeypatch.setattr(applications.coordinators[spark.sparkContext]._questions, "_serve", lambda channel: None)
    with pytest.raises(AnalysisException, match="the coordinator in the driver ended before it answered"):
        frame.collect()
    assert not planners


def test_a_stopped_stream_is_no_lost_coordinator(
    tables: Tables, storage: Storage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark interrupts the thread that plans, and must see that it did."""
    create_runs(storage, 10)
    joined = spark.readStream.format("rate").load().join(tables.read("runs"), col("value") == col("started"))
    asked, over = threading.Event(), threading.Event()

    def slow(channel: Channel) -> None:
        asked.set()
        over.wait(60)

    monkeypatch.setattr(applications.coordinators[spark.sparkContext]._questions, "_serve", slow)
    query = joined.writeStream.format("noop").start()
    try:
        assert asked.wait(60)
        query.stop()
        assert query.exception() is None
    finally:
        over.set()
        query.stop()


def test_a_task_carries_the_keys_of_a_filter_once(spark: SparkSession, tables: Tables, storage: Storage) -> None:
    create_runs(storage, 10)
    texts = [f"status of many letters {number}" for number in range(KEYS)]
    first, *others = spark_schema(RUNS).fields
    where = json.dumps(["in", "status", texts])
    schema = StructType([StructField(first.name, first.dataType, False, {REQUEST_KEYS["WHERE"]: where}), *others])
    options = {"url": tables.url, "table": "runs"}
    coordinator = applications.coordinators[spark.sparkContext]
    _, function, *_ = answer(
        coordinator, question="plan", names=[*options], values=[*options.values()], schema=schema.json()
    )
    assert function.count(texts[-1].encode()) == 1


def answer(coordinator: Coordinator, **question: object) -> list[bytes]:
    """Return the messages of the answer to a question."""
    host, port, secret = coordinator.driver_address
    with open_channel((host, port), secret) as channel:
        channel.send_bytes(json.dumps(question).encode())
        return [channel.recv_bytes() for _ in range(int(channel.recv_bytes()))]


def test_a_stranger_gets_no_answer(spark: SparkSession) -> None:
    host, port, _ = applications.coordinators[spark.sparkContext].driver_address
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        open_channel((host, port), secrets.token_bytes(32))


def test_clients_that_end_are_no_errors(
    tables: Tables, storage: Storage, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    create_runs(storage, 10)
    coordinator = applications.coordinators[spark.sparkContext]
    host, port, secret = coordinator.driver_address
    open_channel((host, port), secret).close()
    with open_channel((host, port), secret) as channel:
        names, values = ["url", "table"], [tables.url, "absent" * 100_000]
        channel.send_bytes(json.dumps({"question": "schema", "names": names, "values": values}).encode())
    options = {"names": ["url", "table"], "values": [tables.url, "runs"]}
    messages = answer(coordinator, question="schema", **options)
    assert (messages[0], StructType.fromJson(json.loads(messages[1]))) == (b"", spark_schema(RUNS))
    assert not caplog.records


def test_a_task_acknowledges_what_it_has_received() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    pair = socket.socketpair()
    with one, other, pair[0], pair[1]:
        assert not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        acknowledge()
        for connection in (one, other):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        one.sendall(b"still open")
        assert other.recv(20) == b"still open"
        pair[0].sendall(b"too")
        assert pair[1].recv(20) == b"too"
