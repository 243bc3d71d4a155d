"""Brings the catalog's classes into the driver's JVM, and its commands into the coordinator."""

from __future__ import annotations

import warnings

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from structable.spark_bridge.coordinator import Coordinator
from structable.spark_bridge.format_lookup import class_loader, define_classes
from structable.spark_bridge.optimizer_rules import (
    has_rule,
    inject_early_rule,
    inject_pre_cbo_rule,
    inject_rule,
    instance_of,
    java_source,
    reason_of,
)
from structable.spark_bridge.scan_isolation import COORDINATOR_CLASS

from . import (
    catalog_class,
    change_rule,
    command_class,
    keyed_table_class,
    read_rule,
    staging_class,
    statement_rule,
    table_class,
)
from .commands import CatalogCommands

__all__ = ["offer_catalog"]

_COORDINATOR_CLASS = f"structable.{COORDINATOR_CLASS}"
_CLASSES = {
    _COORDINATOR_CLASS: "package structable;\n" + java_source((COORDINATOR_CLASS,), {}),
    "structable.CatalogCommand": command_class.JAVA,
    "structable.StructableConditions": "package structable;\n" + java_source(("StructableConditions",), {}),
    "structable.CatalogTable": table_class.JAVA,
    "structable.KeyedTable": keyed_table_class.KEYED_JAVA,
    "structable.ChangedTable": keyed_table_class.CHANGED_JAVA,
    "structable.StagedCatalogTable": staging_class.JAVA,
    "structable.Catalog": catalog_class.JAVA,
    read_rule.RULE_CLASS: read_rule.JAVA,
    change_rule.RULE_CLASS: change_rule.JAVA,
    statement_rule.RULE_CLASS: statement_rule.JAVA,
}
"""Each may name those before it."""


def offer_catalog(spark: SparkSession, coordinator: Coordinator) -> None:
    """Let a session have catalogs of the class `structable.Catalog`.

    Issues a warning if this version of Spark or Java refuses it; the format works nevertheless.
    """
    coordinator.operations["run_catalog_command"] = CatalogCommands(coordinator.stores).run
    try:
        for name, java in _CLASSES.items():
            define_classes(spark, name, java)
        loader = class_loader(spark)  # that of the other classes, which the rules name
        instance_of(spark, _COORDINATOR_CLASS, loader).listensAt(*coordinator.driver_address)
        for rule, inject in ((read_rule.RULE_CLASS, inject_rule), (change_rule.RULE_CLASS, inject_pre_cbo_rule)):
            if not has_rule(spark, rule):
                inject(spark, rule, loader)
                if not has_rule(spark, rule):
                    raise TypeError("its optimizer takes no further rules")
        inject_early_rule(spark, statement_rule.RULE_CLASS, loader)
    except (Py4JError, TypeError) as error:  # TypeError: py4j has no such class or method
        warnings.warn(
            f"Spark {spark.version} takes no catalog of structable ({reason_of(error)}): spark.sql.catalog.NAME "
            'cannot be structable.Catalog; use the format "structable"',
            stacklevel=3,
        )
