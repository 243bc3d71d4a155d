"""The coordinator of each application of this process, started when it is first needed."""

from __future__ import annotations

import threading
import uuid
import weakref

from pyspark import SparkContext
from pyspark.sql import SparkSession

from structable.spark_bridge.base.python_workers import warn_of_another_python
from structable.spark_bridge.jvm.executions import SparkExecutions
from structable.spi import UnsupportedOperationError

from .coordinator import Coordinator

_lock = threading.Lock()
coordinators: weakref.WeakKeyDictionary[SparkContext, Coordinator] = weakref.WeakKeyDictionary()
_sessions: weakref.WeakValueDictionary[str, SparkSession] = weakref.WeakValueDictionary()
"""The sessions, by the names under which their data sources know them."""


def coordinator_of(spark: SparkSession) -> Coordinator:
    """Return the coordinator of a session's application, started unless it runs.

    Raises
    ------
    UnsupportedOperationError
        For a session of Spark Connect.
    """
    if not isinstance(spark, SparkSession):
        raise UnsupportedOperationError(
            f"{type(spark).__module__}.{type(spark).__name__} is not a session of this process; "
            "snapshots and write jobs are held in the driver's process, so call structable there"
        )
    context = spark.sparkContext
    with _lock:
        coordinator = coordinators.get(context)
        if coordinator is None or coordinator.closed:
            warn_of_another_python(context)
            coordinator = coordinators[context] = _started(context)
        return coordinator


def name_session(spark: SparkSession) -> str:
    """Return a new name of a session, by which a coordinator finds its time zone while the session is in use."""
    session = uuid.uuid4().hex
    _sessions[session] = spark
    return session


def _started(context: SparkContext) -> Coordinator:
    watched = weakref.ref(context)

    def running() -> bool:
        alive = watched()
        return alive is not None and alive._jsc is not None

    def parallelism() -> int:
        alive = watched()
        return alive.defaultParallelism if alive is not None and alive._jsc is not None else 1

    executions = SparkExecutions(context)
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return Coordinator(parallelism, running, executions, _zone)
    settings = context.getConf()
    host = (settings.get("spark.driver.host") or "127.0.0.1").strip("[]")
    bind = (settings.get("spark.driver.bindAddress") or host).strip("[]")
    return Coordinator(parallelism, running, executions, _zone, bind=bind, host=host)


def _zone(session: str) -> str | None:
    """Return the time zone of a session, if that is still in use."""
    found = _sessions.get(session)
    return None if found is None else found.conf.get("spark.sql.session.timeZone")
