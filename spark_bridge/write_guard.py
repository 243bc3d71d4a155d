"""Rejects writes that Spark would carry out differently from their text: `java/StructableWriteGuard.java`."""

from __future__ import annotations

import warnings

from pyspark.sql import SparkSession

from .optimizer_rules import ensure_rule, java_source

__all__ = ["guard_writes"]

_RULE_CLASS = "StructableWriteGuard"


def guard_writes(spark: SparkSession) -> None:
    """Make a session, and those derived from it, reject writes whose effect would differ from their text.

    Issues a warning if Spark does not accept the rule.
    """
    reason = ensure_rule(spark, _RULE_CLASS, java_source((_RULE_CLASS,), {}))
    if reason is not None:
        warnings.warn(
            f"Spark {spark.version} takes no guard of writes ({reason}): do not use saveAsTable, writeTo or CREATE "
            'TABLE with the format "structable", nor INSERT INTO with some of the columns',
            stacklevel=3,
        )
