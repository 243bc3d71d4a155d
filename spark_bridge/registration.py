"""`register`: makes the format "structable" known to a Spark session."""

from __future__ import annotations

import threading
import uuid
import weakref

from pyspark import SparkContext
from pyspark.sql import SparkSession

from structable.spi import UnsupportedOperationError

from .catalog.installation import offer_catalog
from .coordinator import Coordinator
from .executions import SparkExecutions
from .format_lookup import format_hidden, let_threads_find_the_format, session_active
from .python_workers import warn_of_another_python
from .session_rules import guard_writes, isolate_scans
from .source import bound_data_source

__all__ = ["coordinator_of", "register"]

_lock = threading.Lock()
coordinators: weakref.WeakKeyDictionary[SparkContext, Coordinator] = weakref.WeakKeyDictionary()
_sessions: weakref.WeakValueDictionary[str, SparkSession] = weakref.WeakValueDictionary()
"""The sessions of this process by the ids under which their data sources know them."""


def register(spark: SparkSession) -> None:
    """Make the format "structable" known to a session: `spark.read.format("structable")` and `df.write.format(...)`.

    Starts the application's coordinator in this process, unless one runs. Sessions that are made later need their own
    call; a second call for one session changes nothing.

    Parameters
    ----------
    spark : SparkSession
        A session of this process, that is, not one of Spark Connect.

    Raises
    ------
    UnsupportedOperationError
        For a session of Spark Connect, whose driver is another process.
    """
    coordinator = coordinator_of(spark)
    isolate_scans(spark, coordinator)
    session = uuid.uuid4().hex
    _sessions[session] = spark
    with session_active(spark), format_hidden(spark):
        spark.dataSource.register(bound_data_source(coordinator.client, session=session))
    let_threads_find_the_format(spark)
    offer_catalog(spark, coordinator)
    guard_writes(spark)  # after the catalog's rules, which mark what a MERGE inserts


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
