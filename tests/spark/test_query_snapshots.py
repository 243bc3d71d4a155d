"""All scans of one query see one state of a store, whatever is committed while they are planned."""

from __future__ import annotations

from pyspark.sql import SparkSession

from structable.spark_bridge import registration
from structable.spark_bridge.coordinator import Coordinator
from structable.spi import Field, Storage, TableSpecification, Transaction
from tests.spark.conftest import Tables, every_store, give_up_snapshots
from tests.spark.support.plans import planned_scans

LEFT, RIGHT = (
    TableSpecification(name, [Field.long("id"), Field.long("cents")], primary_key=["id"]) for name in ("left", "right")
)


def coordinator_of(session: SparkSession) -> Coordinator:
    return registration.coordinators[session.sparkContext]


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
