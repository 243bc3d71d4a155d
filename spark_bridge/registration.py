"""`register`: makes the format "structable" known to a Spark session."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from .catalog.installation import offer_catalog
from .coordinator.applications import coordinator_of, name_session
from .coordinator.coordinator import Coordinator
from .driver_questions import DriverQuestions
from .jvm.format_lookup import format_hidden, let_threads_find_the_format, session_active
from .jvm.session_rules import guard_writes, isolate_scans
from .source import bound_data_source

_registered: WeakKeyDictionary[SparkSession, Coordinator] = WeakKeyDictionary()
"""By session, the coordinator that it knows: to ask the session for each rule takes 0.4 s."""


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
    if _registered.get(spark) is coordinator:
        return
    coordinator.answer_driver(DriverQuestions(coordinator.client, coordinator.operations).serve)
    isolate_scans(spark, coordinator.driver_address)
    with session_active(spark), format_hidden(spark):
        spark.dataSource.register(bound_data_source(coordinator.client, session=name_session(spark)))
    let_threads_find_the_format(spark)
    offer_catalog(spark, coordinator)
    guard_writes(spark)  # after the catalog's rules, which mark the inserts of a MERGE
    _registered[spark] = coordinator
