"""All scans of one query see one state of a store, whatever is committed while they are planned."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.coordinator.coordinator import Coordinator
from structable.spi import Field, Storage, TableSpecification, Transaction
from tests.spark.conftest import Tables, every_store, give_up_snapshots
from tests.spark.support.plans import planned_scans

LEFT, RIGHT = (
    TableSpecification(name, [Field.long("id"), Field.long("cents")], primary_key=["id"]) for name in ("left", "right")
)


def coordinator_of(session: SparkSession) -> Coordinator:
    return applications.coordinators[session.sparkContext]


def create(storage: Storage) -> None:
    for spec in (LEFT, RIGHT):
        storage.admin.create(spec)
    storage.table("left").upsert_many([{"id": number, "cents": 1} for number in range(100)])


def move(storage: Storage) -> None:
    """Move a row from one table to the other, in one transaction. Spark plans subqueries in threads, so moves race."""

    def body(transaction: Transaction) -> None:
        left, right = transaction.table("left"), transaction.table("right")
        with left.scan(limit=1) as rows:
            row = dict(next(rows))
        left.delete((row["id"],))
        right.upsert(row)

    storage.run(body)


@every_store
def test_scans_of_two_tables_see_one_state(tables: Tables, storage: Storage) -> None:
    create(storage)
    with planned_scans(tables.session, lambda: move(storage)) as planned:
        both = tables.read("left").union(tables.read("right"))
        for _ in range(3):
            assert len({row.id for row in both.select("id").collect()}) == 100  # a DataFrame of its own is planned anew
        assert len(planned) == 6
        assert len({one.execution for one in planned}) == 3


def test_self_joins_and_subqueries_see_one_state(tables: Tables, storage: Storage) -> None:
    create(storage)
    for name in ("left", "right"):
        tables.read(name).createOrReplaceTempView(name)
    with planned_scans(tables.session, lambda: move(storage)) as planned:
        query = """
            select (select count(distinct cents + id) from left) +
                (select count(distinct cents + id) from right) as all_rows,
                count(*) as joined, max((select count(distinct id * 2) from left)) as left_rows
            from left one join left other on one.id = other.id
        """
        [row] = tables.session.sql(query).collect()
        assert (row.all_rows, row.joined) == (100, row.left_rows)
        assert len({one.execution for one in planned}) == 1


@every_store
def test_what_a_query_needs_twice_is_read_once(tables: Tables, storage: Storage) -> None:
    create(storage)
    for name, table in (("one", "left"), ("other", "left"), ("right", "right")):
        tables.read(table).createOrReplaceTempView(name)
    query = """
        with counts as (select id % 3 as part, count(distinct cents + id) as n from {} group by 1)
        select sum(n) from counts where n >= (select max(n) - 1 from (
            select id % 3 as part, count(distinct cents + id) as n from {} group by 1))
    """
    for other, scans in (("one", 1), ("other", 1), ("right", 2)):
        with planned_scans(tables.session) as planned:
            assert [row[0] for row in tables.session.sql(query.format("one", other)).collect()] == [
                100 if scans == 1 else None
            ]
        assert len(planned) == scans


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("where id < 90", "where id < 10"),
        ("where id < 90 or id > 95", "where id < 10 or id > 95"),
        ("order by id limit 90", "order by id limit 10"),
        ("order by id limit 90", "order by id desc limit 90"),
    ],
)
def test_scans_that_ask_for_other_rows_are_read_apart(tables: Tables, storage: Storage, one: str, other: str) -> None:
    create(storage)
    tables.read("left").createOrReplaceTempView("t")
    counts = [f"select sum(distinct id + cents) as n from (select * from t {which})" for which in (one, other)]
    alone = [tables.session.sql(count).collect()[0].n for count in counts]
    together = tables.session.sql(f"{counts[0]} union all {counts[1]}")
    assert [row.n for row in together.collect()] == alone
    assert alone[0] != alone[1]


def test_options_of_a_read_keep_scans_apart(tables: Tables, storage: Storage) -> None:
    storage.admin.create(TableSpecification("fed", LEFT.fields, ["id"], options={"changelog-producer": "lookup"}))
    positions = []
    for number in range(3):
        storage.table("fed").upsert({"id": number, "cents": 1})
        positions.append(str(storage.changes("fed").latest()))

    def rows(first: int, last: int) -> DataFrame:
        reader = tables.reader("fed", readChangeFeed="true", startingVersion=positions[first])
        return reader.option("endingVersion", positions[last]).load().groupBy((sf.col("id") * 0).alias("x")).count()

    both = rows(0, 1).union(rows(0, 2)).union(rows(0, 2))
    assert [row["count"] for row in both.collect()] == [rows(0, last).collect()[0]["count"] for last in (1, 2, 2)]
    assert rows(0, 1).collect() != rows(0, 2).collect()


def test_queries_see_what_was_committed_before_them(tables: Tables, storage: Storage) -> None:
    create(storage)
    frame = tables.read("left")
    for number in range(3):
        assert frame.count() == 100 - number
        move(storage)


@every_store
def test_nothing_is_held_after_queries(tables: Tables, storage: Storage) -> None:
    create(storage)
    both = tables.read("left", graceSeconds=0.1).union(tables.read("right", graceSeconds=0.1))
    for _ in range(5):
        assert both.distinct().count() == 100
    give_up_snapshots(tables.session)
    coordinator = coordinator_of(tables.session)
    coordinator.expire()
    assert coordinator.shared_snapshots() == 0
    storage.admin.create_or_update(TableSpecification("left", [*LEFT.fields, Field.string("note")], primary_key=["id"]))
    storage.admin.drop("right")
