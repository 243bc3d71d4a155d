"""`register`: makes the format "structable" known to a Spark session."""

from __future__ import annotations

import threading
import weakref

from pyspark import SparkContext
from pyspark.sql import SparkSession

from structable.spi import UnsupportedOperationError

from .executions import SparkExecutions
from .format_lookup import format_hidden, let_threads_find_the_format, session_active
from .keeper import Keeper
from .scan_isolation import isolate_scans
from .source import bound_data_source
from .write_guard import guard_writes

__all__ = ["register"]

_lock = threading.Lock()
_keepers: weakref.WeakKeyDictionary[SparkContext, Keeper] = weakref.WeakKeyDictionary()


def register(spark: SparkSession) -> None:
    """Make the format "structable" known to a session: `spark.read.format("structable")` and `df.write.format(...)`.

    Starts the application's keeper of snapshots in this process, unless it runs, and sets
    `spark.sql.python.filterPushdown.enabled`. Sessions that are made later need their own call; a second call for one
    session changes nothing.

    Parameters
    ----------
    spark : SparkSession
        A session of this process, that is, not one of Spark Connect.

    Raises
    ------
    UnsupportedOperationError
        For a session of Spark Connect, whose driver is another process.
    """
    if not isinstance(spark, SparkSession):
        raise UnsupportedOperationError(
            f"{type(spark).__module__}.{type(spark).__name__} is no session of this process; "
            "snapshots are kept in the driver's process, so that register() must be called there"
        )
    keeper = _keeper(spark.sparkContext)
    pushes_filters = isolate_scans(spark)
    guard_writes(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with session_active(spark), format_hidden(spark):
        spark.dataSource.register(bound_data_source(keeper.client, pushes_filters=pushes_filters))
    let_threads_find_the_format(spark)


def _keeper(context: SparkContext) -> Keeper:
    with _lock:
        keeper = _keepers.get(context)
        if keeper is None or keeper.closed:
            keeper = _keepers[context] = _started(context)
        return keeper


def _started(context: SparkContext) -> Keeper:
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
        return Keeper(parallelism, running, executions)
    settings = context.getConf()
    host = (settings.get("spark.driver.host") or "127.0.0.1").strip("[]")
    bind = (settings.get("spark.driver.bindAddress") or host).strip("[]")
    return Keeper(parallelism, running, executions, bind=bind, host=host)
