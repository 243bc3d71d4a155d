"""`spark_map`: fills the parts of tables that migrations change on Spark's executors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from structable.migrations import Mapper
from structable.migrations.part_filler import PartFiller


def spark_map(spark: SparkSession, *, url: str | None = None) -> Mapper:
    """Return the mapper of a `Migrator` that runs each part as a task of a Spark job; each task connects to the store.

    Tasks fill fields by transactions, as threads do. Executors must be able to import the functions of revisions.

    Parameters
    ----------
    spark : SparkSession
        The session.
    url : str, optional
        The store's URL; needed if it has a password, which the URL of the storage masks.
    """

    def mapped(function: Callable[[int], int], numbers: Iterable[int]) -> Iterable[int]:
        if url is not None and isinstance(function, PartFiller):
            function = dataclasses.replace(function, url=url)
        parts = list(numbers)
        return spark.sparkContext.parallelize(parts, max(1, len(parts))).map(function).collect()

    return mapped
