import contextlib
import gc
import pickle
import secrets
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from structable.spark_bridge import keeper as keeper_module
from structable.spark_bridge.channel import Door, open_channel
from structable.spark_bridge.keeper import Keeper
from structable.spark_bridge.keeper_client import KeeperClient
from structable.spark_bridge.options import ReadOptions, StoreAddress, WriteOptions
from structable.spi import (
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TransactionClosedError,
    WriteMode,
    col,
    connect,
)
from structable.spi.arrow import arrow_schema
from tests.spark.samples import RUNS, runs

COLUMNS = RUNS.field_names


class Application:
    """An application that the keeper belongs to."""

    def __init__(self) -> None:
        self.running = True


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def keeper(application: Application) -> Iterator[Keeper]:
    keeper = Keeper(parallelism=lambda: 3, running=lambda: application.running)
    yield keeper
    keeper.close()


@pytest.fixture
def store() -> Iterator[StoreAddress]:
    """Give a store of this process, which is the keeper's too."""
    address = StoreAddress(f"memory://{uuid.uuid4().hex}")
    with address.connect() as storage:
        storage.admin.create(RUNS)
        storage.table("runs").upsert_many(runs(20))
        yield address


def options(store: StoreAddress, *, splits: int | None = None, lease: float = 60.0) -> ReadOptions:
    return ReadOptions(store, "runs", None, splits, lease)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


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
    planned = keeper.client.plan(options(store, lease=0.2), COLUMNS, None)
    with keeper.client.holding(planned.plan_id, "runs", 0.2), keeper.client.holding(planned.plan_id, "runs", 0.2):
        time.sleep(1.5)
        assert keeper.plans() == 1
    assert eventually(lambda: keeper.plans() == 0)


def test_an_expired_snapshot_is_a_clear_error(keeper: Keeper, store: StoreAddress) -> None:
    planned = keeper.client.plan(options(store, lease=0.05), COLUMNS, None)
    time.sleep(0.1)
    with (
        pytest.raises(TransactionClosedError, match=r"table 'runs': the snapshot .* for 0.05 seconds"),
        keeper.client.holding(planned.plan_id, "runs", 0.05),
    ):
        pass


def test_a_reader_that_dies_holds_nothing(keeper: Keeper, store: StoreAddress) -> None:
    planned = keeper.client.plan(options(store, lease=0.1), COLUMNS, None)
    channel = open_channel(keeper.client.readers, keeper.client.secret)
    channel.send_bytes(planned.plan_id.encode())
    assert channel.recv_bytes() == b"held"
    channel.close()
    assert eventually(lambda: keeper.plans() == 0)


def test_of_many_snapshots_the_longest_idle_is_given_up(keeper: Keeper, store: StoreAddress) -> None:
    plans = []
    for _ in range(40):
        planned = keeper.client.plan(options(store), COLUMNS, None)
        with keeper.client.holding(planned.plan_id, "runs", 60):
            plans.append(planned.plan_id)
        assert eventually(lambda: all(held.readers == 0 for held in list(keeper._plans.values())))
    assert keeper.plans() == keeper_module._PLANS_PER_LANE
    assert set(keeper._plans) == set(plans[-keeper.plans() :])


def test_a_query_may_have_more_scans_than_a_connection_has_places(keeper: Keeper, store: StoreAddress) -> None:
    plans = [keeper.client.plan(options(store), COLUMNS, None).plan_id for _ in range(70)]
    assert set(keeper._plans) == set(plans)
    assert max(held.lane for held in keeper._plans.values()) == 2


def test_a_snapshot_in_use_is_never_given_up(keeper: Keeper, store: StoreAddress) -> None:
    first = keeper.client.plan(options(store), COLUMNS, None).plan_id
    with keeper.client.holding(first, "runs", 60):
        for _ in range(keeper_module._PLANS_PER_LANE + 5):
            planned = keeper.client.plan(options(store), COLUMNS, None)
            with keeper.client.holding(planned.plan_id, "runs", 60):
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


def test_an_aborted_write_job_cannot_be_committed(keeper: Keeper, store: StoreAddress) -> None:
    job = keeper.client.begin_write(WriteOptions(store, "runs", WriteMode.INSERT, None), "job")
    keeper.client.abort_write(store, job)
    with store.connect() as storage, pytest.raises(TransactionClosedError):
        storage.commit_write(job, [])


def test_it_ends_with_the_application(keeper: Keeper, store: StoreAddress, application: Application) -> None:
    keeper.client.plan(options(store), COLUMNS, None)
    application.running = False
    assert eventually(lambda: keeper.closed)
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
    with open_channel(keeper.client.readers, keeper.client.secret) as channel:
        channel.send(("describe", (store, "runs")))
        with contextlib.suppress(EOFError, OSError):
            assert channel.recv_bytes() == b"ended"


def test_a_keeper_out_of_reach_does_not_stop_a_reader(
    keeper: Keeper, store: StoreAddress, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with replace(keeper.client, readers=("127.0.0.1", port)).holding("x", "runs", 60):
        pass
    assert "table 'runs': the lease of a snapshot cannot be renewed" in caplog.text


def test_the_client_travels_and_hides_the_secret(keeper: Keeper) -> None:
    client: KeeperClient = pickle.loads(pickle.dumps(keeper.client))
    assert client == keeper.client
    assert repr(client.secret) not in repr(client)


def test_unused_connections_are_closed(store: StoreAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_IDLE_STORE_SECONDS", 0.2)
    keeper = Keeper(parallelism=lambda: 1, running=lambda: True)
    try:
        keeper.client.describe(store, "runs")
        entry = keeper._stores._entries[store, 0]
        assert entry.storage is not None
        assert eventually(lambda: entry.storage is None)
        assert keeper.client.describe(store, "runs") == RUNS
    finally:
        keeper.close()


def test_a_closed_keeper_leaves_nothing_behind(store: StoreAddress) -> None:
    before = set(threading.enumerate())
    keeper = Keeper(parallelism=lambda: 1, running=lambda: True)
    keeper.client.plan(options(store), COLUMNS, None)
    keeper.close()
    keeper.close()
    assert eventually(lambda: not set(threading.enumerate()) - before)
    gone = weakref.ref(keeper)
    del keeper
    gc.collect()
    assert gone() is None


def test_a_door_stays_open_when_a_guest_breaks_off() -> None:
    served = threading.Event()
    door = Door("127.0.0.1", b"secret", lambda channel: served.set())
    try:
        socket.create_connection(("127.0.0.1", door.port)).close()
        open_channel(("127.0.0.1", door.port), b"secret").close()
        assert served.wait(10)
    finally:
        door.close()
