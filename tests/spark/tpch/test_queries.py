"""TPC-H's 22 queries give on every store what they give on Parquet files of the same rows.

STRUCTABLE_TEST_TPCH_SCALE=0.1 has ten times as many rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from structable.spark_bridge import register
from tests.hbase.support.shared import fresh_prefix
from tests.postgresql.support.shared import fresh_schema
from tests.spark.conftest import Tables, give_up_snapshots

from .queries import LEFT_OPEN, NUMBERS, query
from .tables import LEAST_SCALE, TABLES, generate, load

SCALE = float(os.environ.get("STRUCTABLE_TEST_TPCH_SCALE", LEAST_SCALE))


@dataclass(frozen=True, slots=True)
class Answer:
    """The columns of a query, without whether they may be null, and its rows."""

    columns: list[tuple[str, str]]
    rows: list[Row]


class Source:
    """A session whose views are the tables of one source."""

    def __init__(self, session: SparkSession, tables: dict[str, DataFrame]) -> None:
        self._session = session
        for name, table in tables.items():
            table.createOrReplaceTempView(name)

    def answer(self, number: int) -> Answer:
        frame = self._session.sql(query(number, SCALE))
        return Answer(frame.dtypes, frame.collect())


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, SCALE)
    return folder


@pytest.fixture(scope="session")
def parquet(spark: SparkSession, files: Path) -> Source:
    session = spark.newSession()
    return Source(session, {spec.name: session.read.parquet(f"{files}/{spec.name}.parquet") for spec in TABLES})


@pytest.fixture(scope="session", params=["leveldb", "postgresql", "hbase"])
def store(
    request: pytest.FixtureRequest, spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    with new_store(request, tmp_path_factory) as url:
        load(files, url)
        session = spark.newSession()
        register(session)
        tables = Tables(session, url)
        yield Source(session, {spec.name: tables.read(spec.name) for spec in TABLES})
        give_up_snapshots(spark)


@contextmanager
def new_store(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of an empty store, of whose tables none remains."""
    with ExitStack() as stack:
        match request.param:
            case "leveldb":
                yield f"leveldb://{folders.mktemp('tpch')}/store"
            case "postgresql":
                place = request.getfixturevalue("postgresql_place")
                yield stack.enter_context(fresh_schema(place.conninfo)).url
            case "hbase":
                place, sweeper = (request.getfixturevalue(name) for name in ("hbase_server", "hbase_sweeper"))
                yield place.url(stack.enter_context(fresh_prefix(sweeper)))


@pytest.fixture(scope="session")
def expected(parquet: Source) -> Callable[[int], Answer]:
    """Return what asks Parquet, each query once for all stores."""
    return cache(parquet.answer)


@pytest.mark.every_variant
@pytest.mark.parametrize("number", NUMBERS)
def test_a_query_gives_the_same_on_parquet_and_on_a_store(
    number: int, expected: Callable[[int], Answer], store: Source
) -> None:
    wanted, found = expected(number), store.answer(number)
    assert wanted.rows, "an answer without rows proves little"
    assert found.columns == wanted.columns
    assert len(found.rows) == len(wanted.rows)
    pairs = zip(in_order(number, found.rows), in_order(number, wanted.rows), strict=True)
    assert [(one, other) for one, other in pairs if not all(map(same, one, other))] == []


def in_order(number: int, rows: list[Row]) -> list[Row]:
    """Return rows in their own order, or by their values where the query leaves the order open."""
    if number not in LEFT_OPEN:
        return rows
    return sorted(rows, key=lambda row: [repr(value) for value in row if not isinstance(value, float)])


def same(one: object, other: object) -> bool:
    """Return whether two values are equal; doubles, which depend on the order of a sum, nearly."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
