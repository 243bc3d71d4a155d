"""What the bridge promises, on executors that are processes of their own: on all stores, and with kills."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from structable.backends.ordered.storage import OrderedStorage
from structable.spark_bridge import TableRef, lookup_join
from structable.spi import Field, Storage, TableSpecification, connect
from structable.spi.values import Value
from tests.spark.conftest import Tables, every_store
from tests.spark.support.catalogs import catalog_of, rows
from tests.spark.support.clusters import CallFailedError, Cluster, give_up, held
from tests.spark.support.samples import create_runs
from tests.spark.test_catalog_writes import stored
from tests.spark.test_killed_drivers import staging_tables
from tests.spark.test_lookup_joins import HOW, joined_plainly, keys, sorted_rows
from tests.spark.test_pushdown_parts import scan
from tests.spark.test_query_snapshots import LEFT, RIGHT, after_each_plan, move
from tests.waiting import until

COUNT = 4000
GRACE = 0.1  # seconds
ITEMS = TableSpecification(
    "items", [Field.long("k"), Field.string("v"), Field.int("n"), Field.string("pad")], ["k"], ["v"]
)
KEY = "TBLPROPERTIES ('primary-key' = 'k')"


def items() -> list[dict[str, Value]]:
    """Return rows that are large enough for several splits."""
    chance = random.Random(7)
    return [
        {"k": k, "v": f"v{k % 7}" if k % 5 else None, "n": k % 11, "pad": chance.randbytes(60).hex()}
        for k in range(COUNT)
    ]


ROWS = [tuple(row.values()) for row in items()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    faults = tmp_path_factory.mktemp("faults")
    cluster = Cluster(faults)
    yield cluster
    cluster.close()


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster) -> Iterator[str]:
    """Return the URL of a new, empty store of `every_store`, of which the cluster holds nothing in the end."""
    store = request.param
    yield f"leveldb://{tmp_path}/store" if store == "leveldb" else request.getfixturevalue(f"{store}_url")
    cluster(give_up)


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    """Connect this process to the store, which has a table of some thousand rows."""
    with connect(url) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many(items())
        yield storage


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest, url: str, storage: Storage, cluster: Cluster) -> Callable[[], None]:
    """Return a check that no snapshot is held, no row is staged, and a change of the table is not held up."""

    def check() -> None:
        assert cluster.faults_to_come() == []
        until(lambda: cluster(held) == (0, 0))
        if isinstance(storage, OrderedStorage):
            assert storage.engine.jobs_with_runs() == {}
        else:
            assert staging_tables(request.getfixturevalue("postgresql_schema")) == []
        for table in storage.admin.list():
            spec = storage.admin.get_specification(table)
            storage.admin.create_or_update(spec.evolve(fields=[*spec.fields, Field.string("added")]))

    return check


QUERIES = {
    "select * from {} where k >= 1500 and (n < 3 or v is null)": "PushedFilters",
    "select k, n from {} where v in ('v1', 'v3') and not (n = 2 or n > 8)": "PushedFilters",
    "select k from {} where v like 'v6%' or k = 77": "PushedFilters",
    "select k, pad from {} where k > 100 and n <> 7 order by k desc limit 9": "PushedTopN",
    "select * from {} order by k limit 11": "PushedTopN",
    "select v from {} order by v desc nulls first limit 900": "PushedTopN",
    "select count(*), count(v), min(k), max(k), min(v), max(v) from {} where n <> 3": "PushedAggregates",
    "select count(*), sum(k) from (select k from {} where n = 3 limit 100000)": "PushedFilters",
}


def answers(frame: DataFrame, pushed: bool) -> dict[str, list[str]]:
    """Return the results of the queries on a frame of the rows."""
    frame.createOrReplaceTempView("asked")
    results = {}
    for text, part in QUERIES.items():
        query = frame.sparkSession.sql(text.format("asked"))
        assert not pushed or part in scan(query)
        results[text] = sorted_rows(query)
    return results


def plain_answers() -> dict[str, list[str]]:
    return answers(Tables(SparkSession.active(), "").frame(ITEMS, items()), pushed=False)


def pushed_answers(url: str) -> dict[str, list[str]]:
    return answers(Tables(SparkSession.active(), url).read("items", splits=4, graceSeconds=GRACE), pushed=True)


def limited(url: str) -> tuple[int, list[tuple[object, ...]]]:
    """Return the number of splits, and rows of a limit."""
    frame = Tables(SparkSession.active(), url).read("items", splits=4)
    limit = frame.where("n > 4").limit(13)
    assert "PushedLimit: 13" in scan(limit)
    return frame.rdd.getNumPartitions(), [tuple(row) for row in limit.collect()]


@pytest.fixture(scope="module")
def expected(cluster: Cluster) -> dict[str, list[str]]:
    return cluster(plain_answers)


@every_store
def test_what_is_pushed_down_gives_what_spark_gives(
    cluster: Cluster, url: str, storage: Storage, expected: dict[str, list[str]]
) -> None:
    assert cluster(pushed_answers, url) == expected
    splits, some = cluster(limited, url)
    assert splits > 1
    assert len(set(some)) == 13
    assert set(some) <= {row for row in ROWS if int(str(row[2])) > 4}


@contextmanager
def moving(storage: Storage) -> Iterator[None]:
    """Move rows from one table to another, one after the other, until the end of the block."""
    ended, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not ended.wait(0.02):
                move(storage)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert failed == []


def create_pair(storage: Storage) -> None:
    for spec in (LEFT, RIGHT):
        storage.admin.create(spec.evolve(fields=[*spec.fields, Field.string("pad")]))
    storage.table("left").upsert_many({"id": row["k"], "cents": 1, "pad": row["pad"]} for row in items())


def rows_of_both(url: str) -> list[int]:
    """Return the ids of two tables, and have a row moved after each plan of a scan."""
    tables = Tables(SparkSession.active(), url)
    left, right = (tables.read(name, splits=3, graceSeconds=GRACE) for name in ("left", "right"))
    with connect(url) as storage, after_each_plan(tables.session, lambda: move(storage)) as planned:
        ids = [row.id for row in left.union(right).select("id", "pad").collect()]
    assert len(planned) == 2
    return ids


def counts_of_both(url: str) -> tuple[int, int, int]:
    """Return how many rows two tables have by subqueries, and one has in a self-join, and by a subquery."""
    tables = Tables(SparkSession.active(), url)
    for name in ("left", "right"):
        tables.read(name, splits=3, graceSeconds=GRACE).createOrReplaceTempView(f"{name}_rows")
    query = """
        select (select count(distinct cents + id) from left_rows) +
            (select count(distinct cents + id) from right_rows) as all_rows,
            count(*) as joined, max((select count(distinct id * 2) from left_rows)) as left_rows
        from left_rows one join left_rows other on one.id = other.id
    """
    with connect(url) as storage, after_each_plan(tables.session, lambda: move(storage)) as planned:
        [row] = tables.session.sql(query).collect()
    assert len(set(planned)) == 1
    return row.all_rows, row.joined, row.left_rows


@every_store
def test_all_scans_of_a_query_see_one_state(cluster: Cluster, url: str, storage: Storage) -> None:
    create_pair(storage)
    with moving(storage):
        assert sorted(cluster(rows_of_both, url)) == list(range(COUNT))
        everything, joined, left = cluster(counts_of_both, url)
    assert everything == COUNT
    assert joined == left < COUNT


@every_store
def test_a_query_whose_tasks_are_killed_sees_one_state(
    cluster: Cluster, url: str, storage: Storage, nothing_left: Callable[[], None]
) -> None:
    create_pair(storage)
    with moving(storage):
        cluster.kill("read", "executor")
        cluster.kill("read", "worker")
        assert sorted(cluster(rows_of_both, url)) == list(range(COUNT))
    nothing_left()


def joined_both_ways(url: str, how: str) -> tuple[list[str], list[str]]:
    """Return the rows of a look-up join, and of a plain one."""
    tables = Tables(SparkSession.active(), url)
    more = tables.session.range(0, 2 * COUNT, 3).selectExpr("'etl'", "id", "cast(id as int)", "null")
    frame = keys(tables.session).union(more)
    found = lookup_join(frame, TableRef(url, "runs"), {"b": "started", "a": "app"}, {"status": "state"}, how)
    return sorted_rows(found), sorted_rows(joined_plainly(tables, frame, how))


@every_store
def test_look_up_joins_are_joins(cluster: Cluster, url: str, storage: Storage) -> None:
    create_runs(storage, COUNT)
    for how in HOW:
        looked_up, joined = cluster(joined_both_ways, url, how)
        assert looked_up == joined
        assert len(joined) > COUNT // 4


def run_sql(url: str, *statements: str) -> list[list[tuple[object, ...]]]:
    """Return the rows of statements, in which `app` is the catalog."""
    spark = SparkSession.active()
    with catalog_of(spark, url, splits=3, graceSeconds=GRACE) as name:
        return [rows(spark, statement.replace("app.", f"{name}.")) for statement in statements]


def save(url: str, query: str, table: str, mode: str) -> None:
    """Save the rows of a query by `saveAsTable`."""
    spark = SparkSession.active()
    with catalog_of(spark, url, splits=3, graceSeconds=GRACE) as name:
        frame = spark.sql(query.replace("app.", f"{name}."))
        frame.write.mode(mode).option("primary-key", "k").saveAsTable(f"{name}.{table}")


@every_store
def test_statements_of_the_catalog(cluster: Cluster, url: str, storage: Storage) -> None:
    *_, copied, [made] = cluster(
        run_sql,
        url,
        f"CREATE TABLE app.copy (k BIGINT, v STRING, n INT, pad STRING) {KEY}",
        "INSERT INTO app.copy SELECT * FROM app.items WHERE k < 3000",
        "INSERT INTO app.copy SELECT k, 'again', n, pad FROM app.items WHERE k >= 2500",
        f"CREATE TABLE app.made {KEY} AS SELECT k, n FROM app.items WHERE v IS NOT NULL",
        "DELETE FROM app.copy WHERE k >= 3500 OR v = 'v1'",
        "SELECT * FROM app.copy",
        "SELECT count(*), max(k) FROM app.made",
    )
    kept = [(k, v if k < 2500 else "again", n, pad) for k, v, n, pad in ROWS[:3500] if k >= 2500 or v != "v1"]
    assert sorted(copied) == sorted(stored(storage, "copy")) == kept
    assert made == (COUNT * 4 // 5, COUNT - 1)


@every_store
def test_modes_of_save_as_table(cluster: Cluster, url: str, storage: Storage) -> None:
    halves = [f"SELECT k, v FROM app.items WHERE k {sign} 2000" for sign in ("<", ">=")]
    cluster(save, url, halves[0], "saved", "errorifexists")
    with pytest.raises(CallFailedError, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        cluster(save, url, halves[1], "saved", "errorifexists")
    cluster(save, url, halves[1], "saved", "ignore")
    pairs = [row[:2] for row in ROWS]
    assert stored(storage, "saved") == pairs[:2000]
    cluster(save, url, halves[1], "saved", "append")
    assert stored(storage, "saved") == pairs
    cluster(save, url, halves[1], "saved", "overwrite")
    assert stored(storage, "saved") == pairs[2000:]


def insert(url: str, hint: str = "") -> None:
    run_sql(url, f"INSERT INTO app.items SELECT {hint} k + 1000, 'new', n, pad FROM app.items")


def create_as(url: str, hint: str = "") -> None:
    run_sql(url, f"CREATE TABLE app.made {KEY} AS SELECT {hint} k, n FROM app.items")


def overwrite(url: str, hint: str = "") -> None:
    save(url, f"SELECT {hint} k, 'new' AS v, n, pad FROM app.items WHERE k >= 1500", "items", "overwrite")


WRITES: dict[Callable[..., None], dict[str, list[tuple[Value, ...]]]] = {
    insert: {"items": ROWS[:1000] + [(k + 1000, "new", n, pad) for k, _, n, pad in ROWS]},
    create_as: {"items": ROWS, "made": [(k, n) for k, _, n, _ in ROWS]},
    overwrite: {"items": [(k, "new", n, pad) for k, _, n, pad in ROWS[1500:]]},
}
"""Writes of rows that they read themselves, and the tables afterwards."""


@every_store
@pytest.mark.parametrize("write", WRITES)
def test_a_write_whose_tasks_are_killed_is_made_once(
    cluster: Cluster, url: str, storage: Storage, nothing_left: Callable[[], None], write: Callable[..., None]
) -> None:
    cluster.kill("write", "executor")
    cluster.kill("write", "worker")
    cluster(write, url)
    assert {table: stored(storage, table) for table in storage.admin.list()} == WRITES[write]
    nothing_left()


@every_store
def test_a_write_whose_task_is_killed_each_time_is_not_made(
    cluster: Cluster, url: str, storage: Storage, nothing_left: Callable[[], None]
) -> None:
    for write in WRITES:
        cluster.kill("write", "worker", times=4)
        with pytest.raises(CallFailedError, match="failed 4 times"):
            cluster(write, url, "/*+ COALESCE(1) */")
        assert {table: stored(storage, table) for table in storage.admin.list()} == {"items": ROWS}
    nothing_left()
