import contextlib
import gc
import os
import pickle
import secrets
import socket
import struct
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from structable.spark_bridge import channel as channel_module
from structable.spark_bridge import keeper as keeper_module
from structable.spark_bridge.held_plans import Reader
from structable.spark_bridge.keeper import Keeper
from structable.spark_bridge.keeper_client import KeeperClient
from structable.spark_bridge.options import ReadOptions, StoreAddress, WriteOptions
from structable.spi import (
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionClosedError,
    UnsupportedOperationError,
    WriteMode,
    col,
    connect,
)
from structable.spi.arrow import arrow_schema
from tests.spark.samples import RUNS, runs
from tests.waiting import until

COLUMNS = RUNS.field_names


class Application:
    """An application that the keeper belongs to, with executions 1 to 9 and stages 1 to 9 running."""

    def __init__(self) -> None:
        self.running = True
        self.executions = set(range(1, 10))
        self.stages = set(range(1, 10))

    def runs(self, execution: int) -> bool:
        return execution in self.executions

    def runs_stage(self, stage: int) -> bool:
        return stage in self.stages

    def runs_any_job(self) -> bool:
        return bool(self.stages)


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def keeper(application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    monkeypatch.setattr(keeper_module, "_WATCH_SECONDS", 0.02)
    keeper = Keeper(lambda: 3, lambda: application.running, application)
    yield keeper
    keeper.close()


@pytest.fixture
def store() -> Iterator[StoreAddress]:
    """Give a store of this process, which is the keeper's too."""
    address = StoreAddress(f"memory://{uuid.uuid4().hex}")
    with connect(address.url) as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many(runs(20))
        yield address


def options(store: StoreAddress, *, splits: int | None = None, lease: float = 60.0, grace: float = 30.0) -> ReadOptions:
    return ReadOptions(store, "runs", None, splits, lease, grace)


def reader(split: int = 0, execution: int | None = 1, stage: int = 1) -> Reader:
    return Reader(split, execution, stage)


def test_it_describes_tables(keeper: Keeper, store: StoreAddress) -> None:
    assert keeper.client.describe(store, "runs") == RUNS


def test_errors_come_back_as_they_are(keeper: Keeper, store: StoreAddress) -> None:
    with pytest.raises(TableNotFoundError, match="'absent' does not exist"):
        keeper.client.describe(store, "absent")


def test_a_plan_has_columns_filter_and_the_wanted_splits(keeper: Keeper, store: StoreAddress) -> None:
    planned = keeper.client.plan(options(store, splits=2), ("cost", "app"), col("started") >= 18)
    with connect(store.url) as storage:
        batches = [batch for split in planned.splits for batch in storage.read_split(split)]
    assert pa.Table.from_batches(batches).to_pylist() == [{"cost": 4.5, "app": "etl"}, {"cost": 4.75, "app": "etl"}]


def test_the_default_number_of_splits_is_the_parallelism(
    keeper: Keeper, store: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plan_scan = type(connect(store.url)).plan_scan

    def observed(self: Storage, table: str, *, splits: int, **rest: object) -> object:
        asked.append(splits)
        return plan_scan(self, table, splits=splits, **rest)  # type: ignore[arg-type]

    with store.connect() as storage:
        monkeypatch.setattr(type(storage), "plan_scan", observed)
    keeper.client.plan(options(store), COLUMNS, None)
    assert asked == [3]


def test_a_snapshot_is_held_while_it_is_read_and_given_up_a_lease_later(keeper: Keeper, store: StoreAddress) -> None:
    asked = options(store, lease=0.2)
    planned = keeper.client.plan(asked, COLUMNS, None)
    with (
        keeper.client.holding(planned.plan_id, asked, reader()),
        keeper.client.holding(planned.plan_id, asked, reader()),
    ):
        time.sleep(0.6)
        assert keeper.plans() == 1
    until(lambda: keeper.plans() == 0)


def test_an_expired_snapshot_is_a_clear_error(keeper: Keeper, store: StoreAddress) -> None:
    asked = options(store, lease=0.05)
    planned = keeper.client.plan(asked, COLUMNS, None)
    time.sleep(0.1)
    with (
        pytest.raises(TransactionClosedError, match=r"table 'runs': the snapshot .* for 0.05 seconds"),
        keeper.client.holding(planned.plan_id, asked, reader()),
    ):
        pass


def test_a_reader_that_dies_holds_nothing(keeper: Keeper, store: StoreAddress) -> None:
    planned = keeper.client.plan(options(store, lease=0.1), COLUMNS, None)
    channel = channel_module.open_channel(keeper.client.readers, keeper.client.secret)
    channel.send_bytes(f"{planned.plan_id} 0 1 1".encode())
    assert channel.recv_bytes() == b"held"
    channel.close()
    until(lambda: keeper.plans() == 0)


def read(keeper: Keeper, plan_id: str, asked: ReadOptions, *readers: Reader) -> None:
    for each in readers:
        with keeper.client.holding(plan_id, asked, each):
            pass
    until(lambda: keeper._plans[plan_id].readers == 0)


def kept(keeper: Keeper, *, seconds: float = 0.5) -> bool:
    """Tell whether all snapshots outlast some of the keeper's rounds."""
    before = keeper.plans()
    time.sleep(seconds)
    return keeper.plans() == before


def test_a_snapshot_ends_soon_after_its_query(keeper: Keeper, store: StoreAddress, application: Application) -> None:
    asked = options(store, grace=0.2)
    planned = keeper.client.plan(asked, COLUMNS, None, 1)
    read(keeper, planned.plan_id, asked, reader(0))
    assert kept(keeper)
    application.executions.clear()
    until(lambda: keeper.plans() == 0)


def test_a_snapshot_of_a_query_that_never_read_it_ends_too(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    keeper.client.plan(options(store, grace=0.2), COLUMNS, None, 1)
    assert kept(keeper)
    application.executions.clear()
    assert kept(keeper)  # a job that waits for its turn may be about to read it
    application.stages.clear()
    until(lambda: keeper.plans() == 0)


def test_the_end_of_a_query_never_lengthens_a_lease(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    keeper.client.plan(options(store, lease=0.2, grace=60), COLUMNS, None, 1)
    application.executions.clear()
    until(lambda: keeper.plans() == 0)


def test_reading_renews_what_is_left_after_a_query(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    asked = options(store, grace=0.6)
    planned = keeper.client.plan(asked, COLUMNS, None, 1)
    application.executions.remove(1)
    for _ in range(4):
        time.sleep(0.3)
        read(keeper, planned.plan_id, asked, reader(0, execution=2))
    application.executions.clear()
    until(lambda: keeper.plans() == 0)


def test_every_execution_that_reads_a_snapshot_keeps_it(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    asked = options(store, grace=0.2)
    planned = keeper.client.plan(asked, COLUMNS, None, 1)
    read(keeper, planned.plan_id, asked, reader(0, execution=1), reader(0, execution=2))
    application.executions.remove(1)
    assert kept(keeper)
    application.executions.remove(2)
    until(lambda: keeper.plans() == 0)


def test_a_snapshot_that_is_read_after_its_query_lasts_until_all_was_read(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    # As toLocalIterator does, whose execution ends before its first task begins.
    asked = options(store, splits=2, grace=0.2)
    planned = keeper.client.plan(asked, COLUMNS, None, 1)
    assert len(planned.splits) == 2
    application.executions.clear()
    application.stages.clear()
    read(keeper, planned.plan_id, asked, reader(0))
    assert kept(keeper)
    read(keeper, planned.plan_id, asked, reader(1))
    until(lambda: keeper.plans() == 0)


def test_a_snapshot_of_an_rdd_lasts_until_all_was_read_and_its_jobs_have_ended(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    asked = options(store, splits=2, grace=0.2)
    planned = keeper.client.plan(asked, COLUMNS, None)
    assert kept(keeper)
    read(keeper, planned.plan_id, asked, reader(0, execution=None), reader(1, execution=None, stage=2))
    application.stages.remove(1)
    assert kept(keeper)
    application.stages.remove(2)
    until(lambda: keeper.plans() == 0)


def test_of_many_snapshots_the_longest_idle_is_given_up(keeper: Keeper, store: StoreAddress) -> None:
    plans = []
    for _ in range(40):
        planned = keeper.client.plan(options(store), COLUMNS, None)
        with keeper.client.holding(planned.plan_id, options(store), reader()):
            plans.append(planned.plan_id)
        until(lambda: all(held.readers == 0 for held in list(keeper._plans.values())))
    assert keeper.plans() == keeper_module._PLANS_PER_LANE
    assert set(keeper._plans) == set(plans[-keeper.plans() :])


def test_a_query_may_have_more_scans_than_a_connection_has_places(keeper: Keeper, store: StoreAddress) -> None:
    plans = [keeper.client.plan(options(store), COLUMNS, None).plan_id for _ in range(70)]
    assert set(keeper._plans) == set(plans)
    assert max(held.lane for held in keeper._plans.values()) == 2


def test_of_many_snapshots_those_of_ended_queries_are_given_up_first(
    keeper: Keeper, store: StoreAddress, application: Application
) -> None:
    plans = []
    for number in range(keeper_module._PLANS_PER_LANE):
        plans.append(keeper.client.plan(options(store), COLUMNS, None, 1 + number % 2).plan_id)
        read(keeper, plans[-1], options(store), reader(execution=1 + number % 2))
    application.executions.remove(2)
    until(lambda: not any(held.need()[0] for held in [keeper._plans[plan] for plan in plans[1::2]]))
    keeper.client.plan(options(store), COLUMNS, None, 1)
    assert set(plans) - set(keeper._plans) == {plans[1]}


def test_a_snapshot_in_use_is_never_given_up(keeper: Keeper, store: StoreAddress) -> None:
    first = keeper.client.plan(options(store), COLUMNS, None).plan_id
    with keeper.client.holding(first, options(store), reader()):
        for _ in range(keeper_module._PLANS_PER_LANE + 5):
            planned = keeper.client.plan(options(store), COLUMNS, None)
            with keeper.client.holding(planned.plan_id, options(store), reader()):
                pass
        assert first in keeper._plans


def test_a_write_job_is_committed_once(keeper: Keeper, store: StoreAddress) -> None:
    wanted = WriteOptions(store, "runs", WriteMode.INSERT, None)
    job = keeper.client.begin_write(wanted, "job")
    batch = pa.RecordBatch.from_pylist(runs(2, first=100), schema=arrow_schema(RUNS))
    with store.connect() as storage:
        staged = storage.stage(job, 0, 0, [batch])
        keeper.client.commit_write(store, job, [staged])
        assert storage.table("runs").count() == 22
        storage.commit_write(job, [staged])
        assert storage.table("runs").count() == 22


def test_a_job_that_was_committed_before_is_told_of(
    keeper: Keeper, store: StoreAddress, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = WriteOptions(store, "runs", WriteMode.INSERT, "job")
    assert keeper.client.commit_write(store, keeper.client.begin_write(wanted, "job"), [])
    assert "committed before" not in caplog.text
    again = keeper.client.begin_write(wanted, "job")
    assert again.committed
    assert not keeper.client.commit_write(store, again, [])
    assert "the job 'job' (option jobId) had been committed before; nothing was written" in caplog.text
    keeper.client.leave_write(store, keeper.client.begin_write(wanted, "job"))
    assert "was committed and its rows are visible" not in caplog.text


@pytest.mark.parametrize("end", ["abort_write", "leave_write"])
def test_a_job_that_spark_takes_for_failed_though_committed_is_told_of(
    keeper: Keeper, store: StoreAddress, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    job = keeper.client.begin_write(WriteOptions(store, "runs", WriteMode.INSERT, "job"), "job")
    with store.connect() as storage:
        storage.commit_write(job, [])
    getattr(keeper.client, end)(store, job)
    assert "the job 'job' was committed and its rows are visible, although Spark reports a failure" in caplog.text


def test_a_message_of_two_gigabytes_is_refused_before_it_is_sent(
    keeper: Keeper, store: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert channel_module._MOST_BYTES == 2**31 - 1
    monkeypatch.setattr(channel_module, "_MOST_BYTES", 5000)
    many = col("started").isin(range(5000))
    with pytest.raises(UnsupportedOperationError, match=r"a message of [0-9,]+ bytes .* at most 5,000 can be sent"):
        keeper.client.plan(options(store), COLUMNS, many)
    assert keeper.client.describe(store, "runs") == RUNS


def test_an_answer_of_two_gigabytes_is_an_error(
    keeper: Keeper, store: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_MOST_BYTES", 5000)
    monkeypatch.setitem(keeper._operations, "describe", lambda *asked: "x" * 6000)
    with pytest.raises(UnsupportedOperationError, match="bytes between Spark's processes"):
        keeper.client.describe(store, "runs")


@pytest.mark.parametrize("cut", [2, 6, -1])
def test_a_message_that_is_cut_short_is_not_acted_upon(keeper: Keeper, store: StoreAddress, cut: int) -> None:
    message = pickle.dumps(("begin_write", (WriteOptions(store, "runs", WriteMode.OVERWRITE, None), "cut")))
    whole = struct.pack("!i", len(message)) + message
    with channel_module.open_channel(keeper.client.planners, keeper.client.secret) as opened:
        os.write(opened.fileno(), whole[:cut])
    assert keeper.client.describe(store, "runs") == RUNS
    assert not keeper.client.begin_write(WriteOptions(store, "runs", WriteMode.INSERT, None), "cut").committed


def test_an_aborted_write_job_cannot_be_committed(keeper: Keeper, store: StoreAddress) -> None:
    job = keeper.client.begin_write(WriteOptions(store, "runs", WriteMode.INSERT, None), "job")
    keeper.client.abort_write(store, job)
    with store.connect() as storage, pytest.raises(TransactionClosedError):
        storage.commit_write(job, [])


def test_it_ends_with_the_application(keeper: Keeper, store: StoreAddress, application: Application) -> None:
    keeper.client.plan(options(store), COLUMNS, None)
    application.running = False
    until(lambda: keeper.closed)
    assert keeper.plans() == 0
    with pytest.raises(StorageUnavailableError, match=r"register\(spark\) starts it anew"):
        keeper.client.describe(store, "runs")


def test_a_stranger_is_not_served(keeper: Keeper, store: StoreAddress) -> None:
    stranger = replace(keeper.client, secret=secrets.token_bytes(32))
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        stranger.describe(store, "runs")


def test_a_silent_stranger_stops_nobody(keeper: Keeper, store: StoreAddress) -> None:
    with contextlib.ExitStack() as strangers:
        for _ in range(5):
            strangers.enter_context(socket.create_connection(keeper.client.planners))
        assert keeper.client.describe(store, "runs") == RUNS


def test_nothing_is_unpickled_for_readers(keeper: Keeper, store: StoreAddress) -> None:
    with channel_module.open_channel(keeper.client.readers, keeper.client.secret) as channel:
        channel.send(("describe", (store, "runs")))
        with contextlib.suppress(EOFError, OSError):
            assert channel.recv_bytes() == b"ended"


def test_a_keeper_out_of_reach_does_not_stop_a_reader(
    keeper: Keeper, store: StoreAddress, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with replace(keeper.client, readers=("127.0.0.1", port)).holding("x", options(store), reader()):
        pass
    assert "table 'runs': the lease of a snapshot cannot be renewed" in caplog.text


def test_the_client_travels_and_hides_the_secret(keeper: Keeper) -> None:
    client: KeeperClient = pickle.loads(pickle.dumps(keeper.client))
    assert client == keeper.client
    assert repr(client.secret) not in repr(client)


def test_unused_connections_are_closed(store: StoreAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_IDLE_STORE_SECONDS", 0.2)
    keeper = Keeper(lambda: 1, lambda: True, Application())
    try:
        keeper.client.describe(store, "runs")
        entry = keeper._stores._entries[store, 0]
        assert entry.storage is not None
        until(lambda: entry.storage is None)
        assert keeper.client.describe(store, "runs") == RUNS
    finally:
        keeper.close()


def test_a_closed_keeper_leaves_nothing_behind(store: StoreAddress) -> None:
    before = set(threading.enumerate())
    keeper = Keeper(lambda: 1, lambda: True, Application())
    keeper.client.plan(options(store), COLUMNS, None)
    keeper.close()
    keeper.close()
    until(lambda: not set(threading.enumerate()) - before)
    gone = weakref.ref(keeper)
    del keeper
    gc.collect()
    assert gone() is None


def test_a_door_stays_open_when_a_guest_breaks_off() -> None:
    served = threading.Event()
    door = channel_module.Door("127.0.0.1", b"secret", lambda channel: served.set())
    try:
        socket.create_connection(("127.0.0.1", door.port)).close()
        channel_module.open_channel(("127.0.0.1", door.port), b"secret").close()
        assert served.wait(10)
    finally:
        door.close()
