"""Random queries have the same rows with pushdown and without it.

`STRUCTABLE_TEST_SQL_QUERIES` (default 6) is their number on each store; `STRUCTABLE_TEST_SQL_SEED` runs one alone.
"""

from __future__ import annotations

import os
from random import Random

from pyspark.sql import SparkSession

from structable.spi import Storage
from tests.spark.conftest import Tables, every_store, settings
from tests.spark.support.plans import planned_scans
from tests.spark.support.random_sql import SETTINGS, create_tables, random_query

QUERIES = int(os.environ.get("STRUCTABLE_TEST_SQL_QUERIES", "6"))
SEED = os.environ.get("STRUCTABLE_TEST_SQL_SEED")
LARGE = 10_000_000
"""The option `statistics` of tables of which Spark takes the keys of joins."""


def rows(session: SparkSession, query: str, view: str) -> list[str]:
    return sorted(map(str, session.sql(query.format(emp=f"{view}_emp", pairs=f"{view}_pairs")).collect()))


@every_store
def test_pushdown_changes_no_result(tables: Tables, storage: Storage) -> None:
    create_tables(storage)
    for table in ("emp", "pairs"):
        tables.read(table, statistics=LARGE, splits=2).createOrReplaceTempView(f"pushed_{table}")
        tables.read(table, pushdown="none").createOrReplaceTempView(f"plain_{table}")
    for seed in range(QUERIES) if SEED is None else [int(SEED)]:
        chance = Random(f"{tables.url.partition(':')[0]} {seed}")
        query = random_query(chance)
        chosen = {name: chance.choice(values) for name, values in SETTINGS.items()}
        try:
            with settings(tables.session, chosen):
                expected = rows(tables.session, query, "plain")
                with planned_scans(tables.session) as planned:
                    assert rows(tables.session, query, "pushed") == expected
            assert len({one.execution for one in planned}) <= 1  # one state
        except Exception as error:
            error.add_note(f"seed {seed}: {query}\nunder {chosen}")
            raise
