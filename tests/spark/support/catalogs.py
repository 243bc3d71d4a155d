"""A catalog of the class structable.Catalog for each test, of its store."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from structable.spi import Storage, Value

both_stores = pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)


@contextmanager
def catalog_of(spark: SparkSession, url: str, **options: object) -> Iterator[str]:
    """Have a catalog of a name that no other test has: a session keeps the catalogs that it has used."""
    name = f"c{uuid.uuid4().hex[:12]}"
    settings = {
        "": "structable.Catalog",
        ".url": url,
        **{f".{option}": str(value) for option, value in options.items()},
    }
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}{setting}", value)
    try:
        yield name
    finally:
        for setting in settings:
            spark.conf.unset(f"spark.sql.catalog.{name}{setting}")


def rows(spark: SparkSession, statement: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def stored(storage: Storage, table: str = "pages") -> list[tuple[Value, ...]]:
    """Return the rows of a table in the order of their keys."""
    return [row.astuple() for row in storage.table(table).scan()]
