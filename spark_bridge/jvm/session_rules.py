"""The rules that `register` adds to a session's optimizer: a separate reader for each scan, and a guard of writes.

Spark up to 4.3 stores what `pushFilters` and `partitions` returned in an object that all scans of one `load()` share.
Of two scans with different filters the last one planned wins, in one query (`df.where(a).union(df.where(b))`) and even
between queries (`df.where(a).count()`, then `df.count()`), and the others silently read its rows. Spark also tells a
reader in Python neither which columns a query needs nor anything of `or`, and never asks it for the size of a table. A
rule replaces the table of each scan by one that

- belongs to this scan alone, which also makes each query plan its scans again, on a new snapshot;
- asks Python once for each `load()` what the table is like, and how large, if a plan needs that: `scan_requests`;
- takes what the store and the reader do for Spark, and reports the size of what is left;
- reads decimals of up to 18 digits as integers, by a rule that runs last;
- takes the keys of a join's small side as a filter, which one rule makes Spark offer, and one keeps out of recursions;
- plans when its partitions are needed, so that `explain` takes no snapshot, and then tells Python: `scan_requests`;
- plans in the session that built it, which in threads other than the session's own is not the active one.

The guard rejects writes that Spark would carry out differently from their text. The classes are in the folder `java`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from .optimizer_rules import ensure_rule, instance_of, java_source
from .scan_requests import FACTS_OPTION, REQUEST_KEYS

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

COORDINATOR_CLASS = "StructableCoordinator"
_RULE_CLASS = "StructableScanIsolation"
_GUARD_CLASS = "StructableWriteGuard"
_FILTER_RULE_CLASS = "StructableRuntimeFilters"
_LAST_RULE_CLASSES = ("StructableRecursions", "StructableDecimals")
_CLASSES = (
    _RULE_CLASS,
    _FILTER_RULE_CLASS,
    *_LAST_RULE_CLASSES,
    "StructableSource",
    "StructableAggregates",
    "StructableScanBuilder",
    "StructableScan",
    "StructableConditions",
    COORDINATOR_CLASS,
)


def isolate_scans(spark: SparkSession, driver_address: tuple[str, int, bytes]) -> None:
    """Give each scan of the format a separate reader, in this session and those derived from it.

    If that does not work, nothing is pushed down. A warning is issued, and results are still right: Spark evaluates all
    filters itself, reads all columns, and scans of one `load()` share a snapshot. `driver_address` has the host, the
    port and the secret by which the JVM reaches the coordinator.
    """
    java = java_source(_CLASSES, {**REQUEST_KEYS, "FACTS": FACTS_OPTION})

    def prepare(loader: JavaObject) -> None:
        instance_of(spark, COORDINATOR_CLASS, loader).listensAt(*driver_address)

    reason = ensure_rule(spark, _RULE_CLASS, java, pre_cbo=_FILTER_RULE_CLASS, last=_LAST_RULE_CLASSES, prepare=prepare)
    if reason is not None:
        warnings.warn(
            f"Spark {spark.version} does not keep the scans of a DataFrame apart ({reason}): no filters are pushed "
            "down",
            stacklevel=3,
        )


def guard_writes(spark: SparkSession) -> None:
    """Make a session, and those derived from it, reject writes whose effect would differ from their text.

    Issues a warning if Spark does not accept the rule.
    """
    reason = ensure_rule(spark, _GUARD_CLASS, java_source((_GUARD_CLASS,), {}))
    if reason is not None:
        warnings.warn(
            f"Spark {spark.version} takes no guard of writes ({reason}): do not use saveAsTable, writeTo or CREATE "
            'TABLE with the format "structable", nor INSERT INTO with some of the columns',
            stacklevel=3,
        )
