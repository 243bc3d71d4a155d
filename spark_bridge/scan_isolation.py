"""Gives each scan of a DataFrame a separate reader in the JVM, which accepts its filters and its columns.

Spark up to 4.3 stores what `pushFilters` and `partitions` returned in an object that all scans of one `load()` share.
Of two scans with different filters the last one planned wins, in one query (`df.where(a).union(df.where(b))`) and even
between queries (`df.where(a).count()`, then `df.count()`), and the others silently read its rows. Nor does it tell a
reader in Python which columns a query needs. An optimizer rule replaces the table of each scan by one that

- belongs to this scan alone, which also makes each query plan its scans anew, on a new snapshot;
- offers the filters first, in a probe that takes no snapshot, and plans once filters and columns are known;
- plans when its partitions are needed, so that `explain` takes no snapshot, and says in which execution it plans;
- plans in the session that built it, which in threads other than the session's own is not the active one;
- leaves filters to Spark if Python cannot hold their dates, on which Spark's own pushdown fails;
- ends each split after as many rows as a query with a limit needs;
- tells the planner about how large the table is, for which it asks the data source only when a join is planned.
"""

from __future__ import annotations

import warnings

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from .optimizer_rules import ensure_rule
from .scan_class import EXECUTION, JAVA, LIMIT, PROBE, RULE_CLASS, ZONE

__all__ = ["execution_of", "is_probe", "isolate_scans", "limit_of", "zone_of"]


def is_probe(schema: StructType) -> bool:
    """Whether a reader is only offered filters: its partitions will not be read."""
    return bool(schema.fields) and bool(schema.fields[0].metadata.get(PROBE))


def execution_of(schema: StructType) -> int | None:
    """Return the execution in which a reader plans, if there is one."""
    execution = schema.fields[0].metadata.get(EXECUTION) if schema.fields else None
    return None if execution is None else int(execution)


def zone_of(schema: StructType) -> str | None:
    """Return the time zone of the session in which a reader plans, if it is known."""
    zone = schema.fields[0].metadata.get(ZONE) if schema.fields else None
    return None if zone is None else str(zone)


def limit_of(schema: StructType) -> int | None:
    """Return the number of rows that each split gives at most, if the query has a limit."""
    limit = schema.fields[0].metadata.get(LIMIT) if schema.fields else None
    return None if limit is None else int(limit)


def isolate_scans(spark: SparkSession) -> bool:
    """Give each scan of the format a separate reader, in this session and those derived from it; True if that works.

    If not, filters must not be pushed down. A warning is issued, and results are still right: Spark evaluates all
    filters itself, reads all columns, and scans of one `load()` share a snapshot.
    """
    reason = ensure_rule(spark, RULE_CLASS, JAVA)
    if reason is not None:
        warnings.warn(
            f"Spark {spark.version} does not keep the scans of a DataFrame apart ({reason}): no filters are pushed "
            "down",
            stacklevel=3,
        )
    return reason is None
