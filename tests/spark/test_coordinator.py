import contextlib
import gc
import logging
import os
import pickle
import secrets
import shutil
import socket
import struct
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator import channel as channel_module
from structable.spark_bridge.coordinator import coordinator as coordinator_module
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.coordinator.coordinator import Coordinator
from structable.spark_bridge.coordinator.held_plans import PlannedSplits, SplitTask
from structable.spi import (
    Storage,
    StorageUnavailableError,
    StoreNotFoundError,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
    col,
    connect,
)
from structable.spi.arrow import arrow_schema
from structable.spi.authors import requested_job
from tests.spark.support.samples import RUNS, create_runs, runs
from tests.waiting import until

COLUMNS = RUNS.field_names
INSERT = requested_job("runs", "insert", "job")


class Application:
    """An application that the coordinator belongs to, with executions 1 to 9 and stages 1 to 9 running."""

    def __init__(self) -> None:
        self.running = True
        self.executions = set(range(1, 10))
        self.stages = set(range(1, 10))
        self.anew = set(range(1, 10))

    def runs(self, execution: int) -> bool:
        return execution in self.executions

    def runs_stage(self, stage: int) -> bool:
        return stage in self.stages

    def runs_any_job(self) -> bool:
        return bool(self.stages)

    def reads_all_again(self, execution: int, stage: int) -> bool:
        return execution in self.anew


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def coordinator(application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    monkeypatch.setattr(coordinator_module, "WATCH_SECONDS", 0.02)
    coordinator = Coordinator(lambda: 3, lambda: application.running, application)
    yield coordinator
    coordinator.close()


@pytest.fixture
def store() -> Iterator[StoreClient]:
    """Return a store of this process, which is the coordinator's too."""
    address = StoreClient(f"memory://{uuid.uuid4().hex}")
    with connect(address.url) as storage:
        create_runs(storage, 20)
        yield address


def options(store: StoreClient, *, splits: int | None = None, lease: float = 60.0, grace: float = 30.0) -> ReadOptions:
    return ReadOptions(store, "runs", None, splits, lease, grace)


def reader(split: int = 0, execution: int | None = 1, stage: int = 1) -> SplitTask:
    return SplitTask(split, execution, stage)


def test_it_describes_tables(coordinator: Coordinator, store: StoreClient) -> None:
    assert coordinator.client.describe(store, "runs") == RUNS


def test_errors_come_back_as_they_are(coordinator: Coordinator, store: StoreClient) -> None:
    with pytest.raises(TableNotFoundError, match="'absent' does not exist"):
        coordinator.client.describe(store, "absent")


def test_a_plan_has_columns_filter_and_the_wanted_splits(coordinator: Coordinator, store: StoreClient) -> None:
    planned = coordinator.client.plan(options(store, splits=2), ("cost", "app"), col("started") >= 18)
    with connect(store.url) as storage:
        batches = [batch for split in planned.splits for batch in storage.read_split(split)]
    assert pa.Table.from_batches(batches).to_pylist() == [{"cost": 4.5, "app": "etl"}, {"cost": 4.75, "app": "etl"}]


def rows_of(store: StoreClient, planned: PlannedSplits) -> int:
    with connect(store.url) as storage:
        return sum(batch.num_rows for split in planned.splits for batch in storage.read_split(split))


def test_plans_of_one_execution_see_one_state(coordinator: Coordinator, store: StoreClient) -> None:
    first = coordinator.client.plan(options(store), COLUMNS, None, 1)
    with connect(store.url) as storage:
        storage.table("runs").upsert({"app": "new", "started": 1})
    second, other = (coordinator.client.plan(options(store), COLUMNS, None, execution) for execution in (1, 2))
    without = coordinator.client.plan(options(store), COLUMNS, None, None)
    assert [rows_of(store, planned) for planned in (first, second, other, without)] == [20, 20, 21, 21]
    assert coordinator.shared_snapshots() == 2


def test_a_table_changed_since_the_first_plan_of_an_execution_conflicts(
    coordinator: Coordinator, store: StoreClient
) -> None:
    first = coordinator.client.plan(options(store), COLUMNS, None, 1)
    with connect(store.url) as storage:
        storage.admin.create(TableSpecification("made", RUNS.fields, RUNS.primary_key))
    made = replace(options(store), table="made")
    with pytest.raises((TransactionConflictError, TableNotFoundError)):
        coordinator.client.plan(made, COLUMNS, None, 1)
    assert rows_of(store, first) == 20
    assert rows_of(store, coordinator.client.plan(made, COLUMNS, None, 2)) == 0


def test_shared_snapshots_end_with_their_executions(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    for execution in (1, 2):
        coordinator.client.plan(options(store, grace=0.01), COLUMNS, None, execution)
    application.executions.discard(1)
    until(lambda: coordinator.shared_snapshots() == 1)
    application.executions.clear()
    application.stages.clear()
    until(lambda: coordinator.shared_snapshots() == 0)
    until(lambda: coordinator.plans() == 0)


def test_the_default_number_of_splits_is_the_parallelism(
    coordinator: Coordinator, store: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plan_scan = type(connect(store.url)).plan_scan

    def observed(self: Storage, table: str, *, splits: int, **rest: object) -> object:
        asked.append(splits)
        return plan_scan(self, table, splits=splits, **rest)  # type: ignore[arg-type]

    with store.connect() as storage:
        monkeypatch.setattr(type(storage), "plan_scan", observed)
    coordinator.client.plan(options(store), COLUMNS, None)
    assert asked == [3]


def test_a_snapshot_is_held_while_it_is_read_and_given_up_a_lease_later(
    coordinator: Coordinator, store: StoreClient
) -> None:
    asked = options(store, lease=0.2)
    planned = coordinator.client.plan(asked, COLUMNS, None)
    with (
        coordinator.client.holding(planned.plan_id, asked, reader()),
        coordinator.client.holding(planned.plan_id, asked, reader()),
    ):
        time.sleep(0.6)
        assert coordinator.plans() == 1
    until(lambda: coordinator.plans() == 0)


def test_an_expired_snapshot_is_a_clear_error(coordinator: Coordinator, store: StoreClient) -> None:
    asked = options(store, lease=0.05)
    planned = coordinator.client.plan(asked, COLUMNS, None)
    time.sleep(0.1)
    with (
        pytest.raises(TransactionClosedError, match=r"table 'runs': the snapshot .* for 0.05 seconds"),
        coordinator.client.holding(planned.plan_id, asked, reader()),
    ):
        pass


def test_a_reader_that_dies_holds_nothing(coordinator: Coordinator, store: StoreClient) -> None:
    planned = coordinator.client.plan(options(store, lease=0.1), COLUMNS, None)
    channel = channel_module.open_channel(coordinator.client.readers, coordinator.client.secret)
    channel.send_bytes(f"{planned.plan_id} 0 1 1".encode())
    assert channel.recv_bytes() == b"held"
    channel.close()
    until(lambda: coordinator.plans() == 0)


def read(coordinator: Coordinator, plan_id: str, asked: ReadOptions, *readers: SplitTask) -> None:
    for each in readers:
        with coordinator.client.holding(plan_id, asked, each):
            pass
    until(lambda: coordinator.held[plan_id].readers == 0)


def kept(coordinator: Coordinator, *, seconds: float = 0.5) -> bool:
    """Tell whether all snapshots survive some rounds of the coordinator."""
    before = coordinator.plans()
    time.sleep(seconds)
    return coordinator.plans() == before


def test_a_snapshot_ends_soon_after_its_query(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    asked = options(store, grace=0.2)
    planned = coordinator.client.plan(asked, COLUMNS, None, 1)
    read(coordinator, planned.plan_id, asked, reader(0))
    assert kept(coordinator)
    application.executions.clear()
    until(lambda: coordinator.plans() == 0)


def test_a_snapshot_of_a_query_that_never_read_it_ends_too(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    coordinator.client.plan(options(store, grace=0.2), COLUMNS, None, 1)
    assert kept(coordinator)
    application.executions.clear()
    assert kept(coordinator)  # a waiting job may be about to read it
    application.stages.clear()
    until(lambda: coordinator.plans() == 0)


def test_the_end_of_a_query_never_lengthens_a_lease(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    coordinator.client.plan(options(store, lease=0.2, grace=60), COLUMNS, None, 1)
    application.executions.clear()
    until(lambda: coordinator.plans() == 0)


def test_reading_renews_the_grace_after_a_query(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    asked = options(store, grace=0.6)
    planned = coordinator.client.plan(asked, COLUMNS, None, 1)
    application.executions.remove(1)
    for _ in range(4):
        time.sleep(0.3)
        read(coordinator, planned.plan_id, asked, reader(0, execution=2))
    application.executions.clear()
    until(lambda: coordinator.plans() == 0)


def test_every_execution_that_reads_a_snapshot_keeps_it(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    asked = options(store, grace=0.2)
    planned = coordinator.client.plan(asked, COLUMNS, None, 1)
    read(coordinator, planned.plan_id, asked, reader(0, execution=1), reader(0, execution=2))
    application.executions.remove(1)
    assert kept(coordinator)
    application.executions.remove(2)
    until(lambda: coordinator.plans() == 0)


def test_a_snapshot_that_is_read_after_its_query_lasts_until_all_was_read(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    # As toLocalIterator does, whose execution ends before its first task begins.
    asked = options(store, splits=2, grace=0.2)
    planned = coordinator.client.plan(asked, COLUMNS, None, 1)
    assert len(planned.splits) == 2
    application.executions.clear()
    application.stages.clear()
    read(coordinator, planned.plan_id, asked, reader(0))
    assert kept(coordinator)
    read(coordinator, planned.plan_id, asked, reader(1))
    until(lambda: coordinator.plans() == 0)


def test_a_snapshot_of_an_rdd_lasts_until_all_was_read_and_its_jobs_have_ended(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    asked = options(store, splits=2, grace=0.2)
    planned = coordinator.client.plan(asked, COLUMNS, None)
    assert kept(coordinator)
    read(coordinator, planned.plan_id, asked, reader(0, execution=None), reader(1, execution=None, stage=2))
    application.stages.remove(1)
    assert kept(coordinator)
    application.stages.remove(2)
    until(lambda: coordinator.plans() == 0)


def test_of_many_snapshots_the_longest_idle_is_given_up(coordinator: Coordinator, store: StoreClient) -> None:
    plans = []
    for _ in range(40):
        planned = coordinator.client.plan(options(store), COLUMNS, None)
        with coordinator.client.holding(planned.plan_id, options(store), reader()):
            plans.append(planned.plan_id)
        until(lambda: all(held.readers == 0 for held in list(coordinator.held.values())))
    assert coordinator.plans() == coordinator_module.PLANS_PER_CONNECTION
    assert set(coordinator.held) == set(plans[-coordinator.plans() :])


def test_a_query_may_have_more_scans_than_a_connection_has_places(coordinator: Coordinator, store: StoreClient) -> None:
    plans = [coordinator.client.plan(options(store), COLUMNS, None).plan_id for _ in range(70)]
    assert set(coordinator.held) == set(plans)
    assert max(held.connection for held in coordinator.held.values()) == 2


def test_of_many_snapshots_those_of_ended_queries_are_given_up_first(
    coordinator: Coordinator, store: StoreClient, application: Application
) -> None:
    plans = []
    for number in range(coordinator_module.PLANS_PER_CONNECTION):
        plans.append(coordinator.client.plan(options(store), COLUMNS, None, 1 + number % 2).plan_id)
        read(coordinator, plans[-1], options(store), reader(execution=1 + number % 2))
    application.executions.remove(2)
    until(lambda: not any(held.need()[0] for held in [coordinator.held[plan] for plan in plans[1::2]]))
    coordinator.client.plan(options(store), COLUMNS, None, 1)
    assert set(plans) - set(coordinator.held) == {plans[1]}


def test_of_many_snapshots_those_that_are_read_are_given_up_first(coordinator: Coordinator, store: StoreClient) -> None:
    """As by a recursion beside a scan whose tasks wait: it plans a scan or two for each step."""
    waiting = coordinator.client.plan(options(store, splits=2), COLUMNS, None)
    assert len(waiting.splits) == 2
    read(coordinator, waiting.plan_id, options(store), reader())
    for _ in range(coordinator_module.PLANS_PER_CONNECTION + 5):
        planned = coordinator.client.plan(options(store, splits=1), COLUMNS, None)
        read(coordinator, planned.plan_id, options(store), reader())
    assert waiting.plan_id in coordinator.held


def test_a_snapshot_in_use_is_never_given_up(coordinator: Coordinator, store: StoreClient) -> None:
    first = coordinator.client.plan(options(store), COLUMNS, None).plan_id
    with coordinator.client.holding(first, options(store), reader()):
        for _ in range(coordinator_module.PLANS_PER_CONNECTION + 5):
            planned = coordinator.client.plan(options(store), COLUMNS, None)
            with coordinator.client.holding(planned.plan_id, options(store), reader()):
                pass
        assert first in coordinator.held


def test_a_write_job_is_committed_once(coordinator: Coordinator, store: StoreClient) -> None:
    job = coordinator.client.begin_write(store, INSERT)
    batch = pa.RecordBatch.from_pylist(runs(2, first=100), schema=arrow_schema(RUNS))
    with store.connect() as storage:
        staged = storage.stage(job, 0, 0, [batch])
        coordinator.client.commit_write(store, job, [staged])
        assert storage.table("runs").count() == 22
        storage.commit_write(job, [staged])
        assert storage.table("runs").count() == 22


def test_a_job_committed_before_is_logged(
    coordinator: Coordinator, store: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert coordinator.client.commit_write(store, coordinator.client.begin_write(store, INSERT), [])
    assert "committed before" not in caplog.text
    again = coordinator.client.begin_write(store, INSERT)
    assert again.committed
    assert not coordinator.client.commit_write(store, again, [])
    assert "the job 'job' (option jobId) had been committed before; nothing was written" in caplog.text
    coordinator.client.leave_write(store, coordinator.client.begin_write(store, INSERT))
    assert "was committed and its rows are visible" not in caplog.text


@pytest.mark.parametrize("end", ["abort_write", "leave_write"])
def test_a_committed_job_that_spark_reports_as_failed_is_logged(
    coordinator: Coordinator, store: StoreClient, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    job = coordinator.client.begin_write(store, INSERT)
    with store.connect() as storage:
        storage.commit_write(job, [])
    getattr(coordinator.client, end)(store, job)
    assert "the job 'job' was committed and its rows are visible, although Spark reports a failure" in caplog.text


def test_a_message_of_two_gigabytes_is_refused_before_it_is_sent(
    coordinator: Coordinator, store: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert channel_module.MOST_BYTES == 2**31 - 1
    monkeypatch.setattr(channel_module, "MOST_BYTES", 5000)
    many = col("started").isin(range(5000))
    with pytest.raises(UnsupportedOperationError, match=r"a message of [0-9,]+ bytes .* at most 5,000 can be sent"):
        coordinator.client.plan(options(store), COLUMNS, many)
    assert coordinator.client.describe(store, "runs") == RUNS


def test_an_answer_of_two_gigabytes_is_an_error(
    coordinator: Coordinator, store: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MOST_BYTES", 5000)
    monkeypatch.setitem(coordinator.operations, "describe", lambda *asked: "x" * 6000)
    with pytest.raises(UnsupportedOperationError, match="bytes between Spark's processes"):
        coordinator.client.describe(store, "runs")


@pytest.mark.parametrize("cut", [2, 6, -1])
def test_a_message_that_is_cut_short_is_not_acted_upon(coordinator: Coordinator, store: StoreClient, cut: int) -> None:
    message = pickle.dumps(("begin_write", (store, requested_job("runs", "overwrite", "cut"))))
    whole = struct.pack("!i", len(message)) + message
    with channel_module.open_channel(coordinator.client.planners, coordinator.client.secret) as opened:
        os.write(opened.fileno(), whole[:cut])
    assert coordinator.client.describe(store, "runs") == RUNS
    assert not coordinator.client.begin_write(store, requested_job("runs", "insert", "cut")).committed


def test_an_aborted_write_job_cannot_be_committed(coordinator: Coordinator, store: StoreClient) -> None:
    job = coordinator.client.begin_write(store, INSERT)
    coordinator.client.abort_write(store, job)
    with store.connect() as storage, pytest.raises(TransactionClosedError):
        storage.commit_write(job, [])


def test_the_log_names_a_snapshot_closed_after_its_query(
    coordinator: Coordinator, store: StoreClient, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    asked = options(store, grace=0.1)
    planned = coordinator.client.plan(asked, COLUMNS, None, 1)
    read(coordinator, planned.plan_id, asked, reader(0))
    with caplog.at_level(logging.INFO, "structable.spark"):
        application.executions.discard(1)
        until(lambda: coordinator.plans() == 0)
        until(lambda: "table 'runs': closing a snapshot, its query has ended (graceSeconds is 0.1)" in caplog.messages)


def test_the_log_has_the_error_that_closed_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(channel: channel_module.Channel) -> None:
        raise RuntimeError("out of luck")

    listener = channel_module.ChannelServer("127.0.0.1", b"secret", fail)
    try:
        channel_module.open_channel(("127.0.0.1", listener.port), b"secret").close()
        until(lambda: "a connection to the coordinator was closed by an error" in caplog.messages)
        assert "out of luck" in caplog.text
    finally:
        listener.close()


def test_it_ends_with_the_application(coordinator: Coordinator, store: StoreClient, application: Application) -> None:
    coordinator.client.plan(options(store), COLUMNS, None)
    application.running = False
    until(lambda: coordinator.closed and coordinator.plans() == 0)
    with pytest.raises(StorageUnavailableError, match=r"register\(spark\) starts a new one"):
        coordinator.client.describe(store, "runs")


def test_a_stranger_is_not_served(coordinator: Coordinator, store: StoreClient) -> None:
    stranger = replace(coordinator.client, secret=secrets.token_bytes(32))
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        stranger.describe(store, "runs")


def test_a_silent_connection_stops_no_other(coordinator: Coordinator, store: StoreClient) -> None:
    with contextlib.ExitStack() as strangers:
        for _ in range(5):
            strangers.enter_context(socket.create_connection(coordinator.client.planners))
        assert coordinator.client.describe(store, "runs") == RUNS


def test_nothing_is_unpickled_for_readers(coordinator: Coordinator, store: StoreClient) -> None:
    with channel_module.open_channel(coordinator.client.readers, coordinator.client.secret) as channel:
        channel.send(("describe", (store, "runs")))
        with contextlib.suppress(EOFError, OSError):
            assert channel.recv_bytes() == b"ended"


def test_a_coordinator_out_of_reach_does_not_stop_a_reader(
    coordinator: Coordinator, store: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with replace(coordinator.client, readers=("127.0.0.1", port)).holding("x", options(store), reader()):
        pass
    assert "table 'runs': the lease of a snapshot cannot be renewed" in caplog.text


def test_the_client_travels_and_hides_the_secret(coordinator: Coordinator) -> None:
    client: CoordinatorClient = pickle.loads(pickle.dumps(coordinator.client))
    assert client == coordinator.client
    assert repr(client.secret) not in repr(client)


def test_unused_connections_are_closed(store: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "IDLE_STORE_SECONDS", 0.2)
    coordinator = Coordinator(lambda: 1, lambda: True, Application())
    try:
        coordinator.client.describe(store, "runs")
        entry = coordinator.stores.entries[store, 0]
        assert entry.storage is not None
        until(lambda: entry.storage is None)
        assert coordinator.client.describe(store, "runs") == RUNS
    finally:
        coordinator.close()


def test_a_store_that_was_removed_and_made_again_is_connected_anew(coordinator: Coordinator, tmp_path: Path) -> None:
    address = StoreClient(f"leveldb://{tmp_path}/store")
    with connect(address.url) as storage:
        create_runs(storage, 20)
    assert coordinator.client.describe(address, "runs") == RUNS
    before = coordinator.stores.entries[address, 0].storage
    assert before is not None
    shutil.rmtree(tmp_path / "store")
    until(lambda: before.closed)
    with pytest.raises(StoreNotFoundError):
        coordinator.client.describe(address, "runs")
    with connect(address.url) as storage:
        create_runs(storage, 20)
    assert coordinator.client.describe(address, "runs") == RUNS


def test_a_closed_coordinator_leaves_nothing_behind(store: StoreClient) -> None:
    before = set(threading.enumerate())
    coordinator = Coordinator(lambda: 1, lambda: True, Application())
    coordinator.client.plan(options(store), COLUMNS, None)
    coordinator.close()
    coordinator.close()
    until(lambda: not set(threading.enumerate()) - before)
    gone = weakref.ref(coordinator)
    del coordinator
    gc.collect()
    assert gone() is None


def test_the_listener_stays_open_when_a_client_breaks_off() -> None:
    served = threading.Event()
    listener = channel_module.ChannelServer("127.0.0.1", b"secret", lambda channel: served.set())
    try:
        socket.create_connection(("127.0.0.1", listener.port)).close()
        channel_module.open_channel(("127.0.0.1", listener.port), b"secret").close()
        assert served.wait(10)
    finally:
        listener.close()
