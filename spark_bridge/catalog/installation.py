"""Brings the catalog into the driver's JVM, its commands into the coordinator, and its tables into Spark's lists."""

from __future__ import annotations

import functools
import warnings

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog, Table

from structable.spark_bridge.coordinator.coordinator import Coordinator
from structable.spark_bridge.jvm.format_lookup import class_loader, define_classes
from structable.spark_bridge.jvm.optimizer_rules import (
    has_rule,
    inject_early_rule,
    inject_pre_cbo_rule,
    inject_rule,
    instance_of,
    reason_of,
)
from structable.spark_bridge.jvm.session_rules import COORDINATOR_CLASS
from structable.spark_bridge.write.row_changes import BEFORE, CHANGES_OPTION, ORIGINAL
from structable.spi import WriteMode

from .commands import CatalogCommands
from .requests import REQUEST

_CLASSES = (
    COORDINATOR_CLASS,
    "CatalogCommand",
    "StructableConditions",
    "CatalogTable",
    "KeyedTable",
    "ChangedTable",
    "StagedCatalogTable",
    "Catalog",
    "CatalogReads",
    "CatalogChanges",
    "CatalogStatements",
)
"""Each may name those before it."""
_VALUES = {
    "REQUEST": REQUEST,
    "BEFORE": BEFORE,
    "CHANGES": CHANGES_OPTION,
    "ORIGINAL": ORIGINAL,
    "INSERT": WriteMode.INSERT,
}
_READS, _CHANGES, _STATEMENTS = (f"structable.{name}" for name in _CLASSES[-3:])


def offer_catalog(spark: SparkSession, coordinator: Coordinator) -> None:
    """Let a session have catalogs of the class `structable.Catalog`.

    Issues a warning if this version of Spark or Java refuses it; the format works nevertheless.
    """
    coordinator.operations["run_catalog_command"] = CatalogCommands(coordinator.stores).run
    try:
        for name in _CLASSES:
            define_classes(spark, name, _VALUES)
        loader = class_loader(spark)  # that of the other classes, which the rules name
        instance_of(spark, f"structable.{COORDINATOR_CLASS}", loader).listensAt(*coordinator.driver_address)
        for rule, inject in ((_READS, inject_rule), (_CHANGES, inject_pre_cbo_rule)):
            if not has_rule(spark, rule):
                inject(spark, rule, loader)
                if not has_rule(spark, rule):
                    raise TypeError("its optimizer takes no further rules")
        inject_early_rule(spark, _STATEMENTS, loader)
        _list_tables_of_catalogs()
    except (Py4JError, TypeError) as error:  # TypeError: py4j has no such class or method
        warnings.warn(
            f"Spark {spark.version} takes no catalog of structable ({reason_of(error)}): spark.sql.catalog.NAME "
            'cannot be structable.Catalog; use the format "structable"',
            stacklevel=3,
        )


@functools.cache
def _list_tables_of_catalogs() -> None:
    """Let `spark.catalog.listTables` list the tables of a catalog of structable's, in each session of this process.

    Spark's own method parses the namespace of each listed table. These tables have an empty one, which it rejects.
    """
    listed_by_spark = Catalog.listTables

    @functools.wraps(listed_by_spark)
    def list_tables(self: Catalog, dbName: str | None = None, pattern: str | None = None) -> list[Table]:
        name = _catalog_named(self, dbName)
        if name is None:
            return listed_by_spark(self, dbName, pattern)
        like = "" if pattern is None else " LIKE '{}'".format(pattern.replace("\\", "\\\\").replace("'", "\\'"))
        rows = self._sparkSession.sql(f"SHOW TABLES IN `{name.replace('`', '``')}`{like}").collect()
        return [Table(row.tableName, name, [], None, "MANAGED", row.isTemporary) for row in rows]

    Catalog.listTables = list_tables  # type: ignore[method-assign] # Spark has no hook


def _catalog_named(catalog: Catalog, database: str | None) -> str | None:
    """Return the name of the structable catalog to list; None if Spark or another catalog has the tables."""
    name = catalog.currentDatabase() if database is None else database
    if name:
        session = catalog._jsparkSession.sessionState()
        # As for Spark, a database of its own catalog goes first, whose name may be no identifier.
        if session.catalog().databaseExists(name):
            return None
        parts = session.sqlParser().parseMultipartIdentifier(name)
        if parts.size() != 1:
            return None
        name = parts.head()
    elif database is None:
        name = catalog.currentCatalog()
    is_ours = catalog._sparkSession.conf.get(f"spark.sql.catalog.{name}", None) == "structable.Catalog"
    return name if is_ours else None
