"""What the bridge promises, on executors that are processes of their own: on all stores, and with kills."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from structable.backends.ordered.storage import OrderedStorage
from structable.spi import Field, Storage, Value, connect
from tests.spark.conftest import every_store
from tests.spark.support.catalogs import stored
from tests.spark.support.cluster_queries import (
    COUNT,
    ITEMS,
    KEY,
    LIMIT,
    ROWS,
    counts_of_both,
    items,
    joined,
    limited,
    plain_answers,
    pushed_answers,
    rows_of_both,
    run_sql,
    save,
)
from tests.spark.support.clusters import CallFailedError, Cluster, give_up, held
from tests.spark.support.samples import create_runs
from tests.spark.test_killed_drivers import staging_tables
from tests.spark.test_query_snapshots import LEFT, RIGHT, move
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("spark-applications")


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
    for fault in cluster.faults_to_come():  # of a test that failed
        fault.unlink(missing_ok=True)
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
            assert storage.engine.find_runs() == []
        else:
            assert staging_tables(request.getfixturevalue("postgresql_schema")) == []
        for table in storage.admin.list():
            spec = storage.admin.get_specification(table)
            storage.admin.create_or_update(spec.evolve(fields=[*spec.fields, Field.string("added")]))

    return check


@pytest.fixture(scope="module")
def expected(cluster: Cluster) -> dict[str, list[str]]:
    return cluster(plain_answers)


@every_store
def test_what_is_pushed_down_gives_what_spark_gives(
    cluster: Cluster, url: str, storage: Storage, expected: dict[str, list[str]]
) -> None:
    assert cluster(pushed_answers, url) == expected
    some = set(cluster(limited, url))
    assert len(some) == LIMIT
    assert some <= {row for row in ROWS if row[2] > 4}
    with storage.plan_scan("items", splits=4) as plan:
        assert len(plan.splits) > 1


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


@every_store
def test_all_scans_of_a_query_see_one_state(cluster: Cluster, url: str, storage: Storage) -> None:
    create_pair(storage)
    with moving(storage):
        assert sorted(cluster(rows_of_both, url)) == list(range(COUNT))
        everything, together, left = cluster(counts_of_both, url)
    assert everything == COUNT
    assert together == left < COUNT


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


@every_store
def test_look_up_joins_are_joins(cluster: Cluster, url: str, storage: Storage) -> None:
    create_runs(storage, COUNT)
    found = cluster(joined, url, plainly=False)
    assert found == cluster(joined, url, plainly=True)
    assert len(found) > COUNT


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


def update(url: str, hint: str = "") -> None:
    run_sql(url, f"UPDATE app.items SET n = (SELECT {hint} max(k) FROM app.items), k = k + 1 WHERE k + 0 >= 3000")


def merge(url: str, hint: str = "") -> None:
    run_sql(
        url,
        f"""
        MERGE INTO app.items t USING (SELECT {hint} k + 1000 AS k, n FROM app.items) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET v = 'new' WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """,
    )


WRITES: dict[Callable[..., None], dict[str, list[tuple[Value, ...]]]] = {
    insert: {"items": ROWS[:1000] + [(k + 1000, "new", n, pad) for k, _, n, pad in ROWS]},
    create_as: {"items": ROWS, "made": [(k, n) for k, _, n, _ in ROWS]},
    overwrite: {"items": [(k, "new", n, pad) for k, _, n, pad in ROWS[1500:]]},
    update: {"items": ROWS[:3000] + [(k + 1, v, COUNT - 1, pad) for k, v, _, pad in ROWS[3000:]]},
    merge: {
        "items": [(k, "new", n, pad) for k, _, n, pad in ROWS[1000:]]
        + [(k + 1000, None, n, None) for k, _, n, _ in ROWS[3000:]]
    },
}
"""Writes of rows that they read themselves, and the tables afterwards."""


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("url", "killed"),
    [("leveldb", insert), ("postgresql", create_as), ("hbase", overwrite)],
    indirect=["url"],
    ids=["leveldb", "postgresql", "hbase"],
)
def test_a_write_whose_task_is_killed_is_made_once(
    cluster: Cluster,
    storage: Storage,
    url: str,
    nothing_left: Callable[[], None],
    write: Callable[..., None],
    killed: Callable[..., None],
) -> None:
    """One of the writes loses an executor, which starts slowly, and the others a Python process."""
    cluster.kill("write", "executor" if write is killed else "worker")
    cluster(write, url)
    assert {table: stored(storage, table) for table in storage.admin.list()} == WRITES[write]
    nothing_left()


@pytest.mark.parametrize(
    ("url", "write"),
    [("leveldb", overwrite), ("postgresql", insert), ("hbase", create_as), ("leveldb", merge)],
    indirect=["url"],
    ids=["leveldb", "postgresql", "hbase", "merge"],
)
def test_a_write_whose_task_is_killed_each_time_is_not_made(
    cluster: Cluster, url: str, storage: Storage, nothing_left: Callable[[], None], write: Callable[..., None]
) -> None:
    cluster.kill("write", "worker", times=4)
    with pytest.raises(CallFailedError, match="failed 4 times"):
        cluster(write, url, "/*+ COALESCE(1) */")
    assert {table: stored(storage, table) for table in storage.admin.list()} == {"items": ROWS}
    nothing_left()
